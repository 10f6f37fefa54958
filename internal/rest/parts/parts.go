// Package parts is what the API is made of.
//
// It owns the types by which a process hands package rest its stores and settings, and
// Front, by which it gets the API. It refuses to know the contract: to read it takes
// 10 ms of the start of a program, and a worker starts itself again, twice for each
// command that a job runs. So package app knows these types, and the programs that
// serve the API hand it the rest.
package parts

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/google/uuid"

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
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/statistics"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
	"github.com/scheduler-service/scheduler/internal/trace"
)

// Front is the API, which package rest makes.
type Front struct {
	// Handler makes the handler of a side of the contract.
	Handler func(Deps) (http.Handler, error)
	// Serve answers requests until its context ends.
	Serve func(context.Context, Server) error
	// ChangedFields names the fields that differ between two definitions.
	ChangedFields func(from, to job.Spec) ([]string, error)
}

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

// Side says which part of the contract a handler serves.
type Side string

// The sides. The rest of the contract is as unknown as any other path.
const (
	Whole    Side = ""
	Public   Side = "public"   // all but /internal
	Internal Side = "internal" // /internal alone
)

// Server says what to serve and how to stop.
type Server struct {
	Listener net.Listener
	Handler  http.Handler
	Log      *slog.Logger
	// Notice is how long GET /health/ready answers 503 before the listener is
	// closed, for load balancers to look elsewhere; zero closes it at once.
	Notice time.Duration
	// Drain bounds how long requests that are being answered may take after
	// that.
	Drain time.Duration
	// TLS, where not nil, is how connections are encrypted.
	TLS *tls.Config
	// MaxConns bounds the connections that are open at once; zero means 10,000.
	MaxConns int
}
