package promoter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// pooled says which of the executions that wait are in the pool.
func (b *bundle) pooled(t *testing.T) (ids []uuid.UUID) {
	t.Helper()
	rows, err := b.engine.Pool().Query(t.Context(), "SELECT id FROM active_executions WHERE pooled AND sweep_at = 'infinity' ORDER BY scheduled_at, id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// Executions that cannot be hinted are in the pool from the first moment on.
func TestWithoutRedisExecutionsArePooled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	due := *j.NextExecutionAt
	b.hints.err = errors.New("redis is away")
	b.pass(t, b.promoter, due)
	if diff := cmp.Diff([]uuid.UUID{execution.ScheduledID(j.ID, due)}, b.pooled(t)); diff != "" {
		t.Errorf("in the pool (-want +got):\n%s", diff)
	}
	for _, after := range []time.Duration{5 * time.Second, time.Minute} {
		if r := b.sweep(t, due.Add(after)); r.Pooled != 0 {
			t.Errorf("after %v it was put there again: %+v", after, r)
		}
	}
}

// failing accepts no hint although it says that there is room.
type failing struct{ *hints }

func (failing) Publish(context.Context, queue.Lane, []uuid.UUID) error { return errors.New("lost") }

func (failing) PublishTogether(context.Context, queue.Lane, []uuid.UUID) error {
	return errors.New("lost")
}

func (b *bundle) with(hints interface {
	Publish(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error
	PublishTogether(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error
	LostContents(ctx context.Context) (lost bool, err error)
	Depth(ctx context.Context) (map[queue.Lane]int, error)
},
) *promoter.Promoter {
	return promoter.New(promoter.Config{
		DB: b.engine, Hints: hints, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler), CatchupPerSecond: func() int { return 100 },
	})
}

func TestHintThatFailsLeavesItsExecutionsInThePool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	due := *j.NextExecutionAt
	b.pass(t, b.with(failing{b.hints}), due)
	if diff := cmp.Diff([]uuid.UUID{execution.ScheduledID(j.ID, due)}, b.pooled(t)); diff != "" {
		t.Errorf("in the pool (-want +got):\n%s", diff)
	}
}

// An execution of a worker of a tenant's own is in the pool at once: nobody hints it.
func TestRemoteExecutionsAreNotHinted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.Type, s.Config = "remote", []byte(`{"functionName":"invoice"}`) })
	due := *j.NextExecutionAt
	b.pass(t, b.promoter, due)
	if sent := b.hints.take(); len(sent) != 0 || !slices.Equal(b.pooled(t), []uuid.UUID{execution.ScheduledID(j.ID, due)}) {
		t.Errorf("sent %v, in the pool %v", sent, b.pooled(t))
	}
}

// fullLane has one lane that takes no more.
type fullLane struct{ *hints }

func (fullLane) Depth(context.Context) (map[queue.Lane]int, error) {
	return map[queue.Lane]int{queue.Low: queue.Window, queue.Normal: queue.Window - 1}, nil
}

// Hints wait in Redis up to a bound; what is beyond it waits where it can be
// taken in any order.
func TestWhatFindsNoRoomInItsLaneIsPooled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	low := b.create(t, nil)
	due := *low.NextExecutionAt
	normal := b.create(t, func(s *job.Spec) { s.Priority = 5 })
	b.dueAt(t, normal, due) // it may have been created much later
	p := b.with(fullLane{b.hints})
	for b.pass(t, p, due.Add(time.Second)).Claimed > 0 {
	}
	sent := b.hints.take()
	if len(sent[queue.Low]) != 0 || len(sent[queue.Normal]) == 0 {
		t.Errorf("hinted: %v", sent)
	}
	if ids := b.pooled(t); len(ids) == 0 || ids[0] != execution.ScheduledID(low.ID, due) {
		t.Errorf("in the pool: %v", ids)
	}
}

