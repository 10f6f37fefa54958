package lease_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// holderURL and holderTTL are set in the process that a test starts and kills.
const (
	holderURL = "LEASE_TEST_HOLDER_URL"
	holderTTL = "LEASE_TEST_HOLDER_TTL"
)

// TestHolder is no test: it is the process that holds a lease until it is killed.
func TestHolder(t *testing.T) {
	t.Parallel()
	url := os.Getenv(holderURL)
	if url == "" {
		t.Skip("it is a part of TestAKilledOwnersLeaseEndsByItself")
	}
	ttl, err := time.ParseDuration(os.Getenv(holderTTL))
	if err != nil {
		t.Fatal(err)
	}
	store := lease.NewStore(lease.Config{
		DB: open(t, url, postgres.Engine), Holder: "to be killed", TTL: ttl, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()),
	})
	_, err = store.Run(t.Context(), name, func(ctx context.Context, _ lease.Lease) error {
		fmt.Println("held")
		<-ctx.Done()
		return nil
	})
	t.Errorf("the lease ended before the process: %v", err)
}

// holder starts a process that holds the lease.
func (b *bundle) holder(ttl time.Duration) *exec.Cmd {
	b.t.Helper()
	holder := exec.Command(os.Args[0], "-test.run=^TestHolder$", "-test.timeout=5m") // its caller kills it
	holder.Env = append(os.Environ(), holderURL+"="+b.url, holderTTL+"="+ttl.String())
	out, err := holder.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		b.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "held" {
	}
	return holder
}

func TestAKilledOwnersLeaseEndsByItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	next := b.process("next", time.Minute)
	// A busy machine may stand still for as long as the lease stands, although its owner lives.
	b.untilInTime(func(ttl time.Duration) (problem string) {
		holder := b.holder(ttl)
		_, held := next.Acquire(t.Context(), name)
		if err := holder.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = holder.Wait() // it was killed
		if !errors.Is(held, lease.ErrHeld) {
			return fmt.Sprintf("acquire while the owner lives: %v, want %v", held, lease.ErrHeld)
		}
		return ""
	})
	_, fence, expires, _ := b.row()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		l, err := next.Acquire(t.Context(), name)
		if errors.Is(err, lease.ErrHeld) {
			continue
		}
		if err != nil || l.Fence != fence+1 {
			t.Fatalf("fence %d after %d: %v", l.Fence, fence, err)
		}
		break
	}
	var acquired time.Time
	if err := b.admin.QueryRow(t.Context(), "SELECT acquired_at FROM scheduler_locks WHERE name = $1", name).Scan(&acquired); err != nil {
		t.Fatal(err)
	}
	if wait := acquired.Sub(expires); wait < 0 || wait > 30*time.Second {
		t.Errorf("taken %v after the end", wait)
	}
}
