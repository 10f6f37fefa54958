package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/ratelimit"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
	"github.com/scheduler-service/scheduler/internal/trace"
	"github.com/scheduler-service/scheduler/internal/turn"
)

const (
	// patience bounds a request's work, so that it ends before the connection's
	// write time-out and the client learns why.
	patience = 15 * time.Second
)

// call is what is known of one request, filled in on its way to the handler.
type call struct {
	id        string
	method    string
	url       *url.URL
	operation *contract.Operation // nil where no route was found
	who       identity.Principal
	attempt   callback.Attempt // that a callback's token names
	from      netip.Addr       // the caller's address; the zero one is not known
	gone      <-chan struct{}  // closed when the caller hangs up
	origin    string           // of the page that calls; empty: none does
	tenant    tenant.Tenant    // that the request is judged by
	announced int64            // bytes of the body, as its header says; -1: not said
	body      [32]byte         // SHA-256 of the body as it was sent
	sentBack  contract.SentBack
	refused   string // the kind of fault that it was answered with
}

// callKey is the key of the call in a request's context.
type callKey struct{}

// callOf is the call that a context belongs to. Every context that a handler
// sees has one, because identify is the first thing that happens.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// saneID is what a caller's request id may be: it goes into logs and headers.
var saneID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func (s *server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{id: r.Header.Get("X-Request-Id"), method: r.Method, url: r.URL, from: clientOf(r, s.TrustedProxies), gone: r.Context().Done(), origin: r.Header.Get("Origin"), announced: r.ContentLength}
		if !saneID.MatchString(c.id) {
			c.id = uuid.NewString()
		}
		w.Header().Set("X-Request-Id", c.id)
		ctx := telemetry.WithIDs(context.WithValue(r.Context(), callKey{}, c), telemetry.IDs{Request: c.id})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// trace makes a span of each request, named after its operation. Probes have none, nor what
// they ask the database; and for pages and paths that do not exist it does not end, and so
// is not sent.
func (s *server) trace(next http.Handler) http.Handler {
	if s.Traces == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/health") {
			next.ServeHTTP(w, r)
			return
		}
		ctx, span := s.Traces.Request(r.Context(), r.Header)
		if span == nil {
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		ctx = telemetry.WithIDs(ctx, telemetry.IDs{Trace: trace.ID(ctx)})
		seen, r := middleware.NewWrapResponseWriter(w, r.ProtoMajor), r.WithContext(ctx)
		next.ServeHTTP(seen, r)
		c := callOf(ctx)
		if c.operation == nil || c.operation.Permission == contract.Public {
			return
		}
		span.Rename(c.operation.ID)
		span.Set(slog.String("http.request.method", r.Method), slog.String("http.route", chi.RouteContext(ctx).RoutePattern()), slog.String("scheduler.request_id", c.id),
			slog.String("scheduler.tenant_id", c.who.Actor.TenantID.String()))
		span.Answered(seen.Status())
		span.End()
	})
}

// observe counts each request under its operation, never under its path, of
// which callers can make as many as they like.
func (s *server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := clock.Start()
		seen := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(seen, r)

		c, took, operation, outcome := callOf(r.Context()), began.Elapsed(), "unknown", "ok"
		if c.operation != nil {
			operation = c.operation.ID
		}
		switch {
		case seen.Status() >= http.StatusInternalServerError:
			outcome = "error"
		case seen.Status() >= http.StatusBadRequest:
			outcome = "refused"
		}
		s.Metrics.Operation(operation, outcome, took)
		if c.refused != "" {
			s.Metrics.Failure(operation, c.refused)
		}
		s.Log.DebugContext(r.Context(), "request answered", "operation", operation, "method", r.Method,
			"status", seen.Status(), "bytes", seen.BytesWritten(), "duration_ms", float64(took.Microseconds())/1000)
	})
}