// A tenant with a backlog in the pool goes on there, so that nothing overtakes it;
// nobody else does.
func TestTenantWithALineGoesOnInThePool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.create(t, nil)
	due := *other.NextExecutionAt
	exec(t, b.database.AdminURL, fmt.Sprintf(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts,
			timeout_ms, pooled, available_at, sweep_at)
		SELECT gen_random_uuid(), '%s', gen_random_uuid(), 1, now(), 'scheduled', 'function', 1, 1000, true, now() - interval '1 hour', 'infinity' FROM generate_series(1, %d)`,
		uuid.New(), 100))
	b.pass(t, b.another(), due)
	if sent := b.hints.take(); len(sent[queue.Low]) != 1 {
		t.Fatalf("another tenant's line kept the hint of a run back: %v", sent)
	}
	exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE active_executions SET tenant_id = '%s' WHERE pooled", b.who.TenantID))
	b.pass(t, b.another(), due.Add(time.Second))
	if sent := b.hints.take(); len(sent) != 0 {
		t.Errorf("a run overtook its tenant's line: %v", sent)
	}
}

// Hints that Redis may have held are not waited for when it is away or empty.
func TestOutageOfRedisPoolsWhatItHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 30 {
		b.create(t, nil)
	}
	// The first of them were made a while ago on a machine that does other things.
	due := clockIn(2 * time.Second).Truncate(time.Second)
	exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE scheduled_jobs SET next_execution_at = '%s'", due.Format(time.RFC3339)))
	b.pass(t, b.promoter, due)
	hinted := len(b.hints.take()[queue.Low])
	if r := b.sweep(t, due.Add(2*time.Second)); r.Pooled != 0 || hinted < 30 {
		t.Fatalf("while it is there: %+v of %d", r, hinted)
	}
	b.hints.err = errors.New("redis is away")
	if r := b.sweep(t, due.Add(500*time.Millisecond)); r.Pooled != 0 {
		t.Errorf("at once, when it is away: %+v", r)
	}
	if r := b.sweep(t, due.Add(1100*time.Millisecond)); r.Pooled != hinted {
		t.Errorf("after a second: %+v, want %d", r, hinted)
	}
	b.hints.err = nil
	exec(t, b.database.AdminURL, "DELETE FROM active_executions") // else what becomes due stands behind it
	b.pass(t, b.promoter, due.Add(time.Second))
	again := len(b.hints.take()[queue.Low])
	b.hints.lost = true
	if r := b.sweep(t, due.Add(1100*time.Millisecond)); !r.RedisLost || r.Pooled != again || again == 0 {
		t.Errorf("when it is empty: %+v, want %d", r, again)
	}
}

// A pass that cannot write hands out no places to late runs: however many fail
// while the database takes nothing, catching up begins at once when it does.
func TestPassesThatFailDoNotPutOffLateRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var due time.Time
	for range 5 {
		due = *b.create(t, nil).NextExecutionAt
	}
	now := due.Add(time.Minute)
	exec(t, b.database.AdminURL, "REVOKE INSERT ON active_executions FROM scheduler_engine")
	for range 3 {
		if _, err := b.promoter.Pass(t.Context(), now); err == nil {
			t.Fatal("a pass wrote what it may not")
		}
	}
	exec(t, b.database.AdminURL, "GRANT INSERT ON active_executions TO scheduler_engine")
	b.pass(t, b.promoter, now)
	var runs int
	var first, last time.Time
	err := b.engine.Pool().QueryRow(t.Context(), "SELECT count(*), min(available_at), max(available_at) FROM active_executions").Scan(&runs, &first, &last)
	if err != nil {
		t.Fatal(err)
	}
	if most := now.Add(time.Duration(runs-1) * 10 * time.Millisecond); !first.Equal(now) || last.After(most) {
		t.Errorf("%d late runs, 100 a second: the first may start after %v, the last after %v", runs, first.Sub(now), last.Sub(now))
	}
}
