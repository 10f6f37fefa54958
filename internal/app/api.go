package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/scheduler-service/scheduler/internal/apikey"
	"github.com/scheduler-service/scheduler/internal/audit"
	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/certificate"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor/function"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/identity/jwks"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/ratelimit"
	"github.com/scheduler-service/scheduler/internal/rest"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/statistics"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// requestDrain bounds how long requests that are being answered may take once
// the process was told to stop.
const requestDrain = 10 * time.Second

// API serves the REST API until ctx is cancelled.
func API(ctx context.Context, c config.API, log *slog.Logger, functions map[string]function.Module) error {
	p := newProcess(log)
	p.functions = functions
	listener, err := net.Listen("tcp", c.HTTPAddr)
	if err != nil {
		return fmt.Errorf("HTTP_ADDR: %w", err)
	}
	defer listener.Close() // closed by then, unless the start failed
	return p.observed(ctx, c.MetricsAddr(), func(ctx context.Context) error { return p.api(ctx, c, listener, nil) })
}

// api serves on a listener; jobs may reach the endpoints beside what the
// configuration allows.
func (p process) api(ctx context.Context, c config.API, listener net.Listener, endpoints []netip.AddrPort) error {
	p = p.named("api")
	db, hints, err := p.stores(ctx, c.Stores, postgres.Config{Role: postgres.API, Name: "api", MaxConns: apiConns, PerTenant: c.TenantMaxConns})
	if err != nil {
		return err
	}
	defer db.Close()
	defer hints.Close()
	tokens, passes, err := newTokens(c.Tokens, p.log)
	if err != nil {
		return err
	}
	executors, closeExecutors, err := p.executors(c.EgressAllow, endpoints)
	if err != nil {
		return err
	}
	defer closeExecutors()
	ring, err := newRing(c.SecretsKeys)
	if err != nil {
		return err
	}
	buckets, err := ratelimit.New(ratelimit.Config{URL: c.Redis(), Log: p.log})
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	defer buckets.Close()
	programs, backlog := apikey.NewStore(db), tenant.Backlog{Max: c.TenantMaxWaiting, MaxPerJob: c.JobMaxWaiting}
	serve, reload, err := p.handlers(c, listener, rest.Deps{
		Jobs: job.NewStore(db, job.Config{Keys: ring, MaxJobs: c.TenantMaxJobs, Versions: c.VersionsKept, Changed: rest.ChangedFields}), Secrets: secret.NewStore(db, ring), Audit: audit.NewStore(db), Calendars: calendar.NewStore(db, job.Reschedule),
		Executions: execution.NewStore(db, execution.Config{TenantMaxRunning: c.TenantMaxRunning, Backlog: backlog}), Backfills: backfill.NewStore(db, backfill.Config{Months: c.RetentionMonths, Backlog: backlog}), Tenants: tenant.NewStore(db, c.TenantAutoCreate),
		Monitor: statistics.NewStore(db), Numbers: collect.NewStore(db),
		Buckets: buckets, Limits: defaultLimits(c), TrustedProxies: c.TrustedProxies, FailuresPerMinute: c.FailuresPerMin,
		Services: identity.NewPeerTokens(peers(c)...),
		Keys:     programs, Authenticate: programs.Before(tokens.Authenticate), CheckConfig: executors.Validate, CheckParameters: executors.ValidateParameters,
		Hint: hintOne(hints, p.log), Vitals: vitals{db: db, hints: hints, fleet: fleet.NewStore(db), locks: p.leases(db, c.LockTTL), advice: p.advice},
		DefaultTimeout: c.JobTimeout, CursorSecret: []byte(c.Cursors()), Port: portOf(listener), Clock: clock.Now, Log: p.log, Metrics: p.metrics,
	})
	if err != nil {
		return err
	}
	p.ready.add(func() error { return nil }) // it has its own answer, on its own port
	p.log.InfoContext(ctx, "api listens", "address", listener.Addr().String())
	runner := loop.Runner{Metrics: p.metrics, Log: p.log}
	return together(ctx, append(serve, func(ctx context.Context) error { return runner.Run(ctx, append(passes, reload...)) })...)
}

