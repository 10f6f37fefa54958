package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/job"
)

// hourly makes a job that is due every hour, and the path of its backfills.
func (b *bundle) hourly(t *testing.T, token string) (path string) {
	t.Helper()
	body := `{"name":"hourly","cronExpression":"0 0 * * * *","jobType":"http","config":{"url":"https://example.com/"}}`
	made := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: body}), http.StatusCreated)
	return base + "/jobs/" + made.ID.String() + "/backfills"
}

// yesterday is a range of 24 hours, as two fields of a body.
func (b *bundle) yesterday() (from, to time.Time, fields string) {
	to = b.now.UTC().Truncate(24 * time.Hour)
	from = to.Add(-24 * time.Hour)
	return from, to, fmt.Sprintf(`"from":%q,"to":%q`, from.Format(time.RFC3339), to.Format(time.RFC3339))
}

func TestCreateABackfill(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Operator)
	path := b.hourly(t, b.token(t, b.ours, identity.Developer))
	from, to, span := b.yesterday()
	r := request{
		method: "POST", path: path, token: token, body: `{` + span + `,"ratePerMinute":90,"parameters":{"body":{"day":1}}}`,
		header: map[string]string{"Idempotency-Key": "k"},
	}
	answered := b.do(t, r)
	got := read[map[string]any](t, answered, http.StatusAccepted)
	want := map[string]any{
		"id": got["id"], "tenantId": b.ours.TenantID.String(), "jobId": strings.Split(path, "/")[5], "jobVersion": 1.0,
		"from": from.Format(time.RFC3339), "to": to.Format(time.RFC3339), "ratePerMinute": 90.0, "dailyShare": 50.0, "parameters": map[string]any{"body": map[string]any{"day": 1.0}},
		"status": "running", "total": 24.0, "created": 0.0, "heldBy": nil, "progress": 0.0, "createdBy": "ada", "createdAt": got["createdAt"], "finishedAt": nil,
		"outcomes": map[string]any{"pending": 0.0, "running": 0.0, "retrying": 0.0, "completed": 0.0, "failed": 0.0, "cancelled": 0.0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	one := path + "/" + got["id"].(string)
	if location := answered.header.Get("Location"); location != one {
		t.Errorf("Location is %s", location)
	}
	again := b.do(t, r)
	if diff := cmp.Diff(want, read[map[string]any](t, again, http.StatusAccepted)); diff != "" || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("repeated (-want +got):\n%s", diff)
	}
	viewer := b.token(t, b.ours, identity.Viewer)
	if diff := cmp.Diff(want, read[map[string]any](t, b.do(t, request{method: "GET", path: one, token: viewer}), http.StatusOK)); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	delete(want, "outcomes")
	list := read[map[string]any](t, b.do(t, request{method: "GET", path: path, token: viewer}), http.StatusOK)
	if diff := cmp.Diff(map[string]any{"items": []any{want}, "nextCursor": nil, "hasMore": false}, list); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}

func TestADryRunStoresNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Admin)
	path := b.hourly(t, token)
	from, to, span := b.yesterday()
	before := b.snapshot(t)
	header := map[string]string{"Idempotency-Key": "k"}
	got := read[map[string]any](t, b.do(t, request{method: "POST", path: path, token: token, body: `{` + span + `,"dryRun":true}`, header: header}), http.StatusOK)
	want := map[string]any{"total": 24.0, "firstAt": from.Format(time.RFC3339), "lastAt": to.Add(-time.Hour).Format(time.RFC3339)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("planned (-want +got):\n%s", diff)
	}
	none := fmt.Sprintf(`{"from":%q,"to":%q,"dryRun":true}`, from.Add(time.Minute).Format(time.RFC3339), from.Add(time.Hour).Format(time.RFC3339))
	got = read[map[string]any](t, b.do(t, request{method: "POST", path: path, token: token, body: none}), http.StatusOK)
	if diff := cmp.Diff(map[string]any{"total": 0.0, "firstAt": nil, "lastAt": nil}, got); diff != "" {
		t.Errorf("of nothing (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, b.snapshot(t)); diff != "" {
		t.Errorf("stored (-before +after):\n%s", diff)
	}
	// The key is free for the request itself.
	if made := b.do(t, request{method: "POST", path: path, token: token, body: `{` + span + `}`, header: header}); made.status != http.StatusAccepted {
		t.Errorf("answered %d %s", made.status, made.body)
	}
}

func TestBackfillsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Admin)
	path := b.hourly(t, token)
	_, _, span := b.yesterday()
	manual := read[api.Job](t, b.do(t, request{
		method: "POST", path: base + "/jobs", token: token, body: `{"name":"manual","trigger":"manual","jobType":"http","config":{"url":"https://example.com/"}}`,
	}), http.StatusCreated)
	for _, test := range []struct{ name, path, body, want string }{
		{"nothing", path, `{}`, "from required, to required"},
		{"no times", path, `{"from":"yesterday","to":1}`, "from format, to type"},
		{"out of bounds", path, `{` + span + `,"ratePerMinute":0,"dryRun":"yes","rate":1}`, "dryRun type, rate unknown, ratePerMinute minimum"},
		{"more than the day", path, `{` + span + `,"dailyShare":101}`, "dailyShare maximum"},
		{"too fast", path, `{` + span + `,"ratePerMinute":6001}`, "ratePerMinute maximum"},
		{"the future", path, `{"from":"2499-01-01T00:00:00Z","to":"2499-01-02T00:00:00Z"}`, "to past"},
		{"the distant past, backwards", path, `{"from":"2001-01-01T00:00:00Z","to":"2000-01-02T00:00:00Z"}`, "from retention, to order"},
		{"the year 1", path, `{"from":"0001-01-01T00:00:00Z","to":"9999-12-31T23:59:59Z"}`, "from retention, to past"},
		{"a job without a schedule", base + "/jobs/" + manual.ID.String() + "/backfills", `{` + span + `}`, "id schedule"},
	} {
		e := refused(t, b.do(t, request{method: "POST", path: test.path, token: token, body: test.body}), http.StatusBadRequest, "VALIDATION_FAILED")
		var details []string
		for _, d := range e.Error.Details {
			details = append(details, d.Field+" "+d.Rule)
		}
		if got := strings.Join(slices.Sorted(slices.Values(details)), ", "); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	b.refuse = []fault.Field{{Path: "parameters.body", Rule: "type", Message: "is not that"}}
	e := refused(t, b.do(t, request{method: "POST", path: path, token: token, body: `{` + span + `,"parameters":{"body":1}}`}), http.StatusBadRequest, "VALIDATION_FAILED")
	if len(e.Error.Details) != 1 || e.Error.Details[0].Field != "parameters.body" {
		t.Errorf("details %+v", e.Error.Details)
	}
	for range 10 {
		b.do(t, request{method: "POST", path: path, token: token, body: `{` + span + `}`})
	}
	refused(t, b.do(t, request{method: "POST", path: path, token: token, body: `{` + span + `}`}), http.StatusConflict, "TOO_MANY_BACKFILLS")
	unknown := base + "/jobs/" + uuid.NewString() + "/backfills"
	refused(t, b.do(t, request{method: "POST", path: unknown, token: token, body: `{` + span + `}`}), http.StatusNotFound, "JOB_NOT_FOUND")
	refused(t, b.do(t, request{method: "GET", path: unknown, token: token}), http.StatusNotFound, "JOB_NOT_FOUND")
	refused(t, b.do(t, request{method: "GET", path: path + "/" + uuid.NewString(), token: token}), http.StatusNotFound, "BACKFILL_NOT_FOUND")
}

