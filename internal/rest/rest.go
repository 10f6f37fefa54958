// Package rest is HTTP in and out: the server of openapi.yaml.
//
// It owns the router, the order of what happens to a request, the one table
// from fault to HTTP answer, the translation between the contract's types and
// the domain's, and the listening server. It refuses decisions: what a job may
// be is package job's business, who may ask package identity's, what the
// contract says package contract's.
package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/apikey"
	"github.com/scheduler-service/scheduler/internal/audit"
	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/breaker"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/deadletter"
	replays "github.com/scheduler-service/scheduler/internal/deadletter/replay"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/forecast"
	"github.com/scheduler-service/scheduler/internal/function"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/identity/signin"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/live"
	"github.com/scheduler-service/scheduler/internal/monitor"
	"github.com/scheduler-service/scheduler/internal/monitor/intake"
	"github.com/scheduler-service/scheduler/internal/monitor/past"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/objective"
	"github.com/scheduler-service/scheduler/internal/output"
	"github.com/scheduler-service/scheduler/internal/ratelimit"
	"github.com/scheduler-service/scheduler/internal/remote"
	"github.com/scheduler-service/scheduler/internal/rest/console"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
	"github.com/scheduler-service/scheduler/internal/rest/reference"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/statistics"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
	"github.com/scheduler-service/scheduler/internal/trace"
	"github.com/scheduler-service/scheduler/internal/turn"
	"github.com/scheduler-service/scheduler/web"
)

// base is where the API's paths begin.
const base = "/api/v1/scheduler"

// Deps is what the API is made of. All of it is needed.
type Deps struct {
	Jobs       *job.Store
	Executions *execution.Store
	Output     *output.Store
	Hub        *output.Hub // polls what is followed
	Backfills  *backfill.Store
	Calendars  *calendar.Store
	Secrets    *secret.Store
	Functions  *function.Store
	Audit      *audit.Store
	Tenants    *tenant.Store
	Monitor    *statistics.Store
	Numbers    *collect.Store
	Forecasts  *forecast.Store
	Keys       *apikey.Store
	Callbacks  *callback.Desk
	Remote     *remote.Store // workers of tenants' own
	Claims     *remote.Desk  // and what they claim
	Breakers   *breaker.Store
	Settings   *live.Store // of the installation
	Objectives *objective.Store
	Monitors   *monitor.Store // crons that run elsewhere
	PastRuns   *past.Store    // of monitors
	Pings      *intake.Desk   // and what they tell
	// PublicURL is the address at which the API is reached, without a slash at its end;
	// empty: it is not known.
	PublicURL string

	DeadLetters   *deadletter.Store
	Replays       *replays.Store
	Notifications *notification.Store
	// CheckTarget says whether a URL may be called for a tenant.
	CheckTarget func(*url.URL) error

	// Authenticate reads who asks from a request's header; a failure is
	// Unauthenticated. See identity.Tokens and apikey.Store.
	Authenticate func(ctx context.Context, header http.Header) (identity.Principal, error)
	// SignIn turns a code that is good once into a token for the console; nil: there
	// are no such codes.
	SignIn func(code string) (token string, ok bool)
	// Issuer signs people in to the console; nil: none does. SignInURL is the address of
	// console.SignIn for browsers.
	Issuer    *signin.Client
	SignInURL string
	// Services believes other services of the platform.
	Services *identity.PeerTokens
	// Buckets limit how often somebody may ask.
	Buckets *ratelimit.Buckets
	// Limits are those of tenants that have none of their own; nil ones are no
	// bounds. RequestsPerSecond is needed.
	Limits func() tenant.Limits
	// FailuresPerMinute is how many requests of one address may lack a good
	// token, 1 and more.
	FailuresPerMinute func() int
	// Origins are those from which pages may call, "*" any; none: CORS is off.
	Origins []string
	// TrustedProxies are the networks whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// Side is the part of the contract to serve.
	Side Side
	// CheckConfig lists every fault of a job's config, with paths below
	// "config"; an unknown job type is one at "jobType".
	CheckConfig func(jobType string, config json.RawMessage) []fault.Field
	// HostOf is the host that a job with this config calls, empty where it calls none.
	HostOf func(jobType string, config json.RawMessage) string
	// CheckUse lists the faults of a config that only what the tenant has shows: a
	// function that it names and that is not there.
	CheckUse func(ctx context.Context, who tenant.Actor, jobType string, config json.RawMessage) ([]fault.Field, error)
	// CheckModule says why an uploaded module cannot be run; the text is empty where it
	// can.
	CheckModule func(ctx context.Context, tenant uuid.UUID, digest string, code []byte) (string, error)
	// WellKnown are documents for everybody, as JSON by path, outside the contract.
	WellKnown map[string]json.RawMessage
	// CheckParameters lists every fault of a trigger's overrides, with paths
	// below "parameters".
	CheckParameters func(jobType string, config, parameters json.RawMessage) []fault.Field
	// Hint tells the workers of an execution that waits. It is best effort:
	// without it the execution starts a few seconds later.
	Hint func(ctx context.Context, priority int, id uuid.UUID)
	// CallPromoters tells promoters that a job, or a backfill, is due soon. Without it
	// they hear of that up to two seconds later. nil: nobody is told.
	CallPromoters func(ctx context.Context)
	// Vitals answers the health checks.
	Vitals Vitals

	// DefaultTimeout is the time limit of one attempt of a job that names none,
	// in whole seconds; zero means that of package job.
	DefaultTimeout time.Duration
	// CursorSecret is what the key of list cursors is derived from; the same in
	// every process behind one address. The tokens' secret serves.
	CursorSecret []byte
	// Port is the port that clients reach the API at, for GET /health.
	Port    int
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	// Traces begins the spans of requests; nil: there are none.
	Traces *trace.Tracer
	// Finished is told of executions that a request ended; nil: nobody is.
	Finished func(tenant, execution uuid.UUID)
}

