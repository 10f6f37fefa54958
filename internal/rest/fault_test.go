package rest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Every kind of fault, and every error that is none, has its one answer, and
// none shows its cause. They come in where any error can: as a failure to
// authenticate.
func TestFaultsBecomeAnswers(t *testing.T) {
	t.Parallel()
	const inner = "pq: password authentication failed for user hunter2 at 10.0.0.1"
	cause := errors.New(inner)
	for _, test := range []struct {
		name    string
		err     error
		status  int
		code    string
		message string
		level   string
		retry   string
	}{
		{"invalid", fault.Wrong("", fault.Field{Path: "name", Message: "is missing"}), 400, "VALIDATION_FAILED", "name is missing", "INFO", ""},
		{"invalid, with a code", fault.Wrong("INVALID_CRON_EXPRESSION"), 400, "INVALID_CRON_EXPRESSION", "the request is not valid", "INFO", ""},
		{"unauthenticated", fault.Wrap(fault.Unauthenticated, "", "who", cause), 401, "UNAUTHORIZED", "who", "INFO", ""},
		{"forbidden", fault.Wrap(fault.Forbidden, "", "no", cause), 403, "FORBIDDEN", "no", "INFO", ""},
		{"not found", fault.Wrap(fault.NotFound, "", "nothing", cause), 404, "NOT_FOUND", "nothing", "INFO", ""},
		{"not found, with a code", fault.New(fault.NotFound, "JOB_NOT_FOUND", "nothing"), 404, "JOB_NOT_FOUND", "nothing", "INFO", ""},
		{"conflict", fault.New(fault.Conflict, "", "busy"), 409, "CONFLICT", "busy", "INFO", ""},
		{"conflict, with a code", fault.New(fault.Conflict, "JOB_ALREADY_RUNNING", "busy"), 409, "JOB_ALREADY_RUNNING", "busy", "INFO", ""},
		{"precondition", fault.New(fault.Conflict, "PRECONDITION_FAILED", "changed"), 412, "PRECONDITION_FAILED", "changed", "INFO", ""},
		{"key reused", fault.New(fault.Conflict, "IDEMPOTENCY_KEY_REUSED", "other"), 422, "IDEMPOTENCY_KEY_REUSED", "other", "INFO", ""},
		{"too many", &fault.Error{Kind: fault.TooMany, Message: "slow", RetryAfter: 1200 * time.Millisecond}, 429, "RATE_LIMITED", "slow", "INFO", "2"},
		{"too many, with a code", &fault.Error{Kind: fault.TooMany, Code: "QUOTA_EXCEEDED", Message: "slow"}, 429, "QUOTA_EXCEEDED", "slow", "INFO", "1"},
		{"unavailable", fault.Wrap(fault.Unavailable, "", "away", cause), 503, "UNAVAILABLE", "away", "WARN", "1"},
		{"internal", fault.Wrap(fault.Internal, "NO_PARTITION", "no partition holds the row", cause), 500, "INTERNAL_ERROR", "", "ERROR", ""},
		{"no fault", cause, 500, "INTERNAL_ERROR", "", "ERROR", ""},
		{"wrapped", fmt.Errorf("read job: %w", fault.New(fault.NotFound, "JOB_NOT_FOUND", "nothing")), 404, "JOB_NOT_FOUND", "nothing", "INFO", ""},
		{"an unknown kind", &fault.Error{Kind: 99, Message: inner}, 500, "INTERNAL_ERROR", "", "ERROR", ""},
		{"a deadline", fmt.Errorf("read: %w", context.DeadlineExceeded), 503, "UNAVAILABLE", "the request took too long", "WARN", "1"},
		{"cancelled", context.Canceled, 503, "UNAVAILABLE", "the request took too long", "WARN", "1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setupFailing(t, func() error { return test.err })
			got := b.send(request{method: "GET", path: base + "/jobs", header: map[string]string{"X-Request-Id": "req-1"}})
			e := refused(t, got, test.status, test.code)
			want := test.message
			if test.status == http.StatusInternalServerError {
				want = "something went wrong on our side; quote request req-1 when you report it"
			}
			if e.Error.Message != want || e.Path != base+"/jobs" || !e.Timestamp.Equal(b.now) || e.Error.Details == nil {
				t.Errorf("the envelope is %s", got.body)
			}
			if got.header.Get("Retry-After") != test.retry {
				t.Errorf("Retry-After is %q, want %q", got.header.Get("Retry-After"), test.retry)
			}
			if strings.Contains(got.body+fmt.Sprint(got.header), "hunter2") {
				t.Errorf("the cause is shown: %s", got.body)
			}
			lines := strings.Count(b.log.String(), `"level":"`+test.level+`"`)
			if lines != 1 || strings.Count(b.log.String(), "\n") != 2 || !strings.Contains(b.log.String(), `"request_id":"req-1"`) {
				t.Errorf("logged not once, beside the line at debug:\n%s", b.log)
			}
			if test.level == "ERROR" && strings.Contains(test.err.Error(), inner) && !strings.Contains(b.log.String(), "hunter2") {
				t.Errorf("the cause is not in the log:\n%s", b.log)
			}
		})
	}
}

