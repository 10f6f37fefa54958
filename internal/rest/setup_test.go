package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/apikey"
	"github.com/scheduler-service/scheduler/internal/audit"
	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/breaker"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/deadletter"
	"github.com/scheduler-service/scheduler/internal/deadletter/replay"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/forecast"
	"github.com/scheduler-service/scheduler/internal/function"
	"github.com/scheduler-service/scheduler/internal/hint"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/live"
	"github.com/scheduler-service/scheduler/internal/monitor"
	"github.com/scheduler-service/scheduler/internal/monitor/past"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/objective"
	"github.com/scheduler-service/scheduler/internal/output"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/ratelimit"
	"github.com/scheduler-service/scheduler/internal/remote"
	"github.com/scheduler-service/scheduler/internal/rest"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	secrets "github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/statistics"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) {
	if code, done := sandbox.Main(os.Args, runner.Entries()); done {
		os.Exit(code)
	}
	os.Exit(pgtest.Main(m))
}

const (
	base   = "/api/v1/scheduler"
	issuer = "https://auth.example.com"
	// webhook is a definition that nothing is wrong with.
	webhook = `{"name":"report","cronExpression":"0 0 9 * * 1-5","timezone":"Asia/Shanghai","jobType":"http","config":{"url":"https://example.com/"}}`
)

// The tokens of other services: the one in use, and the one that follows it.
const (
	serviceToken = "s8Jq2ZbX5nWc7RtLk0PfVd3HgMy6TaUe"
	nextToken    = "nE4xK9wQ1rB7vC0zY5tG8hJ2mF6pL3sD"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

// vitals answers the health checks as a test says.
type vitals struct {
	mu      sync.Mutex
	health  parts.Health
	reasons []string
	asked   int
}

func (v *vitals) Health(context.Context) parts.Health {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked++
	return v.health
}

func (v *vitals) Ready(context.Context) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked++
	return v.reasons
}

// bundle is an API on a database of its own, with two tenants.
type bundle struct {
	deps       parts.Deps
	handler    http.Handler
	spec       *openapi3.T
	database   *pgtest.Database
	db         *postgres.DB
	engine     *postgres.DB
	keys       *keyring.Ring
	jobs       *job.Store
	executions *execution.Store
	backfills  *backfill.Store
	vitals     *vitals
	log        *bytes.Buffer
	now        time.Time
	ours       tenant.Actor
	theirs     tenant.Actor
	buckets    *ratelimit.Buckets
	limits     tenant.Limits
	hinted     []uuid.UUID
	called     *atomic.Int64 // calls for promoters
	refuse     []fault.Field // what the job type finds wrong with parameters
}