// server is the API. It implements the generated StrictServerInterface in one
// file per group of the contract.
type server struct {
	Deps
	contract *contract.Contract
	heavy    *turn.Limiter // of heavy requests
	cursors  *cursor.Codec
	pinged   goodKeys
	// verifying holds one for each verification of the audit log under way.
	verifying chan struct{}
	health    cached[Health]
	ready     cached[[]string]
	started   time.Time
	running   clock.Mark
}

// referencePage is the same for all APIs of a process.
var referencePage = sync.OnceValues(func() (reference.Files, error) {
	document, err := api.GetSpecJSON()
	if err != nil {
		return nil, fmt.Errorf("read the contract: %w", err)
	}
	return reference.Gather(document)
})

// New makes the handler of the whole contract. It fails if the contract has an
// operation that names no permission.
func New(d Deps) (http.Handler, error) {
	loaded, err := contract.Load()
	if err != nil {
		return nil, fmt.Errorf("rest: %w", err)
	}
	if err := checkOrigins(d.Origins); err != nil {
		return nil, err
	}
	cursors, err := cursor.New(d.CursorSecret)
	if err != nil {
		return nil, fmt.Errorf("rest: %w", err)
	}
	s := &server{Deps: d, contract: loaded, verifying: make(chan struct{}, verifiers), cursors: cursors, started: clock.Now(), running: clock.Start()}
	s.heavy = turn.New(turn.Config{
		All: heavyAll, Each: heavyEach, Spare: heavySpare, Limit: "heavyRequestsAtOnce",
		Message: "of bulk calls, batches, statistics, forecasts, verifications, edits of calendars and backfills, a tenant may have %d under way at once in each API process, which is fixed",
	})
	page, err := referencePage()
	if err != nil {
		return nil, fmt.Errorf("rest: %w", err)
	}
	shown, err := console.Handler(web.Build(), s.noRoute)
	if err != nil {
		return nil, fmt.Errorf("rest: %w", err)
	}
	return s.routes(page.Handler(s.noRoute), shown), nil
}

// publish serves a document that everybody may keep for five minutes.
func publish(document json.RawMessage) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=300")
		_, _ = w.Write(document)
	})
}

