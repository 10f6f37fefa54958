package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Store keeps the members.
type Store struct{ q *db.Queries }

// NewStore makes a store.
func NewStore(d *postgres.DB) *Store { return &Store{q: db.New(d.Pool())} }

// candidates is how many ids an incarnation chooses from: so many that each of the eight shards has some of them.
const candidates = 64

// Register starts an incarnation's lease and returns its id. It ignores m.ID and chooses an id in whose shard the
// fewest other workers live. Claims by workers of one shard wait for each other's commits. By chance two of three workers have the same one in a third
// of all fleets, and of eight workers nearly always. Workers that register at one moment still choose by chance.
func (s *Store) Register(ctx context.Context, m Member) (id uuid.UUID, err error) {
	ids := make([]uuid.UUID, candidates)
	for i := range ids {
		ids[i] = uuid.New()
	}
	if id, err = s.q.ChooseShard(ctx, ids); err != nil {
		return uuid.Nil, fmt.Errorf("choose the worker's id: %w", postgres.Fault(err))
	}
	err = s.q.InsertWorker(ctx, db.InsertWorkerParams{
		ID: id, Host: m.Host, Pid: int32(m.PID), Slots: int32(m.Slots), JobTypes: append([]string{}, m.Types...), LeaseSeconds: m.Lease.Seconds(),
	})
	if err != nil {
		return uuid.Nil, fmt.Errorf("register worker: %w", postgres.Fault(err))
	}
	return id, nil
}

// Renew prolongs the lease and reports whether it still stood. Once it did
// not, the incarnation is over for good.
func (s *Store) Renew(ctx context.Context, m Member, running int) (stands bool, err error) {
	n, err := s.q.RenewWorker(ctx, db.RenewWorkerParams{ID: m.ID, Running: int32(running), LeaseSeconds: m.Lease.Seconds()})
	if err != nil {
		return false, fmt.Errorf("renew the worker's lease: %w", postgres.Fault(err))
	}
	return n == 1, nil
}

// Retire ends an incarnation that drained.
func (s *Store) Retire(ctx context.Context, id uuid.UUID) error {
	if err := s.q.RetireWorker(ctx, id); err != nil {
		return fmt.Errorf("retire worker: %w", postgres.Fault(err))
	}
	return nil
}

// MarkDead marks the members whose lease ran out as dead and answers which. A zero
// now means the database's clock.
func (s *Store) MarkDead(ctx context.Context, now time.Time) ([]DeadWorker, error) {
	rows, err := s.q.MarkDeadWorkers(ctx, postgres.At(now))
	if err != nil {
		return nil, fmt.Errorf("mark dead workers: %w", postgres.Fault(err))
	}
	dead := make([]DeadWorker, len(rows))
	for i, r := range rows {
		dead[i] = DeadWorker{ID: r.ID, Host: r.Host, PID: int(r.Pid)}
	}
	return dead, nil
}

// Forget deletes members that died more than a day ago.
func (s *Store) Forget(ctx context.Context, now time.Time) error {
	if _, err := s.q.DeleteDeadWorkers(ctx, postgres.At(now)); err != nil {
		return fmt.Errorf("forget dead workers: %w", postgres.Fault(err))
	}
	return nil
}

// Alive counts the members that live. It may be asked as postgres.API.
func (s *Store) Alive(ctx context.Context) (int, error) {
	n, err := s.q.CountLiveWorkers(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("count workers: %w", postgres.Fault(err))
	}
	return int(n), nil
}

// Gauges answers the gauges that a promoter took last. It may be asked as
// postgres.API.
func (s *Store) Gauges(ctx context.Context) (Gauges, error) {
	rows, err := s.q.ListGauges(ctx)
	if err != nil {
		return Gauges{}, fmt.Errorf("read the gauges: %w", postgres.Fault(err))
	}
	g := Gauges{Values: make(map[string]int64, len(rows)), Counted: -1}
	for _, r := range rows {
		g.Values[r.Name] = r.Value
		if r.Name == GaugeCounted {
			g.Counted = time.Duration(max(0, r.AgeSeconds) * float64(time.Second))
		}
	}
	return g, nil
}
