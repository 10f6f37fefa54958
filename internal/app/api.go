package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/apikey"
	"github.com/scheduler-service/scheduler/internal/audit"
	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/breaker"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/catalogue"
	"github.com/scheduler-service/scheduler/internal/certificate"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/deadletter"
	"github.com/scheduler-service/scheduler/internal/deadletter/replay"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor/command"
	"github.com/scheduler-service/scheduler/internal/executor/function"
	remotes "github.com/scheduler-service/scheduler/internal/executor/remote"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
	"github.com/scheduler-service/scheduler/internal/executor/wasm"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/forecast"
	functions "github.com/scheduler-service/scheduler/internal/function"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/identity/jwks"
	"github.com/scheduler-service/scheduler/internal/identity/signin"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/live"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/monitor"
	"github.com/scheduler-service/scheduler/internal/monitor/past"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/objective"
	"github.com/scheduler-service/scheduler/internal/output"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/ratelimit"
	"github.com/scheduler-service/scheduler/internal/remote"
	"github.com/scheduler-service/scheduler/internal/rest/console"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/statistics"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// requestDrain bounds how long requests that are being answered may take once
// the process was told to stop.
const requestDrain = 10 * time.Second

// checkMemory is what the processes may take together that check tenants' code before it
// is stored: two at a time.
const checkMemory = 256 << 20

// API serves the REST API until ctx is cancelled.
func API(ctx context.Context, c config.API, log *slog.Logger, front parts.Front, functions map[string]function.Module) error {
	p := newProcess(log, config.Settings(c))
	p.front, p.functions = front, functions
	listener, err := net.Listen("tcp", c.HTTPAddr)
	if err != nil {
		return fmt.Errorf("HTTP_ADDR: %w", err)
	}
	defer listener.Close() // closed by then, unless the start failed
	p, flush, err := p.traced(ctx, c.Process, "api")
	if err != nil {
		return err
	}
	defer flush()
	return p.observed(ctx, c.MetricsAddr(), func(ctx context.Context) error { return p.api(ctx, c, listener, opening{}) })
}

// opening is what the standalone program opens beside what the configuration allows.
type opening struct {
	endpoints []netip.AddrPort // that jobs may reach
	signIn    func(code string) (token string, ok bool)
}

// api serves on a listener.
func (p process) api(ctx context.Context, c config.API, listener net.Listener, open opening) error {
	p = p.named("api")
	db, hints, err := p.stores(ctx, c.Stores, postgres.Config{Role: postgres.API, Name: "api", MaxConns: apiConns, PerTenant: c.TenantMaxConns})
	if err != nil {
		return err
	}
	defer db.Close()
	defer hints.Close()
	tokens, issuer, passes, err := newTokens(c, p.log)
	if err != nil {
		return err
	}
	ring, err := newRing(c.SecretsKeys)
	if err != nil {
		return err
	}
	p = p.callbacksIn(c.PublicURL, ring)
	executors, learns, err := p.checkers(c, db, open)
	if err != nil {
		return err
	}
	defer executors.close()
	hub, programs, uploaded, workers, roots := output.NewHub(db), apikey.NewStore(db), functions.NewStore(db), remote.NewStore(db), p.roots(db)
	desks, err := p.desks(ctx, c, hints, ring, roots.Finished)
	if err != nil {
		return err
	}
	defer desks.close()
	buckets, err := ratelimit.New(ratelimit.Config{URL: c.Redis(), Log: p.log, Spans: p.traces != nil})
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	defer buckets.Close()
	if c.Redis() != "" {
		p.metrics.WatchPool("redis", "scheduler-api-rate-limits", func() (pool telemetry.Pool) {
			pool.InUse, pool.Max, pool.Timeouts = buckets.Connections()
			return pool
		})
	}
	serve, reload, err := p.handlers(c, listener, parts.Deps{
		Jobs: job.NewStore(db, job.Config{Keys: ring, MaxJobs: p.live.Int("TENANT_MAX_JOBS"), Versions: p.live.Int("JOB_VERSIONS_KEPT"), Changed: p.front.ChangedFields}), Secrets: secret.NewStore(db, ring), Audit: audit.NewStore(db), Calendars: calendar.NewStore(db, job.Reschedule),
		Executions: execution.NewStore(db, execution.Config{TenantMaxRunning: p.live.Int("TENANT_MAX_RUNNING"), Backlog: p.backlog(), Spans: p.spans()}), Output: output.NewStore(db), Hub: hub, Backfills: backfill.NewStore(db, backfill.Config{Kept: p.term(), Backlog: p.backlog()}), Tenants: tenant.NewStore(db, c.TenantAutoCreate),
		DeadLetters: deadletter.NewStore(db), Replays: replay.NewStore(db), Notifications: notification.NewStore(db, ring), CheckTarget: checkTarget(executors.Validate),
		Monitor: statistics.NewStore(db), Numbers: collect.NewStore(db), Forecasts: forecast.NewStore(db),
		Buckets: buckets, Limits: p.defaultLimits(), Origins: c.CORSOrigins, TrustedProxies: c.TrustedProxies, FailuresPerMinute: p.live.Int("AUTH_FAILURES_PER_MINUTE"),
		Services:  identity.NewPeerTokens(peers(c)...),
		Callbacks: desks.callbacks, Breakers: breaker.NewStore(db), Settings: live.NewStore(db, p.live), Objectives: objective.NewStore(db), Monitors: monitor.NewStore(db), PastRuns: past.NewStore(db), Pings: desks.pings, PublicURL: strings.TrimSuffix(c.PublicURL.Reveal(), "/"), Claims: desks.claims, Remote: workers,
		Keys: programs, Authenticate: programs.Before(tokens.Authenticate), SignIn: open.signIn, Issuer: issuer, SignInURL: atConsole(c, console.SignIn), CheckConfig: executors.Validate, CheckParameters: executors.ValidateParameters,
		CheckUse: checkUse(uploaded, workers), CheckModule: executors.modules.CheckModule, Functions: uploaded, HostOf: executors.HostOf, WellKnown: executors.documents,
		Hint: hintOne(hints, p.log), CallPromoters: caller(hints, queue.CallDue), Vitals: vitals{db: db, hints: hints, fleet: fleet.NewStore(db), locks: p.leases(db, c.LockTTL), advice: p.advice},
		DefaultTimeout: c.JobTimeout, CursorSecret: []byte(c.Cursors()), Port: portOf(listener), Clock: clock.Now, Log: p.log, Metrics: p.metrics, Traces: p.traces, Finished: roots.Finished,
	})
	if err != nil {
		return err
	}
	p.ready.add(func() error { return nil }) // it has its own answer, on its own port
	p.log.InfoContext(ctx, "api listens", "address", listener.Addr().String())
	runner, every := loop.Runner{Metrics: p.metrics, Log: p.log}, append(append(passes, learns, hub.Pass(), desks.claims.Pass(), p.live.Pass(db)), reload...)
	return together(ctx, append(serve, desks.listen, takesPings(desks.pings, c), roots.Run, func(ctx context.Context) error { return runner.Run(ctx, every) })...)
}

