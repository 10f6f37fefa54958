package rest_test

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/identity"
)

var greedyFor = flag.Duration("greedy", 0, "for how long to measure one tenant's reads while 100 clients of another list greedily")

// While 100 clients of one tenant list what nothing fits, another's reads answer
// within 250 ms at p99. By hand, with -greedy 10s, on a machine that does nothing else.
func TestGreedyReaders(t *testing.T) {
	if *greedyFor == 0 {
		t.Skip("only with -greedy, alone on a machine")
	}
	const rows = 300_000
	b := setup(t)
	b.makeJob(t, b.ours)
	for range 20 {
		b.makeJob(t, b.theirs)
	}
	for range rows / 50_000 {
		if _, err := b.connect(t).Exec(t.Context(), `INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, status,
				attempt, max_attempts, started_at, completed_at, duration_ms, created_at)
			SELECT gen_random_uuid(), at, $1, gen_random_uuid(), 1, 'manual', 'ada', 'http', 'completed', 1, 1, at, at, 1, at
			FROM generate_series(1, 50000) n, LATERAL (SELECT date_trunc('month', now()) + n * interval '1 second' * random() AS at) i`, b.ours.TenantID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.connect(t).Exec(t.Context(), "VACUUM ANALYZE job_executions"); err != nil {
		t.Fatal(err)
	}
	viewer, other := b.token(t, b.ours, identity.Viewer), b.token(t, b.theirs, identity.Viewer)
	ask := func(path, token string) int {
		r := httptest.NewRequest(http.MethodGet, base+path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		b.handler.ServeHTTP(w, r)
		return w.Code
	}
	var stop atomic.Bool
	var answered, refused atomic.Int64
	var clients sync.WaitGroup
	for range 100 {
		clients.Go(func() {
			for !stop.Load() {
				if ask("/executions?triggeredBy=nobody", viewer) == http.StatusOK {
					answered.Add(1)
				} else {
					refused.Add(1)
					<-time.After(time.Second) // as Retry-After says
				}
			}
		})
	}
	<-time.After(time.Second)
	var took []time.Duration
	failed := 0
	for began := clock.Start(); began.Elapsed() < *greedyFor; {
		mark := clock.Start()
		for _, path := range []string{"/jobs?limit=20", "/executions?limit=20", "/jobs/" + uuid.NewString()} {
			if code := ask(path, other); code >= 429 {
				failed++
			}
			took = append(took, mark.Elapsed())
			mark = clock.Start()
		}
		<-time.After(20 * time.Millisecond)
	}
	stop.Store(true)
	clients.Wait()
	slices.Sort(took)
	t.Logf("%d reads of the other tenant: p50 %v, p99 %v, longest %v, refused %d; the greedy one: %d pages of 10,000 rows, %d refused", len(took),
		took[len(took)/2], took[len(took)*99/100], took[len(took)-1], failed, answered.Load(), refused.Load())
	if p99 := took[len(took)*99/100]; p99 > 250*time.Millisecond || failed > 0 {
		t.Errorf("p99 is %v, and %d were refused", p99, failed)
	}
}
