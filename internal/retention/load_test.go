package retention_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/partition"
)

// load writes and reads executions for as long as it is let.
type load struct {
	stop  context.CancelFunc
	group sync.WaitGroup

	mu      sync.Mutex
	done    int
	failed  []error
	longest time.Duration
}

// load starts two writers and two readers of the current month, and a reader of
// everything.
func (b *bundle) load() *load {
	ctx, stop := context.WithCancel(b.t.Context())
	l := &load{stop: stop}
	for _, work := range []func(context.Context) error{b.write, b.write, b.readMonth, b.readMonth, b.readAll} {
		l.group.Go(func() {
			for ctx.Err() == nil {
				mark := clock.Start()
				err := work(context.WithoutCancel(ctx))
				l.note(err, mark.Elapsed())
			}
		})
	}
	return l
}

func (l *load) note(err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done++
	l.longest = max(l.longest, took)
	if err != nil {
		l.failed = append(l.failed, err)
	}
}

// end stops it and reports failures, and waits above a limit.
func (l *load) end(t *testing.T, limit time.Duration) {
	t.Helper()
	l.stop()
	l.group.Wait()
	t.Logf("%d statements, %d failed, the longest took %v", l.done, len(l.failed), l.longest)
	if len(l.failed) > 0 || l.done == 0 {
		t.Errorf("%d of %d statements failed: %v", len(l.failed), l.done, l.failed)
	}
	if l.longest > limit {
		t.Errorf("a statement took %v, more than %v", l.longest, limit)
	}
}

func (b *bundle) write(ctx context.Context) error {
	_, err := b.db.Pool().Exec(ctx, insertExecution, b.month.Add(time.Hour), b.tenant)
	return err
}

func (b *bundle) readMonth(ctx context.Context) error {
	_, err := b.db.Pool().Exec(ctx, "SELECT * FROM job_executions WHERE tenant_id = $1 AND scheduled_at >= $2 LIMIT 50", b.tenant, b.month)
	return err
}

func (b *bundle) readAll(ctx context.Context) error {
	_, err := b.db.Pool().Exec(ctx, "SELECT * FROM job_executions WHERE tenant_id = $1 ORDER BY scheduled_at LIMIT 50", b.tenant)
	return err
}

// stall is what no statement may take. A statement behind a removal waits for as
// long as a reader pleases; a machine that is busy with other tests takes a few
// seconds. The figures of a quiet one are in docs/run/storage.md.
const stall = 30 * time.Second

func TestWritersAndReadersGoOnWhilePartitionsComeAndGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.history(40)
	l := b.load()
	removed := 0
	for months := 38; months >= 1; months-- {
		if _, err := partition.Make(t.Context(), db.New(b.db.Pool()), []time.Time{b.month.AddDate(0, 4+38-months, 0)}); err != nil {
			t.Error(err)
		}
		removed += len(b.pass(months).Partitions)
	}
	l.end(t, stall)
	if removed += len(b.pass(1).Partitions); removed != 39 {
		t.Errorf("%d partitions were removed, want 39", removed)
	}
}

// A reader that takes long must not make everybody wait behind the removal.
func TestALongReaderPostponesTheRemoval(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.history(16)
	reader := b.connect(b.database.AdminURL)
	for _, sql := range []string{"BEGIN", "SELECT count(*) FROM job_executions"} {
		if _, err := reader.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	l := b.load()
	for range 5 {
		if r := b.pass(13); !r.Busy || len(r.Partitions) > 0 {
			t.Errorf("removed what is being read: %+v", r)
		}
	}
	l.end(t, stall)
	if _, err := reader.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if r := b.pass(13); r.Busy || len(r.Partitions) != 3 {
		t.Errorf("after the reader: %+v", r)
	}
}
