package rest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/deadletter"
	replays "github.com/scheduler-service/scheduler/internal/deadletter/replay"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// dead records an execution of a job that failed so long ago, and makes it a dead letter.
func (b *bundle) dead(t *testing.T, who tenant.Actor, job uuid.UUID, errorType, message string, ago time.Duration) uuid.UUID {
	t.Helper()
	at := b.now.UTC().Add(-ago).Truncate(time.Microsecond)
	seed := uuid.New()
	id := execution.RequestedID(who.TenantID, job, at, seed[:])
	_, err := b.engine.Pool().Exec(t.Context(), `WITH failed AS (
		INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, error_type, error_message, attempt, max_attempts, completed_at, created_at)
		VALUES ($1, $2, $3, $4, 1, 'manual', 'http', 'failed', $5, $6, 1, 1, $2, $2) RETURNING *)
		INSERT INTO dead_letters (execution_id, tenant_id, job_id, error_type, error_message, fingerprint, failed_at, scheduled_at)
		SELECT id, tenant_id, job_id, error_type, error_message, $7, completed_at, scheduled_at FROM failed`,
		id, at, who.TenantID, job, errorType, message, deadletter.Fingerprint(errorType, message))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// deadLetters lists the ids that a path answers.
func (b *bundle) deadLetters(t *testing.T, token, query string) (ids []uuid.UUID) {
	t.Helper()
	for _, one := range read[api.DeadLetterPage](t, b.do(t, request{method: "GET", path: base + "/dead-letters" + query, token: token}), http.StatusOK).Items {
		ids = append(ids, one.ExecutionID)
	}
	return ids
}

func TestDeadLettersAreListedAndGrouped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	one, two := b.makeJob(t, b.ours).ID, b.makeJob(t, b.ours).ID
	a := b.dead(t, b.ours, one, "TIMEOUT", "no answer after 30 s", 3*time.Minute)
	c := b.dead(t, b.ours, two, "TIMEOUT", "no answer after 45 s", 2*time.Minute)
	d := b.dead(t, b.ours, two, "USER_ERROR", "no such order", time.Minute)
	b.dead(t, b.theirs, b.makeJob(t, b.theirs).ID, "TIMEOUT", "no answer after 1 s", time.Minute)
	slow := deadletter.Fingerprint("TIMEOUT", "no answer after 30 s")
	middle := b.now.UTC().Add(-150 * time.Second).Format(time.RFC3339)
	for query, want := range map[string][]uuid.UUID{
		"":                              {d, c, a},
		"?jobId=" + two.String():        {d, c},
		"?errorType=USER_ERROR":         {d},
		"?fingerprint=" + slow:          {c, a},
		"?from=" + middle:               {d, c},
		"?to=" + middle:                 {a},
		"?jobId=" + uuid.NewString():    nil,
		"?fingerprint=0123456789abcdef": nil,
	} {
		if diff := cmp.Diff(want, b.deadLetters(t, token, query)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
	first := read[api.DeadLetterPage](t, b.do(t, request{method: "GET", path: base + "/dead-letters?limit=2", token: token}), http.StatusOK)
	if first.NextCursor == nil || !first.HasMore || len(first.Items) != 2 {
		t.Fatalf("the first page is %+v", first)
	}
	if diff := cmp.Diff([]uuid.UUID{a}, b.deadLetters(t, token, "?limit=2&cursor="+*first.NextCursor)); diff != "" {
		t.Errorf("the second page (-want +got):\n%s", diff)
	}
	groups := read[api.DeadLetterGroups](t, b.do(t, request{method: "GET", path: base + "/dead-letters/groups", token: token}), http.StatusOK)
	if len(groups.Items) != 2 || groups.HasMore {
		t.Fatalf("the groups are %+v", groups)
	}
	large := groups.Items[0]
	if large.Fingerprint != slow || large.Count != 2 || large.JobCount != 2 || len(large.JobIds) != 2 || large.LastExecutionID != c || large.ErrorMessage != "no answer after 45 s" ||
		large.LastFailedAt.Sub(large.FirstFailedAt) != time.Minute {
		t.Errorf("the larger group is %+v", large)
	}
	filtered := read[api.DeadLetterGroups](t, b.do(t, request{method: "GET", path: base + "/dead-letters/groups?limit=1&jobId=" + two.String(), token: token}), http.StatusOK)
	if len(filtered.Items) != 1 || !filtered.HasMore || filtered.Items[0].Count != 1 {
		t.Errorf("one group of one job is %+v", filtered)
	}
	for _, wrong := range []string{"?fingerprint=ABC", "?errorType=NONE", "?from=" + middle + "&to=" + middle, "?jobId=1"} {
		refused(t, b.do(t, request{method: "GET", path: base + "/dead-letters" + wrong, token: token}), http.StatusBadRequest, "VALIDATION_FAILED")
	}
}

func TestADeadLetterIsReplayedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token, job := b.token(t, b.ours, identity.Operator), b.makeJob(t, b.ours).ID
	id, other := b.dead(t, b.ours, job, "TIMEOUT", "x", 0), b.dead(t, b.ours, job, "TIMEOUT", "x", time.Second)
	replay := func(id uuid.UUID, key string) answer {
		return b.do(t, request{method: "POST", path: fmt.Sprintf("%s/dead-letters/%s/replay", base, id), token: token, header: map[string]string{"Idempotency-Key": key}})
	}
	made := read[api.Execution](t, replay(id, "one"), http.StatusAccepted)
	if of := made.RetryOf; of == nil || *of != id || made.TriggerType != "retry" {
		t.Errorf("the replay is %+v", made)
	}
	if again := read[api.Execution](t, replay(id, "one"), http.StatusAccepted); again.ID != made.ID {
		t.Errorf("the same request made %s, want %s", again.ID, made.ID)
	}
	refused(t, replay(id, "two"), http.StatusNotFound, "DEAD_LETTER_NOT_FOUND")
	if diff := cmp.Diff([]uuid.UUID{other}, b.deadLetters(t, token, "")); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	read[api.Execution](t, b.do(t, request{method: "POST", path: base + "/executions/" + other.String() + "/retry", token: token}), http.StatusAccepted)
	if left := b.deadLetters(t, token, ""); left != nil {
		t.Errorf("a retry leaves %v", left)
	}
}

// A dead letter that cannot be run again stays one, and says why.
func TestADeadLetterOfADeletedJobStays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token, job := b.token(t, b.ours, identity.Developer), b.makeJob(t, b.ours).ID
	id := b.dead(t, b.ours, job, "TIMEOUT", "x", 0)
	if got := b.do(t, request{method: "DELETE", path: base + "/jobs/" + job.String(), token: token}); got.status != http.StatusNoContent {
		t.Fatalf("deleting the job answered %d %s", got.status, got.body)
	}
	refused(t, b.do(t, request{method: "POST", path: base + "/dead-letters/" + id.String() + "/replay", token: token}), http.StatusConflict, "CONFLICT")
	found := read[api.DeadLetter](t, b.do(t, request{method: "GET", path: base + "/dead-letters/" + id.String(), token: token}), http.StatusOK)
	if found.ExecutionID != id || found.ErrorMessage != "x" {
		t.Errorf("it is %+v", found)
	}
}

