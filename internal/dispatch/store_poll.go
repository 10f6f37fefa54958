package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	// poolStep is how many parts of the pool one poll reads (a tenant has one for
	// each priority and type). unblockedStep is of how many jobs, and of how many
	// keys, one looks for executions with a free slot or key, and unblockedFew the least of
	// one that looks at few.
	poolStep      = 96
	unblockedStep = 256
	unblockedFew  = 32
)

// Poll lists executions in the pool that may start, in the order in which they
// should, and the tenant after which the next poll goes on. busy is how many
// executions of each tenant this worker runs.
func (s *Store) Poll(ctx context.Context, most int, after uuid.UUID, busy map[uuid.UUID]int) ([]Candidate, uuid.UUID, error) {
	p := s.polling(most, after, busy)
	p.Spread = int32(most)
	found, err := s.queries().ListPooledExecutions(ctx, p)
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("poll the pool: %w", postgres.Fault(err))
	}
	return candidates(found.Ids, found.TenantIds), found.NextAfter, nil
}

// patience is how long a poll waits for its turn: for some forty others on a busy server.
const patience = 3 * time.Second

// Turn is how a poll keeps out of the way of those of other workers.
type Turn int

const (
	NoTurn    Turn = iota // it runs beside them
	PlainTurn             // it waits until none of them has the turn
	ShownTurn             // the same, and TurnIsFree sees it until its claim is committed
)

// PollAndClaim is Poll, and Claim of what choose says of the candidates, in one
// transaction of two round trips: nobody else finds them meanwhile. choose also learns how
// long the poll waited for its turn. A turn that has not come within patience, and a poll that
// waited for a row in its turn (see postgres.DB.InTurn), are errors that timed out, before
// choose is called. After an error the claim may have been made all the
// same: Claim with the same token finds it.
//
// Polls of one backlog that run side by side each read what the others hold and what they have
// just removed: with 16 workers that took more of the server than the claims did. So they take
// turns, in all workers, unless turn is NoTurn.
//
// spare is how many more it finds of a line than the limits of its tenant leave room for: 0,
// but where what stands there could not be claimed.
func (s *Store) PollAndClaim(ctx context.Context, worker, token uuid.UUID, most, spare int, after uuid.UUID, busy map[uuid.UUID]int, turn Turn,
	choose func(found []Candidate, waited time.Duration) []uuid.UUID,
) (won []Claimed, next uuid.UUID, err error) {
	run := s.db.InTxLed
	if turn != NoTurn {
		run = func(ctx context.Context, fn func(tx *postgres.Tx) error) error {
			return s.db.InTurn(ctx, patience, turn == ShownTurn, func(q *db.Queries) error { return s.pollNothing(ctx, q) }, fn)
		}
	}
	err = run(ctx, func(tx *postgres.Tx) error {
		p := s.polling(most, after, busy)
		p.Spread = int32(spare)
		found, err := tx.ListPooledExecutions(ctx, p)
		if err != nil {
			return fmt.Errorf("poll the pool: %w", err)
		}
		next = found.NextAfter
		ids := choose(candidates(found.Ids, found.TenantIds), tx.Waited)
		if len(ids) == 0 {
			return nil
		}
		return tx.CommitWith(ctx, func(q *db.Queries) error {
			won, err = claimReady(ctx, q, db.ClaimExecutionsParams{WorkerID: &worker, LeaseToken: &token, Ids: ids, LeftTypes: s.leftTypes, MaxRunning: s.maxRunning()})
			return err
		})
	})
	return won, next, err
}

// pollNothing is a poll that looks at no execution: its session has the plan of the next one then.
func (s *Store) pollNothing(ctx context.Context, q *db.Queries) error {
	p := s.polling(0, uuid.Nil, nil)
	p.Lines = 0
	if _, err := q.ListPooledExecutions(ctx, p); err != nil {
		return fmt.Errorf("have the poll planned: %w", err)
	}
	return nil
}

// TurnIsFree says whether no poll with a ShownTurn is under way, nor its claim.
func (s *Store) TurnIsFree(ctx context.Context) (bool, error) {
	free, err := s.db.TurnIsFree(ctx)
	if err != nil {
		return false, fmt.Errorf("ask whether the turn is free: %w", err)
	}
	return free, nil
}

// OtherWorkers says whether any other worker of the service lives, whether one of them runs fewer types
// than this one, and how many are able to do what it does: they run all of its types, and had a slot free at
// their last heartbeat.
func (s *Store) OtherWorkers(ctx context.Context, worker uuid.UUID) (live, serveLess bool, able int, err error) {
	row, err := s.queries().DescribeOtherWorkers(ctx, worker)
	if err != nil {
		return false, false, 0, fmt.Errorf("ask of other workers: %w", postgres.Fault(err))
	}
	return row.Live, row.ServeLess, int(row.Able), nil
}

