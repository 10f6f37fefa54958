package rest_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/monitor"
	"github.com/scheduler-service/scheduler/internal/monitor/intake"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// makeMonitor stores a monitor that is due each hour.
func (b *bundle) makeMonitor(t *testing.T, owner tenant.Actor) monitor.Monitor {
	t.Helper()
	if _, err := b.deps.Tenants.Terms(t.Context(), owner.TenantID); err != nil {
		t.Fatal(err)
	}
	made, err := b.deps.Monitors.Create(t.Context(), owner, monitor.Spec{
		Name: uuid.NewString(), Interval: time.Hour, StartGrace: time.Minute, CompletionGrace: time.Minute, FailureThreshold: 1, RecoveryThreshold: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// A cron pings with an address alone, by any method and with any body; what it said is in the
// monitor and its runs.
func TestPings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.makeMonitor(t, b.ours)
	for _, step := range []struct {
		method, path, body, media string
		status                    int
		want                      string
	}{
		{"POST", "/start?rid=a", "", "", 200, "running"},
		{"POST", "/log?rid=a", "half\x00way \xff", "application/x-www-form-urlencoded", 200, "running"},
		{"POST", "/1?rid=a", strings.Repeat("é", 100_000), "text/plain; charset=latin1", 200, "down"},
		{"GET", "", "", "", 200, `"ok"`},
		{"GET", "/0?rid=b", "", "", 200, `"ok"`},
		{"GET", "/start?rid=b", "", "", 200, `"ok"`}, // its end was quicker
		{"GET", "?utm_source=proxy&utm_source=again&fbclid=%00", "", "", 200, `"ok"`},
		{"GET", "/0?rid=b&rid=c", "", "", 400, "rid"},
		{"POST", "/256", "", "", 400, "signal"},
		{"POST", "/front", "", "", 404, "ping key"}, // for the service alone, by a key of its own
		{"POST", "/-1", "", "", 400, "signal"},
		{"POST", "/01", "", "", 400, "signal"},
		{"POST", "/success", "", "", 400, "signal"},
		{"POST", "?rid=%00", "", "", 400, "rid"},
		{"POST", "?rid=" + strings.Repeat("x", 65), "", "", 400, "rid"},
		{"PUT", "", "", "", 405, ""},
	} {
		got := b.do(t, request{method: step.method, path: "/ping/" + made.PingKey + step.path, body: step.body, header: map[string]string{"Content-Type": step.media, "Accept": "text/html"}})
		if got.status != step.status || !strings.Contains(got.body, step.want) {
			t.Errorf("%s %s: %d %.300s, want %d %s", step.method, step.path, got.status, got.body, step.status, step.want)
		}
	}
	token := b.token(t, b.ours, identity.Viewer)
	var page api.MonitorRunPage
	got := b.do(t, request{method: "GET", path: base + "/monitors/" + made.ID.String() + "/runs?limit=2", token: token})
	if err := json.Unmarshal([]byte(got.body), &page); err != nil || len(page.Items) != 2 || !page.HasMore {
		t.Fatalf("%v: %d %s", err, got.status, got.body)
	}
	got = b.do(t, request{method: "GET", path: base + "/monitors/" + made.ID.String() + "/runs?limit=2&cursor=" + *page.NextCursor, token: token})
	if err := json.Unmarshal([]byte(got.body), &page); err != nil || len(page.Items) != 1 || page.HasMore {
		t.Fatalf("%v: %d %s", err, got.status, got.body)
	}
	if r := page.Items[0]; r.Number != 1 || r.Outcome != "failed" || *r.Reason != "failed" || *r.ExitCode != 1 || len([]rune(r.Log)) != 10_000 || *r.DurationMs < 0 {
		t.Errorf("the first run is %.200s", got.body)
	}
	got = b.do(t, request{method: "GET", path: base + "/monitors/" + made.ID.String(), token: token})
	if strings.Contains(got.body, made.PingKey) || !strings.Contains(got.body, `"pingUrl":null`) {
		t.Errorf("a viewer sees the ping key: %s", got.body)
	}
	if strings.Contains(b.log.String(), made.PingKey) {
		t.Error("a line of the log holds the ping key")
	}
}

// A key that is unknown, rotated or of a deleted monitor is the same; a paused monitor takes
// pings.
func TestPingKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	made, rotated, deleted, paused := b.makeMonitor(t, b.ours), b.makeMonitor(t, b.ours), b.makeMonitor(t, b.ours), b.makeMonitor(t, b.theirs)
	for _, call := range []request{
		{method: "POST", path: base + "/monitors/" + rotated.ID.String() + "/rotate-key", token: token},
		{method: "DELETE", path: base + "/monitors/" + deleted.ID.String(), token: token},
		{method: "POST", path: base + "/monitors/" + paused.ID.String() + "/pause", token: b.token(t, b.theirs, identity.Developer)},
	} {
		if got := b.do(t, call); got.status >= 300 {
			t.Fatalf("%s: %d %s", call.path, got.status, got.body)
		}
	}
	var bodies []string
	for _, key := range []string{rotated.PingKey, deleted.PingKey, made.ID.String(), made.PingKey[:20], strings.ToUpper(made.PingKey) + "x", "%00", strings.Repeat("a", 64)} {
		got := b.do(t, request{method: "POST", path: "/ping/" + key})
		if got.status != http.StatusNotFound && got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", key, got.status, got.body)
		}
		bodies = append(bodies, got.body)
	}
	if !strings.Contains(bodies[0], "there is no monitor with this ping key") {
		t.Error(bodies[0])
	}
	if got := b.do(t, request{method: "POST", path: "/ping/" + paused.PingKey + "/fail"}); got.status != http.StatusOK || !strings.Contains(got.body, `"paused"`) {
		t.Errorf("paused: %d %s", got.status, got.body)
	}
}

