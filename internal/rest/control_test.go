package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// claimer is a worker's incarnation that a test acts as.
type claimer struct {
	t         *testing.T
	q         *db.Queries
	id, token uuid.UUID
}

func (b *bundle) claimer(t *testing.T) claimer {
	t.Helper()
	c := claimer{t: t, q: db.New(b.engine.Pool()), id: uuid.New(), token: uuid.New()}
	if err := c.q.InsertWorker(t.Context(), db.InsertWorkerParams{ID: c.id, Host: "test", Pid: 1, Slots: 1000, LeaseSeconds: 600}); err != nil {
		t.Fatal(err)
	}
	return c
}

// claim has executions run.
func (c claimer) claim(ids ...uuid.UUID) {
	c.t.Helper()
	rows, err := c.q.ClaimExecutions(c.t.Context(), db.ClaimExecutionsParams{Ids: ids, WorkerID: &c.id, LeaseToken: &c.token, LeftTypes: []string{}})
	if err != nil || len(rows) != len(ids) {
		c.t.Fatalf("claimed %d of %d: %v", len(rows), len(ids), err)
	}
}

// complete writes the outcome of the first attempt of executions that run.
func (c claimer) complete(succeeded bool, ids ...uuid.UUID) {
	n := len(ids)
	p := db.CompleteExecutionsParams{
		LeftTypes: []string{},
		Ids:       ids, Attempts: make([]int32, n), LeaseTokens: make([]uuid.UUID, n), Succeeded: make([]bool, n), RetryMs: make([]int64, n),
		DurationsUs: make([]int64, n), Results: make([]string, n), ErrorTypes: make([]string, n), ErrorMessages: make([]string, n),
		ErrorStacks: make([]string, n), MemoryMb: make([]float32, n), CpuMs: make([]int64, n),
	}
	for i := range ids {
		p.Attempts[i], p.LeaseTokens[i], p.Succeeded[i], p.RetryMs[i], p.DurationsUs[i] = 1, c.token, succeeded, -1, 20
		if !succeeded {
			p.ErrorTypes[i], p.ErrorMessages[i] = "USER_ERROR", "no"
		}
	}
	if _, err := c.q.CompleteExecutions(context.WithoutCancel(c.t.Context()), p); err != nil {
		c.t.Error(err)
	}
}

// wide stores a job of which any number may run at once.
func (b *bundle) wide(t testing.TB, who tenant.Actor) job.Job {
	t.Helper()
	if err := tenant.NewStore(b.db, true).Admit(t.Context(), who.TenantID); err != nil {
		t.Fatal(err)
	}
	made, _, err := b.jobs.Create(t.Context(), who, job.Spec{
		Name: "wide", Type: "http", Config: json.RawMessage(`{"url":"https://example.com/"}`),
		Retry:  job.DefaultRetry(),
		Policy: job.Policy{CronExpression: "0 0 0 1 1 *", Overlap: job.OverlapAllow},
	}.WithDefaults(), idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestStopAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Operator)
	made := b.wide(t, b.ours)
	b.makeBackfill(t, b.ours, made.ID)
	runs, waits := b.makeExecution(t, b.ours, made.ID).ID, b.makeExecution(t, b.ours, made.ID).ID
	b.claimer(t).claim(runs)
	stop := request{method: "POST", path: base + "/jobs/" + made.ID.String() + "/stop", token: token, body: `{"reason":"the target is gone"}`}
	got := read[api.Job](t, b.do(t, stop), http.StatusOK)
	if got.Status != "inactive" || *got.StatusReason != "the target is gone" || *got.StatusBy != "ada" || got.NextExecutionAt != nil {
		t.Errorf("the job is %+v", got)
	}
	state := func(id uuid.UUID) api.Execution {
		return read[api.Execution](t, b.do(t, request{method: "GET", path: base + "/executions/" + id.String(), token: token}), http.StatusOK)
	}
	if e := state(runs); e.Status != "running" || !e.CancelRequested || *e.Reason != "the target is gone" || *e.CancelledBy != "ada" {
		t.Errorf("what ran is %s, its end asked for: %v", e.Status, e.CancelRequested)
	}
	if e := state(waits); e.Status != "cancelled" || *e.Reason != "the target is gone" || *e.CancelledBy != "ada" {
		t.Errorf("what waited is %s because of %q", e.Status, *e.Reason)
	}
	backfills := read[api.BackfillPage](t, b.do(t, request{method: "GET", path: base + "/jobs/" + made.ID.String() + "/backfills", token: token}), http.StatusOK)
	if backfills.Items[0].Status != "cancelled" {
		t.Errorf("its backfill is %s", backfills.Items[0].Status)
	}
	// Again: the reason stays, and what was triggered meanwhile ends.
	late := b.makeExecution(t, b.ours, made.ID).ID
	stop.body = ""
	again := read[api.Job](t, b.do(t, stop), http.StatusOK)
	if *again.StatusReason != "the target is gone" || !again.StatusAt.Equal(got.StatusAt) {
		t.Errorf("stopped again the job is %+v", again)
	}
	if e := state(late); e.Status != "cancelled" || *e.Reason != "stopped" {
		t.Errorf("what was triggered after the stop is %s", e.Status)
	}
	resumed := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs/" + made.ID.String() + "/resume", token: token}), http.StatusOK)
	if resumed.Status != "active" || resumed.NextExecutionAt == nil {
		t.Errorf("resumed the job is %+v", resumed)
	}
}