func TestAPanicBecomesAnAnswer(t *testing.T) {
	t.Parallel()
	b := setupFailing(t, func() error { panic("password is hunter2") })
	got := b.do(t, request{method: "GET", path: base + "/jobs", header: map[string]string{"X-Request-Id": "req-1"}})
	e := refused(t, got, http.StatusInternalServerError, "INTERNAL_ERROR")
	if strings.Contains(got.body, "hunter2") || !strings.Contains(e.Error.Message, "req-1") {
		t.Errorf("answered %s", got.body)
	}
	if log := b.log.String(); !strings.Contains(log, "hunter2") || !strings.Contains(log, "fault_test.go") || strings.Count(log, `"level":"ERROR"`) != 1 {
		t.Errorf("logged:\n%s", log)
	}
}

// No request takes for ever, and the client learns of it before the connection's
// own time-out.
func TestARequestHasADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := withVitals(t, nil)
		b.handler = newHandler(t, parts.Deps{
			Buckets: newBuckets(t), Limits: func() tenant.Limits { return tenant.Limits{} }, FailuresPerMinute: func() int { return 1 }, CursorSecret: secret, Clock: func() time.Time { return b.now }, Log: discard(), Metrics: telemetry.NewMetrics(telemetry.NewRegistry()),
			Authenticate: func(ctx context.Context, _ http.Header) (identity.Principal, error) {
				<-ctx.Done()
				return identity.Principal{}, ctx.Err()
			},
		})
		began := clock.Start()
		refused(t, b.do(t, request{method: "GET", path: base + "/jobs"}), http.StatusServiceUnavailable, "UNAVAILABLE")
		if took := began.Elapsed(); took != 15*time.Second {
			t.Errorf("it took %s, want 15 s", took)
		}
	})
}

// setupFailing is an API that meets an error before anything else happens.
func setupFailing(t *testing.T, fail func() error) *bundle {
	t.Helper()
	return setup(t, func(d *parts.Deps) {
		d.Authenticate = func(context.Context, http.Header) (identity.Principal, error) { return identity.Principal{}, fail() }
	})
}

// A request that waits for the database longer than it may take, or whose client is
// gone, answers 503 on every operation, without the driver's words.
func TestRequestsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.PlatformAdmin)
	for name, operation := range operations(t) {
		if operation.Permission == "public" {
			continue
		}
		sample, _ := b.sampleOf(t, operation, b.ours)
		sample.token, sample.header = token, b.asService(operation, b.ours, sample.header)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		got := b.sendWith(ctx, sample)
		if strings.Contains(name, "/bulk/") && got.status == http.StatusOK && strings.Contains(got.body, `"doneCount":0`) && strings.Contains(got.body, "NOT_REACHED") {
			continue // what is known of the caller is in memory, and the call says of each thing that it was not reached
		}
		if got.status != http.StatusServiceUnavailable || strings.Contains(got.body, "context") {
			t.Errorf("%s: answered %d %s", name, got.status, got.body)
		}
		if problem := b.undocumented(sample, got); problem != "" {
			t.Errorf("%s: %s", name, problem)
		}
	}
	b.db.Close()
	if got := b.do(t, request{method: "GET", path: base + "/jobs", token: token}); got.status < 500 || strings.Contains(got.body, "pool") {
		t.Errorf("without a database: %d %s", got.status, got.body)
	}
}

// TestRefusedRequestsAreLogged finds in the log who asked for what, from where.
func TestRefusedRequestsAreLogged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := base + "/jobs/" + uuid.NewString()
	b.do(t, request{method: "DELETE", path: path + "?q=hunter2", token: b.token(t, b.ours, identity.Viewer)})
	want := `"status":403,"code":"FORBIDDEN","method":"DELETE","path":"` + path + `","subject":"`
	if log := b.log.String(); !strings.Contains(log, want) || !strings.Contains(log, `"from":"`) || strings.Contains(log, "hunter2") {
		t.Errorf("missing %s in\n%s", want, log)
	}
}