// checkers are the job types, for checking definitions alone, and the pass by which they
// learn what functions workers have.
func (p process) checkers(c config.API, db *postgres.DB, open opening) (jobTypes, loop.Pass, error) {
	published := catalogue.NewKnown(catalogue.NewStore(db))
	all, err := p.executors(executorConfig{
		publicURL: c.PublicURL, oidcKeys: c.OIDCKeys, published: published, commands: command.NewChecker(checksCommands(c.Commands)), egress: egress.Config{Allow: c.EgressAllow, Endpoints: open.endpoints},
		runners: runner.Config{Memory: checkMemory, CacheDir: c.RunnerCacheDir},
	})
	return all, loop.Pass{Name: "refresh-functions", Every: catalogue.RefreshEvery, Do: func(ctx context.Context, _ *loop.Turn) error {
		return published.Refresh(ctx)
	}}, err
}

// checkUse asks for the functions that jobs name.
func checkUse(uploaded *functions.Store, workers *remote.Store) func(context.Context, tenant.Actor, string, json.RawMessage) ([]fault.Field, error) {
	return func(ctx context.Context, who tenant.Actor, jobType string, config json.RawMessage) ([]fault.Field, error) {
		switch jobType {
		case remotes.Type:
			return workers.Check(ctx, who, config)
		case "wasm":
		default:
			return nil, nil
		}
		s, faults := wasm.Parse(config)
		if len(faults) > 0 {
			return faults, nil
		}
		return uploaded.Has(ctx, who, s.Function, s.Version)
	}
}

// handlers are the servers of the API: one, or two where /internal has an
// address of its own.
func (p process) handlers(c config.API, listener net.Listener, deps parts.Deps) (serve []func(context.Context) error, passes []loop.Pass, err error) {
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
	sides := map[parts.Side]net.Listener{parts.Whole: listener}
	if c.InternalAddr != "" {
		internal, err := net.Listen("tcp", c.InternalAddr)
		if err != nil {
			return nil, nil, fmt.Errorf("INTERNAL_ADDR: %w", err)
		}
		sides = map[parts.Side]net.Listener{parts.Public: listener, parts.Internal: internal}
	}
	for side, on := range sides {
		deps.Side = side
		handler, err := p.front.Handler(deps)
		if err != nil {
			return nil, nil, err
		}
		serve = append(serve, func(ctx context.Context) error {
			return p.front.Serve(ctx, parts.Server{Listener: on, Handler: handler, Log: p.log, TLS: encrypted, Notice: c.ShutdownNotice, Drain: requestDrain})
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
// where it publishes some, and what signs people in there.
func newTokens(c config.API, log *slog.Logger) (tokens *identity.Tokens, issuer *signin.Client, passes []loop.Pass, err error) {
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
		return nil, nil, nil, fmt.Errorf("JWT_SECRET, JWT_JWKS_URL: %w", err)
	}
	if !c.SignInIssuer.IsZero() {
		issuer, err = signin.New(signin.Config{
			Issuer: c.SignInIssuer.Reveal(), ClientID: c.ClientID, ClientSecret: c.ClientSecret.Reveal(), Scopes: strings.Join(strings.Fields(c.SignInScopes), " "),
			RedirectURL: atConsole(c, console.Callback), SignedOutURL: atConsole(c, console.Path+"/"), Keys: verify.Keys, Secret: []byte(c.Cursors()), Clock: clock.Now,
		})
	}
	return tokens, issuer, passes, err
}

// atConsole is the address of a page for browsers.
func atConsole(c config.API, path string) string {
	return strings.TrimSuffix(c.PublicURL.Reveal(), "/") + path
}

func portOf(l net.Listener) int {
	_, text, _ := net.SplitHostPort(l.Addr().String())
	port, _ := strconv.Atoi(text) // zero when it is no TCP listener
	return port
}