func TestCancelAnExecution(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Operator)
	made := b.makeJob(t, b.ours) // one at a time
	first, second := b.makeExecution(t, b.ours, made.ID).ID, b.makeExecution(t, b.ours, made.ID).ID
	body := ""
	cancel := func(id uuid.UUID) answer {
		return b.do(t, request{method: "POST", path: base + "/executions/" + id.String() + "/cancel", token: token, body: body})
	}
	got := cancel(first)
	e := read[api.Execution](t, got, http.StatusOK)
	if e.Status != "cancelled" || *e.Reason != "cancelled on request" || *e.CancelledBy != "ada" || e.CompletedAt == nil {
		t.Errorf("the execution is %s", got.body)
	}
	if diff := cmp.Diff([]uuid.UUID{second}, b.hinted); diff != "" {
		t.Errorf("whose turn it is was not hinted (-want +got):\n%s", diff)
	}
	if again := cancel(first); again.status != http.StatusOK || again.body != got.body {
		t.Errorf("again: %d %s", again.status, again.body)
	}

	run := b.makeExecution(t, b.ours, b.makeJob(t, b.ours).ID).ID
	worker := b.claimer(t)
	worker.claim(run)
	for _, body = range []string{`{"reason":"no \u003creport\u003e today"}`, `{"reason":"another"}`} { // the first one stands
		got := cancel(run)
		e := read[api.Execution](t, got, http.StatusAccepted)
		if e.Status != "running" || !e.CancelRequested || *e.Reason != "no <report> today" || *e.CancelledBy != "ada" {
			t.Errorf("what runs is %s", got.body)
		}
	}
	waits := refused(t, b.do(t, request{method: "POST", path: base + "/executions/" + run.String() + "/retry", token: token}), http.StatusConflict, "EXECUTION_NOT_FINISHED")
	if !strings.Contains(waits.Error.Message, "until its status is cancelled") {
		t.Errorf("a retry that is too early is told %q", waits.Error.Message)
	}
	worker.complete(false, run)
	got = cancel(run)
	if e := read[api.Execution](t, got, http.StatusOK); e.Status != "cancelled" || *e.Reason != "no <report> today" || *e.CancelledBy != "ada" ||
		e.ErrorType != nil || e.ErrorMessage != nil || e.ErrorStack != nil {
		t.Errorf("what ran is %s", got.body)
	}
	body = ""

	done := b.makeExecution(t, b.ours, b.makeJob(t, b.ours).ID).ID
	worker.claim(done)
	worker.complete(true, done)
	over := refused(t, cancel(done), http.StatusConflict, "EXECUTION_FINISHED")
	if len(over.Error.Details) != 1 || over.Error.Details[0] != (api.ErrorDetail{Field: "status", Rule: "state", Message: "completed"}) {
		t.Errorf("details are %+v", over.Error.Details)
	}
}

// An outcome that is written at the same moment as the request to cancel comes
// before or after it, and the answer says which.
func TestCancelMeetsTheOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) { d.Hint = func(context.Context, int, uuid.UUID) {} })
	token := b.token(t, b.ours, identity.Operator)
	made, worker := b.wide(t, b.ours), b.claimer(t)
	want := map[int]string{http.StatusOK: "cancelled", http.StatusAccepted: "cancelled", http.StatusConflict: "completed"}
	answers := map[int]int{}
	for range 40 {
		run := b.makeExecution(t, b.ours, made.ID).ID
		var claimed sync.WaitGroup
		if len(answers)%2 == 0 {
			worker.claim(run)
		} else { // the claim races too
			claimed.Go(func() {
				_, err := worker.q.ClaimExecutions(t.Context(), db.ClaimExecutionsParams{Ids: []uuid.UUID{run}, WorkerID: &worker.id, LeaseToken: &worker.token, LeftTypes: []string{}})
				if err != nil {
					t.Error(err)
				}
			})
		}
		var got answer
		var both sync.WaitGroup
		both.Go(func() { claimed.Wait(); worker.complete(true, run) })
		both.Go(func() {
			got = b.send(request{method: "POST", path: base + "/executions/" + run.String() + "/cancel", token: token})
		})
		both.Wait()
		answers[got.status]++
		e := read[api.Execution](t, b.do(t, request{method: "GET", path: base + "/executions/" + run.String(), token: token}), http.StatusOK)
		if string(e.Status) != want[got.status] {
			t.Errorf("answered %d %s, and the execution is %s", got.status, got.body, e.Status)
		}
		var rows int
		err := b.engine.Pool().QueryRow(t.Context(),
			"SELECT (SELECT count(*) FROM active_executions WHERE id = $1) + (SELECT count(*) FROM job_executions WHERE id = $1)", run).Scan(&rows)
		if err != nil || rows != 1 {
			t.Errorf("it has %d rows: %v", rows, err)
		}
	}
	t.Logf("answers: %v", answers)
}