func TestDeadLettersAreDiscarded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token, job := b.token(t, b.ours, identity.Operator), b.makeJob(t, b.ours).ID
	id := b.dead(t, b.ours, job, "TIMEOUT", "one", 0)
	for n := range 3 {
		b.dead(t, b.ours, job, "USER_ERROR", fmt.Sprintf("no order %d", n), time.Minute)
	}
	theirs := b.dead(t, b.theirs, b.makeJob(t, b.theirs).ID, "USER_ERROR", "no order 1", time.Minute)
	discard := func(body string) answer {
		return b.do(t, request{method: "POST", path: base + "/dead-letters/discard", token: token, body: body})
	}
	group := fmt.Sprintf(`{"filter":{"fingerprint":"%s"}}`, deadletter.Fingerprint("USER_ERROR", "no order 1"))
	for _, want := range []int{3, 0} {
		if got := read[api.DiscardResult](t, discard(group), http.StatusOK); got.DiscardedCount != want || got.HasMore {
			t.Errorf("it discarded %+v, want %d", got, want)
		}
	}
	if n := b.recorded(t, "WHERE object_type = 'deadLetter' AND action = 'discardDeadLetters' AND after::jsonb ->> 'discarded' = '3'"); n != 1 {
		t.Errorf("the audit log has %d entries of the call, want 1", n)
	}
	one := request{method: "DELETE", path: base + "/dead-letters/" + id.String(), token: token}
	if got := b.do(t, one); got.status != http.StatusNoContent {
		t.Errorf("discarding one answered %d %s", got.status, got.body)
	}
	refused(t, b.do(t, one), http.StatusNotFound, "DEAD_LETTER_NOT_FOUND")
	if got := b.do(t, request{method: "GET", path: base + "/executions/" + id.String(), token: token}); got.status != http.StatusOK {
		t.Errorf("its execution answers %d", got.status)
	}
	if diff := cmp.Diff([]uuid.UUID{theirs}, b.deadLetters(t, b.token(t, b.theirs, identity.Viewer), "")); diff != "" {
		t.Errorf("another tenant's (-want +got):\n%s", diff)
	}
	for _, wrong := range []string{`{}`, `{"filter":{}}`, `{"filter":{"fingerprint":"x"}}`, `{"filter":{"ids":[]}}`} {
		refused(t, discard(wrong), http.StatusBadRequest, "VALIDATION_FAILED")
	}
}