// routes is the order of what happens to a request:
//
//  0. bodiless: HEAD is a GET whose body is left out
//  1. identify: the request id, in the answer and in every log line
//     (trace: its span, where there are traces)
//  2. observe: one count and one line per request, once it is answered
//  3. rescue: a panic becomes a 500
//  4. harden: headers that keep answers from being sniffed and kept, the cap of
//     the body, the deadline; cors: pages of admitted origins may read the answer
//  5. the router; an unknown path is a 404, a known one with another method a
//     405, with OPTIONS the list of its methods
//  6. authenticate: who asks (401, or 429 where too many failed from the same
//     address), whether a role allows it (403), whether the tenant may act, from
//     there (403) and so often (429). Nothing of the body was read yet
//  7. negotiate: whether the caller can read the answer, which is JSON (406)
//  8. check: the body as strict JSON, then everything against the contract (400,
//     413, 415), so that handlers see only what it allows
//  9. begin: a heavy request takes its turn among those (429), and each
//     takes its turn at the database from here on
//     (follow: a stream of events is served here, and ends by itself)
//  10. the handler, which may find more to refuse
//  11. present: the whole answer gets its ETag, or is a 304
//
// The page that shows the contract and the console need only the first five; what the
// console does are calls of the API like any other.
func (s *server) routes(page, shown http.Handler) http.Handler {
	router := chi.NewRouter()
	router.Use(s.bodiless, s.identify, s.trace, s.observe, s.rescue, s.harden, s.cors, s.keepSide)
	router.NotFound(s.noRoute)
	router.MethodNotAllowed(s.noMethod(router))
	for _, path := range []string{reference.Path, reference.Path + "/", reference.Path + "/{file}"} {
		router.Method(http.MethodGet, path, page)
	}
	for _, path := range []string{console.Path, console.Path + "/*"} {
		router.Method(http.MethodGet, path, shown)
	}
	for path, document := range s.WellKnown {
		router.Method(http.MethodGet, path, publish(document))
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		router.MethodFunc(method, console.Session, s.consoleSession)
	}
	if s.Issuer != nil {
		router.Get(console.SignIn, s.beginSignIn)
		router.Get(console.Callback, s.finishSignIn)
	}
	router.Group(func(operations chi.Router) {
		operations.Use(s.authenticate, s.negotiate, s.check, s.begin, s.follow, s.present)
		strict := api.NewStrictHandlerWithOptions(s, nil, api.StrictHTTPServerOptions{
			RequestErrorHandlerFunc:  s.refuseUndecoded,
			ResponseErrorHandlerFunc: s.refuse,
		})
		api.HandlerWithOptions(strict, api.ChiServerOptions{BaseRouter: operations, ErrorHandlerFunc: s.refuseUndecoded})
	})
	return router
}

// noRoute says where the contract is, to people and to programs (RFC 8631). Who
// serves /internal alone has no page to show.
func (s *server) noRoute(w http.ResponseWriter, r *http.Request) {
	message := "there is nothing at this path"
	if s.Side != Internal {
		message += ": see what there is at " + reference.Path + "/, and for programs at " + reference.Contract
		w.Header().Set("Link", "<"+reference.Contract+`>; rel="service-desc", <`+reference.Path+`/>; rel="service-doc"`)
	}
	s.refuse(w, r, fault.New(fault.NotFound, fault.CodeNotFound, message))
}

// noMethod answers a known path with another method, and says which ones it
// has; OPTIONS asks for nothing else.
func (s *server) noMethod(router chi.Router) http.HandlerFunc {
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	return func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if r.URL.RawPath != "" {
			path = r.URL.RawPath
		}
		var allowed []string
		for _, method := range methods {
			if router.Match(chi.NewRouteContext(), method, path) {
				allowed = append(allowed, method)
				if method == http.MethodGet {
					allowed = append(allowed, http.MethodHead)
				}
			}
		}
		if len(allowed) == 0 { // a method that nobody knows, somewhere
			s.noRoute(w, r)
			return
		}
		w.Header().Set("Allow", strings.Join(append(allowed, http.MethodOptions), ", "))
		if slices.Contains(allowed, http.MethodPatch) {
			w.Header().Set("Accept-Patch", patchMedia)
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.refuse(w, r, fault.New(fault.Invalid, fault.CodeMethodNotAllowed, "this path has no such method, see the header Allow"))
	}
}