func TestCancelABackfill(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Operator)
	made := b.makeJob(t, b.ours)
	of := b.makeBackfill(t, b.ours, made.ID)
	path := base + "/jobs/" + made.ID.String() + "/backfills/" + of.ID.String()
	id := execution.BackfillID(of.ID, of.From)
	if _, err := b.engine.Pool().Exec(t.Context(), "SELECT create_job_executions_partition($1)", of.From); err != nil {
		t.Fatal(err)
	}
	_, err := b.engine.Pool().Exec(t.Context(), `INSERT INTO active_executions
		(id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, backfill_id, available_at, sweep_at)
		VALUES ($1, $2, $3, 1, $4, 'backfill', 'http', 1, 1000, $5, now(), now())`, id, b.ours.TenantID, made.ID, of.From, of.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.engine.Pool().Exec(t.Context(), "UPDATE backfills SET created = 1"); err != nil {
		t.Fatal(err)
	}
	if got := read[api.Backfill](t, b.do(t, request{method: "GET", path: path, token: token}), http.StatusOK); got.Outcomes.Pending != 1 || got.Progress != 0 || got.Created != 1 {
		t.Errorf("before: %+v", got)
	}
	list := base + "/jobs/" + made.ID.String() + "/backfills"
	if got := read[api.BackfillPage](t, b.do(t, request{method: "GET", path: list + "?outcomes=true", token: token}), http.StatusOK); got.Items[0].Outcomes == nil || got.Items[0].Outcomes.Pending != 1 {
		t.Errorf("listed with outcomes: %+v", got)
	}
	if got := read[api.BackfillPage](t, b.do(t, request{method: "GET", path: list, token: token}), http.StatusOK); got.Items[0].Outcomes != nil {
		t.Errorf("listed without: %+v", got)
	}
	got := read[api.Backfill](t, b.do(t, request{method: "POST", path: path + "/cancel", token: token}), http.StatusOK)
	if got.Status != api.BackfillStatusCancelled || got.Outcomes.Cancelled != 1 || got.Outcomes.Pending != 0 || got.FinishedAt == nil {
		t.Errorf("cancelled: %+v", got)
	}
	again := read[api.Backfill](t, b.do(t, request{method: "POST", path: path + "/cancel", token: token}), http.StatusOK)
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("cancelled twice (-once +twice):\n%s", diff)
	}
	if got := read[api.BackfillPage](t, b.do(t, request{method: "GET", path: list + "?outcomes=true", token: token}), http.StatusOK); got.Items[0].Outcomes != nil {
		t.Errorf("one that does not run was counted: %+v", got)
	}
	one := read[api.Execution](t, b.do(t, request{method: "GET", path: base + "/executions/" + id.String(), token: token}), http.StatusOK)
	if one.Status != api.ExecutionStatusCancelled || *one.BackfillID != of.ID || one.TriggerType != api.TriggerTypeBackfill || *one.Reason == "" {
		t.Errorf("its execution: %+v", one)
	}
	if _, err := b.engine.Pool().Exec(t.Context(), "UPDATE backfills SET status = 'completed'"); err != nil {
		t.Fatal(err)
	}
	refused(t, b.do(t, request{method: "POST", path: path + "/cancel", token: token}), http.StatusConflict, "CONFLICT")
}

func TestPagesOfBackfills(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	of := b.makeJob(t, b.ours)
	other := b.makeJob(t, b.ours)
	b.makeBackfill(t, b.ours, other.ID)
	var want []string
	for range 5 {
		want = append([]string{b.makeBackfill(t, b.ours, of.ID).ID.String()}, want...)
	}
	path := func(of job.Job) string { return base + "/jobs/" + of.ID.String() + "/backfills?limit=2" }
	var got []string
	at := ""
	for {
		var page struct {
			Items      []struct{ ID string }
			NextCursor *string
			HasMore    bool
		}
		answered := b.do(t, request{method: "GET", path: path(of) + at, token: token})
		if err := json.Unmarshal([]byte(answered.body), &page); err != nil || answered.status != http.StatusOK {
			t.Fatalf("answered %d %s", answered.status, answered.body)
		}
		for _, item := range page.Items {
			got = append(got, item.ID)
		}
		if !page.HasMore {
			break
		}
		at = "&cursor=" + *page.NextCursor
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	refused(t, b.do(t, request{method: "GET", path: path(other) + at, token: token}), http.StatusBadRequest, "VALIDATION_FAILED")
}