func (s *server) rescue(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if cause := recover(); cause != nil {
				s.refuse(w, r, fmt.Errorf("panic: %v\n%s", cause, debug.Stack()))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *server) harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if r.TLS != nil { // without it browsers would ignore the header (RFC 6797, section 8.1)
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// authenticate lets a request through whose caller may do what it asks for.
func (s *server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, route := callOf(r.Context()), chi.RouteContext(r.Context())
		if slices.Contains(route.URLParams.Values, "") {
			s.noRoute(w, r) // chi takes jobs//pause for a job without an id
			return
		}
		operation, ok := s.contract.Operation(r.Method, route.RoutePattern())
		if !ok {
			s.refuse(w, r, errors.New("a route is not in the contract"))
			return
		}
		if c.operation = operation; operation.Permission == contract.Public {
			next.ServeHTTP(w, r)
			return
		}
		if operation.Permission == contract.Callback {
			if err := s.admitCallback(r, c); err != nil {
				s.refuse(w, r, err)
				return
			}
			next.ServeHTTP(w, callbackContext(r, c))
			return
		}
		if operation.Permission == contract.Ping {
			if err := s.admitPing(r, c); err != nil {
				s.refuse(w, r, err)
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		who, err := s.identity(r, operation)
		if c.who = who; who.Actor.TenantID != uuid.Nil {
			r = r.WithContext(record(telemetry.WithIDs(r.Context(), telemetry.IDs{Tenant: who.Actor.TenantID.String()}), r, c))
		}
		if err == nil {
			err = s.mayAct(r.Context(), c, w.Header())
		}
		if err != nil {
			s.denied(r.Context(), c, err)
			s.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

const (
	// heavyEach is how many heavy requests (x-heavy in the contract) of one tenant
	// are under way in this process, and heavyAll how many of all: each may hold
	// one connection to the database for long, and a tenant's ordinary requests
	// find others.
	heavyEach = 4
	heavyAll  = 12
	// heavySpare is how many of all a tenant gets that has none: with four of each,
	// three tenants would have them all.
	heavySpare = 4
)

// begin makes the rest of a request take turns at the database, as one request;
// of a heavy one, once it has its turn among those. It stands after check: one
// whose body is slow to arrive needs nothing yet.
func (s *server) begin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		if c.operation.Heavy {
			give, err := s.heavy.Acquire(r.Context(), c.tenant.ID.String())
			if err != nil {
				s.refuse(w, r, err)
				return
			}
			defer give()
		}
		next.ServeHTTP(w, r.WithContext(turn.Begin(r.Context(), c.operation.Heavy)))
	})
}

const tooManyGuesses = "too many requests from this address had no good token"

// guesses is where the failures of a request's address are counted, and how many it may have.
func (s *server) guesses(r *http.Request) (bucket string, failures ratelimit.Rate) {
	return "auth:" + guesser(callOf(r.Context()).from), ratelimit.Rate{Requests: max(1, s.FailuresPerMinute()), Window: time.Minute}
}

// identity says who asks: another service where the operation is for those,
// and otherwise the bearer of a token. Neither way in opens the other. From an
// address with too many failures, those are heard whose token is judged without the
// database, or was good before: bad tokens delay no good one beside them.
func (s *server) identity(r *http.Request, operation *contract.Operation) (who identity.Principal, err error) {
	c := callOf(r.Context())
	bucket, failures := s.guesses(r)
	wait := s.Buckets.Refused(bucket)
	if wait > 0 && operation.Permission != contract.Service && s.Keys.Costs(r.Header) {
		return who, s.tooMany(failures, "authenticationFailures", wait, tooManyGuesses)
	}
	if operation.Permission == contract.Service {
		who, err = s.Services.Authenticate(r.Header, c.from)
	} else {
		who, err = s.Authenticate(r.Context(), r.Header)
	}
	switch {
	case fault.KindOf(err) != fault.Unauthenticated:
		return who, err
	case wait > 0:
		return who, s.tooMany(failures, "authenticationFailures", wait, tooManyGuesses)
	}
	if v := s.Buckets.Take(r.Context(), bucket, failures); !v.OK {
		return who, s.tooMany(failures, "authenticationFailures", v.Retry, tooManyGuesses)
	}
	return who, err
}

// mayAct asks for the permission first: somebody without any must not make a
// tenant come to life. Other services act for tenants without being them, so
// their calls count for none.
func (s *server) mayAct(ctx context.Context, c *call, answer http.Header) (err error) {
	service := c.operation.Permission == contract.Service
	if !service && !c.who.May(identity.Permission(c.operation.Permission)) {
		return fault.New(fault.Forbidden, fault.CodeForbidden, "this needs the permission "+c.operation.Permission+", which your token or key does not have")
	}
	c.who.Actor.NoSecrets = !service && !c.who.May("secrets:use")
	// A header names a tenant easily by mistake, a token was made for one: calls of
	// other services bring no tenant to life.
	known := s.Tenants.Terms
	if service {
		known = s.Tenants.Known
	}
	if c.tenant, err = known(ctx, c.who.Actor.TenantID); fault.KindOf(err) == fault.Forbidden && identity.Permission(c.operation.Permission).OfPlatform() {
		// A platform administrator creates the first tenant, and activates his own.
		c.tenant, err = tenant.Tenant{ID: c.who.Actor.TenantID}, nil
	}
	if err != nil {
		return err
	}
	c.tenant.Limits = c.tenant.Limits.WithDefaults(s.Limits())
	if service {
		return s.mayServe(ctx, c)
	}
	if !c.tenant.Admits(c.from) {
		return fault.New(fault.Forbidden, fault.CodeForbidden, "calls of this tenant may not come from this address")
	}
	if err := fromOrigin(c, answer); err != nil {
		return err
	}
	return s.mayAsk(ctx, c, answer)
}

// mayServe counts a call of a service that has a rate.
func (s *server) mayServe(ctx context.Context, c *call) error {
	peer := c.who.Peer
	if peer.Rate == 0 {
		return nil
	}
	rate := ratelimit.Rate{Requests: peer.Rate, Window: time.Second}
	if v := s.Buckets.Take(ctx, "service:"+peer.Name, rate); !v.OK {
		return s.tooMany(rate, "serviceRequestsPerSecond", v.Retry, fmt.Sprintf("this service may make %d calls a second (SERVICE_TOKENS, which the operator sets)", peer.Rate))
	}
	return nil
}

// mayAsk counts a request of a tenant, and before that, so that what is refused
// costs the tenant nothing, of the API key that makes it. The answer's header
// says how many are left (draft-ietf-httpapi-ratelimit-headers).
func (s *server) mayAsk(ctx context.Context, c *call, answer http.Header) error {
	whole := max(1, orZero(c.tenant.Limits.RequestsPerSecond))
	bounds := []bound{{"tenant", "tenant:" + c.tenant.ID.String(), "requestsPerSecond", whole, "this tenant may make %d requests a second"}}
	if c.who.Key != uuid.Nil {
		bounds = slices.Insert(bounds, 0, bound{
			"key", "key:" + c.who.Key.String(), "keyRequestsPerSecond", max(1, whole*keyShare/100),
			"of this tenant's requests a second, one API key may make %d",
		})
	}
	for _, b := range bounds {
		rate := ratelimit.Rate{Requests: b.rate, Window: time.Second, Cost: c.cost()}
		v := s.Buckets.Take(ctx, b.bucket, rate)
		answer.Add("RateLimit-Policy", fmt.Sprintf(`%q;q=%d;w=1`, b.policy, b.rate))
		var err *fault.Error
		reset := v.Reset
		if !v.OK {
			err = s.tooMany(rate, b.limit, v.Retry, fmt.Sprintf(b.message, b.rate))
			reset = err.RetryAfter // what Retry-After and resetAt say
		}
		answer.Add("RateLimit", fmt.Sprintf(`%q;r=%d;t=%d`, b.policy, v.Remaining, wholeSeconds(reset)))
		if err != nil {
			return err
		}
	}
	return nil
}

// bytesOfRequest is how much of a body one request of a tenant's rate pays for.
// PostgreSQL compresses, logs and keeps every byte of a definition, also in its
// version and in the audit log: 50 clients that changed jobs of 100 kB took
// both cores.
const bytesOfRequest = 4096

// cost is how many requests of its tenant's rate a call counts for.
func (c *call) cost() int {
	size := int64(c.operation.MaxBody)
	if c.announced >= 0 {
		size = min(c.announced, size)
	}
	return 1 + int(size/bytesOfRequest)
}

// keyShare is how much of a tenant's requests one API key may make, in percent:
// beside a program that asks without end, people can still look and revoke its
// key.
const keyShare = 80

// bound is how often somebody may ask in a second.
type bound struct {
	policy, bucket, limit string
	rate                  int
	message               string // with the rate
}

// tooMany is the answer to who asks too often.
func (s *server) tooMany(rate ratelimit.Rate, name string, wait time.Duration, message string) *fault.Error {
	now := s.Clock()
	e := fault.Exceeded(fault.Limit{Name: name, Value: int64(rate.Requests), Reset: now.Add(wait)}, message, now)
	e.Code = fault.CodeRateLimited
	return e
}