func TestRetryAnExecution(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Operator)
	made, worker := b.makeJob(t, b.ours), b.claimer(t)
	old, _, err := b.executions.Trigger(t.Context(), b.ours, made.ID, json.RawMessage(`{"a": 1}`), idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	again := request{method: "POST", path: base + "/executions/" + old.ID.String() + "/retry", token: token}
	for _, state := range []string{"pending", "running"} {
		e := refused(t, b.do(t, again), http.StatusConflict, "EXECUTION_NOT_FINISHED")
		if len(e.Error.Details) != 1 || e.Error.Details[0].Message != state {
			t.Errorf("details are %+v, want %s", e.Error.Details, state)
		}
		if state == "pending" {
			worker.claim(old.ID)
		}
	}
	worker.complete(false, old.ID)
	again.header = map[string]string{"Idempotency-Key": "once"}
	got, repeated := b.do(t, again), b.do(t, again)
	e := read[api.Execution](t, got, http.StatusAccepted)
	if e.ID == old.ID || e.TriggerType != "retry" || *e.TriggeredBy != "ada" || string(*e.Parameters) != `{"a":1}` || e.Status != "pending" ||
		*e.RetryOf != old.ID || e.JobName != made.Name {
		t.Errorf("the new execution is %s", got.body)
	}
	if repeated.body != got.body || repeated.header.Get("Idempotent-Replayed") != "true" || repeated.header.Get("Location") != base+"/executions/"+e.ID.String() {
		t.Errorf("repeated: %d %s", repeated.status, repeated.body)
	}
	if diff := cmp.Diff([]uuid.UUID{e.ID}, b.hinted); diff != "" {
		t.Errorf("hints differ (-want +got):\n%s", diff)
	}
	if kept := read[api.Execution](t, b.do(t, request{method: "GET", path: base + "/executions/" + old.ID.String(), token: token}), http.StatusOK); kept.Status != "failed" || *kept.RetriedAs != e.ID {
		t.Errorf("the old one is %s, and retried as %v", kept.Status, kept.RetriedAs)
	}
	for _, list := range []string{"/jobs/" + made.ID.String() + "/executions", "/executions"} { // by two statements
		page := read[api.ExecutionPage](t, b.do(t, request{method: "GET", path: base + list, token: token}), http.StatusOK)
		if len(page.Items) != 2 || page.Items[0].RetryOf == nil || *page.Items[0].RetryOf != old.ID || *page.Items[1].RetriedAs != e.ID || page.Items[1].RetryOf != nil {
			t.Errorf("%s lists %+v", list, page.Items)
		}
	}
	if err := b.jobs.Delete(t.Context(), b.ours, made.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	again.header = nil
	if e := refused(t, b.do(t, again), http.StatusConflict, "CONFLICT"); !strings.Contains(e.Error.Message, "deleted") {
		t.Errorf("the message is %q", e.Error.Message)
	}
}

// A cancelled execution that waited past its turn leaves nothing behind: its
// row is over with what was known of it.
func TestCancelKeepsWhatIsKnown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.makeExecution(t, b.ours, b.makeJob(t, b.ours).ID)
	_, err := b.engine.Pool().Exec(t.Context(), `UPDATE active_executions SET status = 'retrying', attempt = 2, started_at = now(),
		attempts = '[{"number":1,"endedAt":"2026-03-01T09:00:01Z","error":{"type":"TIMEOUT","message":"too slow"}}]' WHERE id = $1`, e.ID)
	if err != nil {
		t.Fatal(err)
	}
	got, next, err := b.executions.Cancel(t.Context(), b.ours, e.ID, "")
	if err != nil || len(next) != 0 {
		t.Fatal(next, err)
	}
	if got.Status != execution.Cancelled || got.Attempt != 2 || len(got.Attempts) != 1 || got.StartedAt == nil || !got.ScheduledAt.Equal(e.ScheduledAt.Truncate(time.Microsecond)) {
		t.Errorf("it is %+v", got)
	}
}