// setup makes an API; change may alter what it is made of.
func setup(t testing.TB, change ...func(*parts.Deps)) *bundle {
	t.Helper()
	database := pgtest.New(t)
	b := &bundle{
		called: new(atomic.Int64),
		vitals: &vitals{health: parts.Health{Database: well, Redis: well, JobQueue: well, Services: well}}, log: &bytes.Buffer{}, now: clock.Now(),
		ours:     tenant.Actor{TenantID: uuid.New(), Subject: "ada"},
		theirs:   tenant.Actor{TenantID: uuid.New(), Subject: "eve"},
		database: database, db: open(t, database.URL, postgres.API), engine: open(t, database.URL, postgres.Engine),
	}
	var err error
	if b.keys, err = keyring.Parse(keyring.Generate("k1")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.engine.Pool().Exec(t.Context(), "SELECT create_job_executions_partition(now())"); err != nil {
		t.Fatal(err)
	}
	b.jobs, b.executions, b.backfills = job.NewStore(b.db, job.Config{Keys: b.keys, Changed: rest.ChangedFields}), execution.NewStore(b.db, execution.Config{}), backfill.NewStore(b.db, backfill.Config{Kept: func() partition.Term { return partition.Term{Months: 13} }})
	now := func() time.Time { return b.now }
	tokens, err := identity.NewTokens(identity.Config{Secret: secret, Issuer: issuer, Audience: "scheduler", Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	keys := apikey.NewStore(b.db)
	b.buckets, b.limits = newBuckets(t), tenant.Limits{RequestsPerSecond: ptr(1_000_000)}.WithDefaults(tenant.DefaultQuotas())
	b.deps = parts.Deps{
		Keys: keys, Services: identity.NewPeerTokens(identity.Unnamed(serviceToken, nextToken)...), Buckets: b.buckets, Limits: func() tenant.Limits { return b.limits }, FailuresPerMinute: func() int { return 1_000_000 },
		Jobs: b.jobs, Secrets: secrets.NewStore(b.db, b.keys), Audit: audit.NewStore(b.db), Calendars: calendar.NewStore(b.db, job.Reschedule), Executions: b.executions, Backfills: b.backfills, Output: output.NewStore(b.db), Hub: output.NewHub(b.db), Tenants: tenant.NewStore(b.db, true), Monitor: statistics.NewStore(b.db), Numbers: collect.NewStore(b.db), Forecasts: forecast.NewStore(b.db),
		DeadLetters: deadletter.NewStore(b.db), Replays: replay.NewStore(b.db), Notifications: notification.NewStore(b.db, b.keys), CheckTarget: func(target *url.URL) error {
			if target.Scheme != "https" {
				return errors.New("only https here")
			}
			return nil
		},
		Authenticate: keys.Before(tokens.Authenticate), CheckConfig: checkConfig, CheckUse: usesNothing, CheckModule: anyModule, Functions: function.NewStore(b.db), Breakers: breaker.NewStore(b.db), Objectives: objective.NewStore(b.db), Monitors: monitor.NewStore(b.db), PastRuns: past.NewStore(b.db), Pings: newDesk(t, b.engine), PublicURL: "https://scheduler.example.com", Settings: live.NewStore(b.db, live.New(config.Settings(config.API{}), slog.New(slog.DiscardHandler))),
		CheckParameters: func(string, json.RawMessage, json.RawMessage) []fault.Field { return b.refuse },
		HostOf:          func(string, json.RawMessage) string { return "" },
		Hint: func(ctx context.Context, _ int, id uuid.UUID) {
			if deadline, ok := ctx.Deadline(); !ok || deadline.Sub(clock.Now()) > time.Second {
				t.Error("a trigger waits for the hint for more than a second")
			}
			b.hinted = append(b.hinted, id)
		},
		CallPromoters: func(context.Context) { b.called.Add(1) },
		Vitals:        b.vitals, CursorSecret: secret, Port: 3009, Clock: now,
		Log:     telemetry.NewLogger(b.log, slog.LevelDebug, false),
		Metrics: telemetry.NewMetrics(telemetry.NewRegistry()),
	}
	b.deps.Callbacks = callback.New(callback.Config{
		DB: b.engine, Hints: hint.New(hint.Config{DB: b.engine, Queue: unsent{}, Log: b.deps.Log}), Metrics: b.deps.Metrics, Log: b.deps.Log, Keys: b.keys,
	})
	b.deps.Remote = remote.NewStore(b.db)
	b.deps.Claims = remote.NewDesk(remote.Config{DB: b.engine, Keys: b.keys, Callbacks: b.deps.Callbacks, Metrics: b.deps.Metrics, Log: b.deps.Log})
	for _, alter := range change {
		alter(&b.deps)
	}
	if b.handler, err = rest.New(b.deps); err != nil {
		t.Fatal(err)
	}
	b.spec = described(t)
	return b
}

// The contract as it stands, which no test changes.
var readContract = sync.OnceValues(api.GetSpec)

func described(t testing.TB) *openapi3.T {
	t.Helper()
	spec, err := readContract()
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// newBuckets are buckets without Redis.
func newBuckets(t testing.TB) *ratelimit.Buckets {
	t.Helper()
	buckets, err := ratelimit.New(ratelimit.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return buckets
}

func ptr[T any](value T) *T { return &value }

func open(t testing.TB, url string, role postgres.Role) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: url, Role: role, Name: "test", MaxConns: 12, PerTenant: 6, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// usesNothing stands in for what asks for functions that jobs name.
func usesNothing(context.Context, tenant.Actor, string, json.RawMessage) ([]fault.Field, error) {
	return nil, nil
}

// anyModule stands in for the compiler.
func anyModule(_ context.Context, _ uuid.UUID, _ string, code []byte) (string, error) {
	if string(code) == "broken" {
		return "is broken", nil
	}
	return "", nil
}

// checkConfig stands in for the executors: both job types need one text, and
// know no other field.
func checkConfig(jobType string, config json.RawMessage) []fault.Field {
	needed, known := "url", []string{"url", "method", "body"}
	switch jobType {
	case "http":
	case "remote":
		needed, known = "functionName", []string{"functionName", "parameters"}
	case "function":
		needed, known = "functionName", []string{"functionName", "modulePath", "parameters"}
	default:
		return []fault.Field{{Path: "jobType", Rule: "enum", Message: "is not available here"}}
	}
	object := executor.ReadObject("config", config, known...)
	var text string
	if !object.Read(needed, &text, "a text") {
		object.Fault(needed, "required", "is missing")
	}
	return object.Faults()
}

// token is a good token of an actor with roles.
func (b *bundle) token(t testing.TB, who tenant.Actor, roles ...identity.Role) string {
	t.Helper()
	token, err := identity.Mint(secret, identity.Claims{
		Subject: who.Subject, Tenant: who.TenantID, Roles: roles, Issuer: issuer, Audience: "scheduler",
	}, b.now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// request is one call of the API. An empty token sends none.
type request struct {
	method, path, token, body string
	header                    map[string]string
}

// answer is what came of it.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request and demands that the contract describes the answer.
func (b *bundle) do(t testing.TB, r request) answer {
	t.Helper()
	got := b.send(r)
	if problem := b.undocumented(r, got); problem != "" {
		t.Errorf("%s %s: %s\nanswer: %d %s", r.method, r.path, problem, got.status, got.body)
	}
	return got
}

func (b *bundle) send(r request) answer { return b.sendWith(context.Background(), r) }

func (b *bundle) sendWith(ctx context.Context, r request) answer {
	sent := httptest.NewRequestWithContext(ctx, r.method, "http://localhost"+r.path, strings.NewReader(r.body))
	if r.body != "" {
		sent.Header.Set("Content-Type", "application/json")
	}
	if r.token != "" {
		sent.Header.Set("Authorization", "Bearer "+r.token)
	}
	for name, value := range r.header {
		sent.Header.Set(name, value)
	}
	recorder := httptest.NewRecorder()
	b.handler.ServeHTTP(recorder, sent)
	return answer{status: recorder.Code, header: recorder.Result().Header, body: recorder.Body.String()}
}

// tagged says whether an answer has the ETag of a version, with the digest of
// what is shown.
func tagged(got answer, version int) bool {
	return regexp.MustCompile(`^"` + strconv.Itoa(version) + `\.[0-9a-f]{16}"$`).MatchString(got.header.Get("ETag"))
}

// undocumented says in what way an answer is not as the contract describes it.
func (b *bundle) undocumented(r request, got answer) string {
	path, _, _ := strings.Cut(r.path, "?")
	route := b.route(r.method, path)
	if route == nil {
		if got.status == http.StatusNotFound || got.status == http.StatusMethodNotAllowed {
			return ""
		}
		return "the contract has no such operation"
	}
	sent := httptest.NewRequest(r.method, "http://localhost/", nil)
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: sent, Route: route},
		Status:                 got.status, Header: got.header, Body: io.NopCloser(strings.NewReader(got.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil {
		return err.Error()
	}
	return ""
}

// route finds the contract's operation of a path; of two that fit, the one with
// fewer parameters.
func (b *bundle) route(method, path string) *routers.Route {
	var found *routers.Route
	for template, item := range b.spec.Paths.Map() {
		want, have := strings.Split(template, "/"), strings.Split(path, "/")
		same := len(want) == len(have)
		for i := 0; same && i < len(want); i++ {
			same = want[i] == have[i] || strings.HasPrefix(want[i], "{") && have[i] != ""
		}
		operation := item.GetOperation(method)
		if same && operation != nil && (found == nil || strings.Count(template, "{") < strings.Count(found.Path, "{")) {
			found = &routers.Route{Spec: b.spec, Path: template, PathItem: item, Method: method, Operation: operation}
		}
	}
	return found
}

// makeJob stores a job without the API.
func (b *bundle) makeJob(t testing.TB, who tenant.Actor) job.Job {
	t.Helper()
	if err := tenant.NewStore(b.db, true).Admit(t.Context(), who.TenantID); err != nil {
		t.Fatal(err)
	}
	made, _, err := b.jobs.Create(t.Context(), who, job.Spec{
		Name: "stored", Type: "http", Config: json.RawMessage(`{"url":"https://example.com/"}`), Retry: job.DefaultRetry(),
		Policy: job.Policy{CronExpression: "0 0 0 1 1 *"},
	}.WithDefaults(), idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// makeCalendar stores a calendar without the API.
func (b *bundle) makeCalendar(t *testing.T, who tenant.Actor, days ...calendar.Day) calendar.Calendar {
	t.Helper()
	if err := tenant.NewStore(b.db, true).Admit(t.Context(), who.TenantID); err != nil {
		t.Fatal(err)
	}
	ranges, fields := calendar.ReadDays(days)
	if len(fields) > 0 {
		t.Fatal(fields)
	}
	made, _, err := b.deps.Calendars.Create(t.Context(), who, calendar.Spec{Name: uuid.NewString(), Timezone: "UTC", Days: ranges}, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// makeSecret stores a secret without the API.
func (b *bundle) makeSecret(t testing.TB, who tenant.Actor, name, value string) {
	t.Helper()
	if err := tenant.NewStore(b.db, true).Admit(t.Context(), who.TenantID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.deps.Secrets.Put(t.Context(), who, secrets.Draft{Name: name, Value: keyring.NewText(value)}); err != nil {
		t.Fatal(err)
	}
}

// makeKey stores an API key without the API.
func (b *bundle) makeKey(t testing.TB, who tenant.Actor, scopes ...identity.Permission) (apikey.Key, string) {
	t.Helper()
	if err := tenant.NewStore(b.db, true).Admit(t.Context(), who.TenantID); err != nil {
		t.Fatal(err)
	}
	made, text, err := b.deps.Keys.Create(t.Context(), who, apikey.Spec{Name: "stored", Scopes: scopes})
	if err != nil {
		t.Fatal(err)
	}
	return made, text
}

// makeExecution triggers a job without the API.
func (b *bundle) makeExecution(t *testing.T, who tenant.Actor, of uuid.UUID) execution.Execution {
	t.Helper()
	made, _, err := b.executions.Trigger(t.Context(), who, of, nil, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// makeBackfill asks for the last scheduled time of a job of makeJob, without the API.
func (b *bundle) makeBackfill(t testing.TB, who tenant.Actor, of uuid.UUID) backfill.Backfill {
	t.Helper()
	year := time.Date(b.now.UTC().Year(), 1, 1, 0, 0, 0, 0, time.UTC)
	made, _, err := b.backfills.Create(t.Context(), who, of, backfill.Request{From: year, To: year.Add(time.Second)}, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// stored counts the rows of all that a request could write.
func (b *bundle) stored(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, table := range []string{"scheduled_jobs", "active_executions", "job_executions", "idempotency_keys", "calendars", "api_keys", "secrets", "job_credentials", "functions"} {
		var n int
		if err := b.engine.Pool().QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		counts[table] = n
	}
	return counts
}

// problem is the error envelope of an answer.
func problem(t *testing.T, got answer) api.Error {
	t.Helper()
	var e api.Error
	decoder := json.NewDecoder(strings.NewReader(got.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil {
		t.Fatalf("no error envelope: %v: %d %s", err, got.status, got.body)
	}
	return e
}

// refused demands a status and a code.
func refused(t *testing.T, got answer, status int, code string) api.Error {
	t.Helper()
	if got.status != status {
		t.Errorf("answered %d %s, want %d", got.status, got.body, status)
		return api.Error{}
	}
	e := problem(t, got)
	if e.Error.Code != code {
		t.Errorf("code %s (%s), want %s", e.Error.Code, got.body, code)
	}
	return e
}

// read decodes a body.
func read[T any](t *testing.T, got answer, status int) T {
	t.Helper()
	var value T
	if got.status != status {
		t.Fatalf("answered %d %s, want %d", got.status, got.body, status)
	}
	if err := json.Unmarshal([]byte(got.body), &value); err != nil {
		t.Fatal(err)
	}
	return value
}