func (s *Store) polling(most int, after uuid.UUID, busy map[uuid.UUID]int) db.ListPooledExecutionsParams {
	p := db.ListPooledExecutionsParams{
		BatchSize: int32(most), Lines: poolStep, AfterTenant: after, LeftTypes: s.leftTypes, MaxRunning: s.maxRunning(),
		BusyTenants: make([]uuid.UUID, 0, len(busy)), BusyRuns: make([]int32, 0, len(busy)),
	}
	for tenant, runs := range busy {
		p.BusyTenants, p.BusyRuns = append(p.BusyTenants, tenant), append(p.BusyRuns, int32(runs))
	}
	return p
}

// PollUnblocked lists executions whose concurrency slot or key is free, and where the
// next poll goes on. With few it looks at twice as many jobs and keys as it wants executions, because most of them
// are free: a look takes 10 µs of the database, or 40 where next_for_key has to be asked, and workers that look at the same
// ones choose by chance.
func (s *Store) PollUnblocked(ctx context.Context, most int, few bool, after Position) ([]Candidate, Position, error) {
	step := unblockedStep
	if few {
		step = min(max(2*most, unblockedFew), unblockedStep)
	}
	found, err := s.queries().ListUnblockedExecutions(ctx, db.ListUnblockedExecutionsParams{
		BatchSize: int32(most), Step: int32(step), AfterJob: after.job, AfterTenant: after.tenant, AfterKey: after.key, LeftTypes: s.leftTypes, MaxRunning: s.maxRunning(),
	})
	if err != nil {
		return nil, Position{}, fmt.Errorf("poll for free slots and keys: %w", postgres.Fault(err))
	}
	return candidates(found.Ids, found.TenantIds), Position{job: found.NextAfter, tenant: found.NextTenant, key: found.NextKey}, nil
}

// Unhinted says whether any execution is in the pool or waits for a slot or key.
func (s *Store) Unhinted(ctx context.Context) (bool, error) {
	waits, err := s.queries().HasUnhintedExecutions(ctx)
	if err != nil {
		return false, fmt.Errorf("ask whether executions wait without a hint: %w", postgres.Fault(err))
	}
	return waits, nil
}

func candidates(ids, tenants []uuid.UUID) []Candidate {
	out := make([]Candidate, len(ids))
	for i, id := range ids {
		out[i] = Candidate{ID: id, Tenant: tenants[i]}
	}
	return out
}

// Pool puts executions into the pool.
func (s *Store) Pool(ctx context.Context, ids []uuid.UUID) error {
	if _, err := s.queries().PoolExecutions(ctx, ids); err != nil {
		return fmt.Errorf("pool executions: %w", postgres.Fault(err))
	}
	return nil
}

// PoolLate puts into the pool up to so many executions whose hint should have come
// until so long after now, and returns how many they were. A zero now means the
// database's clock. Where some is not nil it takes these alone.
func (s *Store) PoolLate(ctx context.Context, now time.Time, ahead time.Duration, most int, some []Found) (int, error) {
	n, err := s.queries().PoolLateExecutions(ctx, db.PoolLateExecutionsParams{
		Now: postgres.At(now), AheadMs: int32(ahead.Milliseconds()), BatchSize: int32(most), Ids: idsOf(some),
	})
	if err != nil {
		return 0, fmt.Errorf("pool late executions: %w", postgres.Fault(err))
	}
	return int(n), nil
}

// ListLate lists what PoolLate would take, in any order.
func (s *Store) ListLate(ctx context.Context, now time.Time, ahead time.Duration) ([]Found, error) {
	rows, err := s.queries().ListLateExecutions(ctx, db.ListLateExecutionsParams{
		Now: postgres.At(now), AheadMs: int32(ahead.Milliseconds()), BatchSize: SweepBatch,
	})
	if err != nil {
		return nil, fmt.Errorf("list late executions: %w", postgres.Fault(err))
	}
	out := make([]Found, len(rows))
	for i, r := range rows {
		out[i] = Found{ID: r.ID, Tenant: r.TenantID, Job: r.JobID}
	}
	return out, nil
}

// idsOf are the ids of some executions; nil where that is nil.
func idsOf(some []Found) []uuid.UUID {
	var ids []uuid.UUID
	for _, one := range some {
		ids = append(ids, one.ID)
	}
	return ids
}
