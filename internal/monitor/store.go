package monitor

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// maxMembers bounds the list of workers.
const maxMembers = 1000

// Store reads the numbers. Each method acts for one tenant.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store { return &Store{db: db} }

// Overview reads a tenant's jobs and its backlog.
func (s *Store) Overview(ctx context.Context, who tenant.Actor) (o Overview, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		jobs, err := tx.CountJobsByStatus(ctx, db.CountJobsByStatusParams{TenantID: who.TenantID, Now: tx.At})
		if err != nil {
			return fmt.Errorf("count jobs: %w", err)
		}
		o = Overview{Active: jobs.Active, Paused: jobs.Paused, Inactive: jobs.Inactive, Lag: tx.At.Sub(jobs.OldestDueAt)}
		o.Backlogs, err = backlogs(ctx, tx, who)
		return err
	})
	return o, err
}

// Backlogs reads a tenant's backlog in each lane.
func (s *Store) Backlogs(ctx context.Context, who tenant.Actor) (lanes []Backlog, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		lanes, err = backlogs(ctx, tx, who)
		return err
	})
	return lanes, err
}

func backlogs(ctx context.Context, tx *postgres.Tx, who tenant.Actor) ([]Backlog, error) {
	rows, err := tx.CountActiveByPriority(ctx, db.CountActiveByPriorityParams{TenantID: who.TenantID, Now: tx.At})
	if err != nil {
		return nil, fmt.Errorf("count active executions: %w", err)
	}
	lanes := []Backlog{{Lane: queue.High}, {Lane: queue.Normal}, {Lane: queue.Low}}
	for _, r := range rows {
		for i := range lanes {
			if l := &lanes[i]; l.Lane == queue.LaneFor(int(r.Priority)) {
				l.Running, l.Waiting, l.Delayed = l.Running+r.Running, l.Waiting+r.Waiting, l.Delayed+r.Delayed
				l.Oldest = max(l.Oldest, tx.At.Sub(r.OldestAt))
			}
		}
	}
	return lanes, nil
}

// Members lists the workers that live, the oldest first, at most 1,000.
func (s *Store) Members(ctx context.Context, who tenant.Actor) (members []Member, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListLiveWorkers(ctx, maxMembers)
		if err != nil {
			return fmt.Errorf("list workers: %w", err)
		}
		runs, err := tx.CountRunsByWorker(ctx, who.TenantID)
		if err != nil {
			return fmt.Errorf("count the runs on each worker: %w", err)
		}
		own := map[uuid.UUID]int64{}
		for _, r := range runs {
			own[r.WorkerID] = r.Running
		}
		members = make([]Member, len(rows))
		for i, r := range rows {
			members[i] = Member{
				ID: r.ID, Host: r.Host, Slots: int(r.Slots), Running: int(r.Running), Own: own[r.ID], Types: r.JobTypes,
				StartedAt: r.StartedAt.UTC(), HeartbeatAge: max(0, r.At.Sub(r.HeartbeatAt)),
			}
		}
		return nil
	})
	return members, err
}

// Statistics counts what a tenant's executions came to. It reads every one of
// the range; where that takes longer than a statement may, the error is Invalid
// with the code STATS_RANGE_TOO_LARGE.
func (s *Store) Statistics(ctx context.Context, who tenant.Actor, q Query) (answer Statistics, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		p := db.SummarizeExecutionsParams{
			TenantID: who.TenantID, FromAt: q.From, ToAt: q.To, GroupBy: string(q.Group), Timezone: q.Zone, JobID: q.JobID,
			JobType: orNil(q.JobType), TriggerType: orNil(q.Trigger), PageSize: MaxGroups + 2,
		}
		if q.Group == ByHour || q.Group == ByDay {
			p.Unit = string(q.Group)
		}
		rows, err := tx.SummarizeExecutions(ctx, p)
		switch {
		case postgres.TimedOut(err):
			return fault.Wrap(fault.Invalid, "STATS_RANGE_TOO_LARGE",
				"to count these executions takes longer than the 5 s that it may take: narrow from and to, or name a jobId, and add the answers up", err)
		case err != nil:
			return fmt.Errorf("count what executions came to: %w", err)
		}
		answer = Statistics{Groups: []Summary{}}
		for _, r := range rows {
			switch one := summary(r); {
			case r.Whole:
				answer.Whole = one
			case q.Group == NoGroups:
			case len(answer.Groups) == MaxGroups:
				answer.Truncated = true
			default:
				answer.Groups = append(answer.Groups, one)
			}
		}
		return nil
	})
	return answer, err
}

func summary(r db.SummarizeExecutionsRow) Summary {
	s := Summary{
		Key: r.Key, At: r.At.UTC(), Count: r.Rows, Completed: r.Completed, Failed: r.Failed, Cancelled: r.Cancelled, Skipped: r.Skipped, Missed: r.Missed,
		Retried: r.Retried, Timed: r.Timed, P50MS: durationOf(r.MiddleBucket), P95MS: durationOf(r.HighBucket), P99MS: durationOf(r.HighestBucket),
	}
	if r.Timed > 0 {
		s.AverageMS = float64(r.DurationMs) / float64(r.Timed)
	}
	return s
}

func orNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
