package watch_test

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/monitor"
)

// TestLoad measures a hundred thousand monitors with a thousand pings a second, and a thousand
// that become late at once. It decides nothing, and runs where SCHEDULER_MONITOR_LOAD is set.
func TestLoad(t *testing.T) {
	if os.Getenv("SCHEDULER_MONITOR_LOAD") == "" {
		t.Skip("SCHEDULER_MONITOR_LOAD is not set")
	}
	b := setup(t)
	b.exec(`INSERT INTO tenants (id, name) SELECT gen_random_uuid(), 'x' FROM generate_series(1, 20)`)
	b.exec(`INSERT INTO monitors (id, tenant_id, name, interval_seconds, start_grace_seconds, completion_grace_seconds, ping_key, created_by, status, expected_at, deadline, state)
		SELECT gen_random_uuid(), t.id, 'm' || n, 3600, 60, 60, 'k' || row_number() OVER (), 'x', 'ok', now() + interval '1 hour', now() + interval '61 minutes', '{"runs": 1}'
		FROM (SELECT id FROM tenants WHERE name = 'x') t, generate_series(1, 5000) n`)
	b.exec("VACUUM ANALYZE monitors")
	desk, stop := b.desk()
	const rate, seconds = 1000, 20
	var mu sync.Mutex
	var took []time.Duration
	var failed int
	var pings sync.WaitGroup
	begin := clock.Start()
	for n := range rate * seconds {
		clock.Sleep(t.Context(), time.Duration(n)*time.Second/rate-begin.Elapsed())
		key := "k" + strconv.Itoa(1+(n*7919)%100_000)
		pings.Go(func() {
			came := clock.Start()
			_, err := desk.Ping(t.Context(), key, monitor.Ping{Signal: monitor.Success, Exit: 0, Log: "copied 1204 rows"})
			mu.Lock()
			defer mu.Unlock()
			if took = append(took, came.Elapsed()); err != nil {
				failed++
			}
		})
	}
	pings.Wait()
	t.Logf("%d pings in %v, %d failed", len(took), begin.Elapsed(), failed)
	stop()
	slices.Sort(took)
	t.Logf("p50 %v, p99 %v, longest %v", took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	pass := func(what string) {
		b.touch()
		at := clock.Start()
		r := b.pass()
		t.Logf("%s: %+v in %v", what, r, at.Elapsed())
	}
	pass("a pass with nothing due")
	b.exec(`UPDATE monitors SET deadline = now() - interval '1 second', expected_at = now() - interval '61 seconds' WHERE id IN (SELECT id FROM monitors ORDER BY id LIMIT 1000)`)
	b.exec("DELETE FROM monitor_gaps")
	pass("a thousand late")
	pass("and after them")
	t.Logf("missed: %s", b.text("SELECT count(*)::text FROM monitor_runs WHERE outcome = 'missed'"))
}
