package rest_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Whichever way an execution comes to be, it counts once for its day, and one
// beyond the limit is refused.
func TestEveryWayCountsOnceForTheDay(t *testing.T) {
	t.Parallel()
	b, token := limited(t, tenant.Spec{Limits: tenant.Limits{MaxExecutionsPerDay: ptr(7)}})
	worker, id := b.claimer(t), b.wide(t, b.ours).ID
	path := base + "/jobs/" + id.String() + "/trigger"
	// Of a day to come, which no midnight ends: what comes late counts for it.
	_, err := b.engine.Pool().Exec(t.Context(), "INSERT INTO execution_days VALUES ($1, (now() AT TIME ZONE 'UTC')::date + 2, 0)", b.ours.TenantID)
	if err != nil {
		t.Fatal(err)
	}
	counted := func() (n int) {
		if err := b.engine.Pool().QueryRow(t.Context(), "SELECT executions FROM execution_days").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	trigger := func(key string) answer {
		return b.do(t, request{method: "POST", path: path, token: token, header: map[string]string{"Idempotency-Key": key}})
	}
	over := read[api.Execution](t, trigger("one"), http.StatusAccepted).ID
	read[api.Execution](t, trigger("one"), http.StatusAccepted) // the same one
	if n := counted(); n != 1 {
		t.Errorf("a trigger and its repetition: %d are counted", n)
	}
	worker.claim(over)
	worker.complete(false, over)
	retry := `{"ids":` + ids(t, over) + `}`
	for i, way := range []func(){
		func() {
			read[api.Execution](t, b.do(t, request{method: "POST", path: base + "/executions/" + over.String() + "/retry", token: token}), http.StatusAccepted)
		},
		func() { b.bulk(t, "/jobs/bulk/trigger", `{"ids":`+ids(t, id)+`}`, "Idempotency-Key", "k") },
		func() { b.bulk(t, "/jobs/bulk/trigger", `{"ids":`+ids(t, id)+`}`, "Idempotency-Key", "l") },
		func() { b.bulk(t, "/executions/bulk/retry", retry) },
		func() { b.call(t, "POST", id.String()+"/trigger", "{}", b.ours) },
		func() { trigger("two") },
	} {
		way()
		if got := counted(); got != i+2 {
			t.Errorf("after way %d, %d executions are counted, want %d", i, got, i+2)
		}
	}
	b.bulk(t, "/jobs/bulk/trigger", `{"ids":`+ids(t, id)+`}`, "Idempotency-Key", "l") // was done
	if n := b.stored(t)["active_executions"]; n != 6 || counted() != 7 {
		t.Errorf("%d executions wait and %d are counted", n, counted())
	}
	met(t, trigger("three"), http.StatusTooManyRequests, "QUOTA_EXCEEDED", "maxExecutionsPerDay", 7)
	met(t, b.do(t, request{method: "POST", path: base + "/executions/" + over.String() + "/retry", token: token}), http.StatusTooManyRequests, "QUOTA_EXCEEDED", "maxExecutionsPerDay", 7)
	for path, body := range map[string]string{"/jobs/bulk/trigger": `{"ids":` + ids(t, id) + `}`, "/executions/bulk/retry": retry} {
		if _, done, faults := b.bulk(t, path, body); len(done) != 0 || len(faults) != 1 {
			t.Errorf("%s at the limit: %v and %v", path, done, faults)
		} else if code := faults[map[string]uuid.UUID{"/jobs/bulk/trigger": id, "/executions/bulk/retry": over}[path]]; code != "QUOTA_EXCEEDED" {
			t.Errorf("%s at the limit: %s", path, code)
		}
	}
	refusedService(t, b.call(t, "POST", id.String()+"/trigger", "{}", b.ours), http.StatusTooManyRequests, "QUOTA_EXCEEDED")
	if counted() != 7 {
		t.Errorf("what was refused is counted: %d", counted())
	}
}