// makeReplay makes a replay of the dead letters of a job.
func (b *bundle) makeReplay(t *testing.T, who tenant.Actor, job uuid.UUID) uuid.UUID {
	t.Helper()
	b.endReplays(t)
	made, _, err := b.deps.Replays.Create(t.Context(), who, replays.Request{Filter: deadletter.Filter{JobID: &job}}, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// endReplays ends the replays that are under way: a tenant may have ten.
func (b *bundle) endReplays(t *testing.T) {
	t.Helper()
	if _, err := b.engine.Pool().Exec(t.Context(), "UPDATE dead_letter_replays SET status = 'cancelled', finished_at = now() WHERE status IN ('canary', 'running')"); err != nil {
		t.Fatal(err)
	}
}

func TestManyDeadLettersAreReplayed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token, job := b.token(t, b.ours, identity.Operator), b.makeJob(t, b.ours).ID
	b.dead(t, b.ours, job, "TIMEOUT", "x", time.Minute)
	path := base + "/dead-letter-replays"
	create := func(body, key string) answer {
		return b.do(t, request{method: "POST", path: path, token: token, body: body, header: map[string]string{"Idempotency-Key": key}})
	}
	body := fmt.Sprintf(`{"filter":{"jobId":"%s","errorType":["TIMEOUT"]},"ratePerMinute":7}`, job)
	made := read[api.DeadLetterReplay](t, create(body, "a"), http.StatusAccepted)
	if made.Status != "canary" || made.Total != 1 || made.RatePerMinute != 7 || made.Filter.JobID == nil || *made.Filter.JobID != job || made.CreatedBy == "" {
		t.Errorf("it begins as %+v", made)
	}
	if again := read[api.DeadLetterReplay](t, create(body, "a"), http.StatusAccepted); again.ID != made.ID {
		t.Errorf("the same request made %s, want %s", again.ID, made.ID)
	}
	refused(t, create(body, "b"), http.StatusConflict, "CONFLICT")
	refused(t, create(`{"filter":{"errorType":["USER_ERROR"]}}`, "c"), http.StatusConflict, "CONFLICT")
	for n, wrong := range []string{
		`{}`, `{"filter":{}}`, `{"filter":{"errorType":["TIMEOUT"]},"ratePerMinute":0}`, `{"filter":{"errorType":["TIMEOUT"]},"ratePerMinute":3001}`, `{"filter":{"errorType":["TIMEOUT"]},"canary":"no"}`,
	} {
		refused(t, create(wrong, fmt.Sprint(n)), http.StatusBadRequest, "VALIDATION_FAILED")
	}
	list := read[api.DeadLetterReplayPage](t, b.do(t, request{method: "GET", path: path, token: token}), http.StatusOK)
	if len(list.Items) != 1 || list.Items[0].ID != made.ID {
		t.Errorf("the list is %+v", list)
	}
	cancelled := read[api.DeadLetterReplay](t, b.do(t, request{method: "POST", path: path + "/" + made.ID.String() + "/cancel", token: token}), http.StatusOK)
	if cancelled.Status != "cancelled" || cancelled.FinishedAt == nil {
		t.Errorf("cancelled it is %+v", cancelled)
	}
	refused(t, b.do(t, request{method: "GET", path: path + "/" + uuid.NewString(), token: token}), http.StatusNotFound, "REPLAY_NOT_FOUND")
}
