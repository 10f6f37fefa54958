package chaos

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A short run with every kind of fault in the draw: nothing promised breaks.
func TestPromisesHoldUnderFaults(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it disturbs a whole installation for some 20 s")
	}
	c := Config{
		Seed: 7, Duration: 8 * time.Second, Quiet: time.Second, Calm: 2 * time.Second, Drain: 5 * time.Minute,
		APIs: 2, Promoters: 3, Workers: 4, Jobs: 15, Short: true, Faults: true, Backend: "auto", Tenants: 3, Burst: 40, Slots: 25,
		Storm: 5, Backlog: 2000, Readers: 5, First: []string{"refuse rows", "backlog"},
	}
	var out strings.Builder
	err := Run(t.Context(), c, &out, t.Output())
	if err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// A run that is stopped ends everything that it started.
func TestStoppedRunEndsEverything(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, Config{Seed: 1, Duration: time.Minute, APIs: 1, Promoters: 1, Workers: 1, Short: true, Backend: "auto", Tenants: 2}, t.Output(), t.Output())
	if err == nil {
		t.Error("a stopped run says that all is well")
	}
}