// defaultLimits are those of tenants that have none of their own.
func defaultLimits(c config.API) tenant.Limits {
	limits := tenant.Limits{RequestsPerSecond: &c.TenantRequests}.WithDefaults(tenant.DefaultQuotas())
	if c.TenantMaxJobs > 0 {
		limits.MaxJobs = &c.TenantMaxJobs
	}
	if c.TenantMaxWaiting > 0 {
		limits.MaxWaiting = &c.TenantMaxWaiting
	}
	if c.JobMaxWaiting > 0 {
		limits.MaxWaitingPerJob = &c.JobMaxWaiting
	}
	if c.TenantMaxRunning > 0 {
		limits.MaxRunning = &c.TenantMaxRunning
	}
	return limits
}

// handlers are the servers of the API: one, or two where /internal has an
// address of its own.
func (p process) handlers(c config.API, listener net.Listener, deps rest.Deps) (serve []func(context.Context) error, passes []loop.Pass, err error) {
	var encrypted *tls.Config
	if c.TLSCertFile != "" {
		pair, err := certificate.Open(certificate.Files{Chain: c.TLSCertFile, Key: c.TLSKeyFile, Log: p.log})
		if err != nil {
			return nil, nil, err
		}
		encrypted = pair.Config()
		passes = append(passes, loop.Pass{Name: "reload-certificate", Every: certificate.RefreshEvery, Do: func(ctx context.Context, _ *loop.Turn) error {
			pair.Refresh(ctx)
			return nil
		}})
	}
	sides := map[rest.Side]net.Listener{rest.Whole: listener}
	if c.InternalAddr != "" {
		internal, err := net.Listen("tcp", c.InternalAddr)
		if err != nil {
			return nil, nil, fmt.Errorf("INTERNAL_ADDR: %w", err)
		}
		sides = map[rest.Side]net.Listener{rest.Public: listener, rest.Internal: internal}
	}
	for side, on := range sides {
		deps.Side = side
		handler, err := rest.New(deps)
		if err != nil {
			return nil, nil, err
		}
		serve = append(serve, func(ctx context.Context) error {
			return rest.Serve(ctx, rest.Server{Listener: on, Handler: handler, Log: p.log, TLS: encrypted, Notice: c.ShutdownNotice, Drain: requestDrain})
		})
	}
	return serve, passes, nil
}

// peers are the other services of the platform, those without a name too.
func peers(c config.API) []identity.Peer {
	all := identity.Unnamed(reveal(c.ServiceTokens)...)
	for _, s := range c.Peers() {
		all = append(all, identity.Peer{Name: s.Name, Token: s.Token.Reveal(), Tenants: s.Tenants, Networks: s.Networks, Rate: s.Rate})
	}
	return all
}

func reveal(secrets []config.Secret) []string {
	texts := make([]string, len(secrets))
	for i, secret := range secrets {
		texts[i] = secret.Reveal()
	}
	return texts
}

// newTokens makes the verifier of tokens, with the keys of the auth service
// where it publishes some.
func newTokens(c config.Tokens, log *slog.Logger) (tokens *identity.Tokens, passes []loop.Pass, err error) {
	verify := identity.Config{
		Secret: []byte(c.JWTSecret.Reveal()), Issuer: c.JWTIssuer, Audience: c.JWTAudience,
		MaxLifetime: time.Duration(c.MaxLifetime) * time.Hour, Clock: clock.Now,
	}
	if !c.JWKSURL.IsZero() {
		set := jwks.New(jwks.Config{URL: c.JWKSURL.Reveal(), Log: log})
		verify.Keys = set.Key
		passes = append(passes, loop.Pass{Name: "refresh-keys", Every: jwks.RefreshEvery, Do: func(ctx context.Context, _ *loop.Turn) error {
			return set.Refresh(ctx)
		}})
	}
	if tokens, err = identity.NewTokens(verify); err != nil {
		return nil, nil, fmt.Errorf("JWT_SECRET, JWT_JWKS_URL: %w", err)
	}
	return tokens, passes, nil
}

func portOf(l net.Listener) int {
	_, text, _ := net.SplitHostPort(l.Addr().String())
	port, _ := strconv.Atoi(text) // zero when it is no TCP listener
	return port
}
