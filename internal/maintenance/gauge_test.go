package maintenance_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// One process counts what waits, and after a count that took long none does for
// long; the others read what it kept.
func TestOneProcessCountsForAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	b.pass(t, *j.NextExecutionAt)
	first, ofFirst := b.countedEngine(t)
	second, ofSecond := b.countedEngine(t)
	counts := func() (n int) {
		t.Helper()
		for _, engine := range []*postgres.DB{first, second} {
			if _, err := b.anotherMaintainer(func(c *maintenance.Config) { c.DB = engine }).Gauge(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return len(slices.DeleteFunc(append(ofFirst(), ofSecond()...), func(s string) bool { return s != "CountActiveExecutions" }))
	}
	// countsAfter is how often they count so long after a count that took so long. On a busy machine
	// a count may be due again between the two of them, so it is tried until it is what is wanted.
	countsAfter := func(tookMS, agoSeconds, want int) (n int) {
		t.Helper()
		for range 10 {
			exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE service_gauges SET value = %d, taken_at = now() - %d * interval '1 second' WHERE name = 'counted'", tookMS, agoSeconds))
			if n = counts(); n == want {
				break
			}
		}
		return n
	}
	n := counts()
	if n == 2 {
		n = countsAfter(10, 60, 1)
	}
	if n != 1 {
		t.Errorf("two processes counted %d times, want once", n)
	}
	gauges, err := fleet.NewStore(b.engine).Gauges(t.Context())
	if err != nil || gauges.Values[fleet.GaugeWaiting] != 1 || gauges.Values["backlog:delayed:low:function"]+gauges.Values["backlog:waiting:low:function"] != 1 {
		t.Errorf("kept %+v (%v), want one that waits for its time", gauges, err)
	}
	exec(t, b.database.AdminURL, "DELETE FROM active_executions")
	countsAfter(10, 60, 1)
	if gauges, err = fleet.NewStore(b.engine).Gauges(t.Context()); err != nil || gauges.Values["backlog:delayed:low:function"]+gauges.Values["backlog:waiting:low:function"] != 0 || gauges.Values[fleet.GaugeWaiting] != 0 {
		t.Errorf("kept %v (%v) once nothing waits", gauges, err)
	}
	for _, test := range []struct {
		tookMS, agoSeconds, want int
	}{
		{10, 3, 0},
		{10, 6, 1},
		{800, 60, 0},
		{800, 90, 1},
	} {
		if n := countsAfter(test.tookMS, test.agoSeconds, test.want); n != test.want {
			t.Errorf("counted %d times %d s after a count that took %d ms, want %d", n, test.agoSeconds, test.tookMS, test.want)
		}
	}
}

// The slots that are wanted are those of what runs, what may start, and what is due
// within a minute; what waits for its time wants none yet.
func TestWantedSlots(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 4 {
		b.create(t, nil)
	}
	exec(t, b.database.AdminURL, `UPDATE scheduled_jobs SET next_execution_at = now() + CASE n WHEN 1 THEN interval '-1 hour' WHEN 2 THEN interval '30 seconds' ELSE interval '2 minutes' END
		FROM (SELECT id AS i, row_number() OVER () AS n FROM scheduled_jobs) o WHERE i = id`)
	exec(t, b.database.AdminURL, "UPDATE scheduled_jobs SET status = 'paused' WHERE id IN (SELECT id FROM scheduled_jobs ORDER BY next_execution_at DESC LIMIT 1)")
	if _, err := b.anotherMaintainer(nil).Gauge(t.Context()); err != nil {
		t.Fatal(err)
	}
	gauges, err := fleet.NewStore(b.engine).Gauges(t.Context())
	if err != nil || gauges.Values["backlog:due:low:function"] != 2 {
		t.Errorf("kept %+v (%v), want two that are due soon", gauges.Values, err)
	}
	if _, err := b.anotherMaintainer(nil).Gauge(t.Context()); err != nil { // reads what the first one kept
		t.Fatal(err)
	}
}