// Pings of a monitor are limited by its key, and bad keys by the address that sends them;
// known good keys from there are taken.
func TestPingsAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) { d.FailuresPerMinute = func() int { return 5 } })
	made, other := b.makeMonitor(t, b.ours), b.makeMonitor(t, b.ours)
	if got := b.do(t, request{method: "POST", path: "/ping/" + other.PingKey}); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	last := answer{}
	for range 10_000 { // on a busy machine some are forgiven meanwhile
		if last = b.do(t, request{method: "POST", path: "/ping/" + made.PingKey + "/log"}); last.status != http.StatusOK {
			break
		}
	}
	if e := refused(t, last, http.StatusTooManyRequests, "RATE_LIMITED"); !strings.Contains(e.Error.Message, "120 times a minute") || last.header.Get("Retry-After") == "" {
		t.Errorf("%+v", e)
	}
	for range 1000 {
		if last = b.do(t, request{method: "POST", path: "/ping/" + uuid.NewString()}); last.status != http.StatusNotFound {
			break
		}
	}
	refused(t, last, http.StatusTooManyRequests, "RATE_LIMITED")
	if got := b.do(t, request{method: "POST", path: "/ping/" + other.PingKey}); got.status != http.StatusOK {
		t.Errorf("a good key beside bad ones: %d %s", got.status, got.body)
	}
}

