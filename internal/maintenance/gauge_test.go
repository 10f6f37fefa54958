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
			if err := b.anotherMaintainer(func(c *maintenance.Config) { c.DB = engine }).Gauge(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return len(slices.DeleteFunc(append(ofFirst(), ofSecond()...), func(s string) bool { return s != "CountActiveExecutions" }))
	}
	if n := counts(); n != 1 {
		t.Errorf("two processes counted %d times, want once", n)
	}
	gauges, err := fleet.NewStore(b.engine).Gauges(t.Context())
	if err != nil || gauges[fleet.GaugeWaiting] != 1 || gauges["backlog:delayed:low:function"]+gauges["backlog:waiting:low:function"] != 1 {
		t.Errorf("kept %v (%v), want one that waits for its time", gauges, err)
	}
	exec(t, b.database.AdminURL, "DELETE FROM active_executions")
	exec(t, b.database.AdminURL, "UPDATE service_gauges SET taken_at = now() - interval '1 minute' WHERE name = 'counted'")
	counts()
	if gauges, err = fleet.NewStore(b.engine).Gauges(t.Context()); err != nil || gauges["backlog:delayed:low:function"]+gauges["backlog:waiting:low:function"] != 0 || gauges[fleet.GaugeWaiting] != 0 {
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
		exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE service_gauges SET value = %d, taken_at = now() - %d * interval '1 second' WHERE name = 'counted'", test.tookMS, test.agoSeconds))
		if n := counts(); n != test.want {
			t.Errorf("counted %d times %d s after a count that took %d ms, want %d", n, test.agoSeconds, test.tookMS, test.want)
		}
	}
}