// The domain refuses what the contract cannot say of a monitor, and a name is there once.
func TestMonitorsAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	for _, test := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"name":"a","intervalSeconds":60}`, 201, `"status":"new"`},
		{`{"name":"a","intervalSeconds":60}`, 409, "exists already"},
		{`{"name":"b"}`, 400, "intervalSeconds has to be given"},
		{`{"name":"b","intervalSeconds":60,"cronExpression":"* * * * *"}`, 400, "and not both"},
		{`{"name":"b","intervalSeconds":29}`, 400, "intervalSeconds"},
		{`{"name":"b","cronExpression":"61 * * * *"}`, 400, "INVALID_CRON_EXPRESSION"},
		{`{"name":"b","cronExpression":"0 2 * * *","timezone":"Mars/Base"}`, 400, "timezone"},
		{`{"name":" ","intervalSeconds":60}`, 400, "name"},
		{`{"name":"b","intervalSeconds":60,"startGraceSeconds":9}`, 400, "startGraceSeconds"},
		{`{"name":"b","intervalSeconds":60,"minRuntimeSeconds":60,"completionGraceSeconds":60}`, 400, "minRuntimeSeconds"},
	} {
		if got := b.do(t, request{method: "POST", path: base + "/monitors", token: token, body: test.body}); got.status != test.status || !strings.Contains(got.body, test.want) {
			t.Errorf("%s: %d %s, want %d %s", test.body, got.status, got.body, test.status, test.want)
		}
	}
}

// A PUT may send back what a GET answered, with another field.
func TestAMonitorIsSentBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token, made := b.token(t, b.ours, identity.Developer), b.makeMonitor(t, b.ours)
	path := base + "/monitors/" + made.ID.String()
	got := b.do(t, request{method: "GET", path: path, token: token})
	changed := strings.Replace(got.body, `"intervalSeconds":3600`, `"intervalSeconds":7200`, 1)
	if got = b.do(t, request{method: "PUT", path: path, token: token, body: changed}); got.status != http.StatusOK || !strings.Contains(got.body, `"intervalSeconds":7200`) || !strings.Contains(got.body, made.PingKey) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got = b.do(t, request{method: "PUT", path: path, token: token, body: changed}); got.status != http.StatusPreconditionFailed {
		t.Errorf("an old version: %d %s", got.status, got.body)
	}
}

// newDesk takes pings until the test ends.
func newDesk(t testing.TB, engine *postgres.DB) *intake.Desk {
	t.Helper()
	desk, ended := intake.New(engine, "test", slog.New(slog.DiscardHandler)), make(chan error, 1)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { ended <- desk.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return desk
}

// The runs of a tenant's monitors are counted by hour or day, for callers who may see them.
func TestMonitorRunsAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ours, theirs := b.makeMonitor(t, b.ours), b.makeMonitor(t, b.theirs)
	for _, path := range []string{"/ping/" + ours.PingKey, "/ping/" + ours.PingKey + "/fail", "/ping/" + theirs.PingKey} {
		if got := b.do(t, request{method: "POST", path: path}); got.status != http.StatusOK {
			t.Fatalf("%s is answered %d %s", path, got.status, got.body)
		}
	}
	token := b.token(t, b.ours, identity.Viewer)
	// The database's clock is real, so the runs are of now even if the API's clock differs.
	span := "?from=" + clock.Now().UTC().Add(-24*time.Hour).Format(time.RFC3339) + "&to=" + clock.Now().UTC().Add(24*time.Hour).Format(time.RFC3339)
	for _, bucket := range []string{"hour", "day"} {
		seen := read[api.MonitorRunCounts](t, b.do(t, request{method: "GET", path: base + "/monitor-runs" + span + "&timezone=Asia/Kolkata&bucket=" + bucket, token: token}), http.StatusOK)
		if len(seen.Buckets) == 0 || seen.Timezone != "Asia/Kolkata" || seen.Truncated {
			t.Fatalf("by %s: %+v", bucket, seen)
		}
		var runs, failed int64
		for _, one := range seen.Buckets {
			runs, failed = runs+one.Count, failed+one.Failed
		}
		if runs != 2 || failed != 1 {
			t.Errorf("by %s: %d runs, %d failed", bucket, runs, failed)
		}
	}
	if got := b.do(t, request{method: "GET", path: base + "/monitor-runs?from=2026-01-01T00:00:00Z&to=2026-03-01T00:00:00Z", token: token}); got.status != http.StatusBadRequest {
		t.Errorf("two months are answered %d %s", got.status, got.body)
	}
}
