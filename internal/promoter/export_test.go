package promoter

import (
	"context"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// PanicAt makes deciding about a job panic.
func (p *Promoter) PanicAt(job uuid.UUID) {
	p.decideJob = func(j *dueJob, s *schedule.Schedule, at time.Time) dueTimes {
		if j.id == job {
			panic("a defect")
		}
		return dueTimesOf(j, s, at)
	}
}

// DecideAt makes deciding about each job take a time on a clock of its own.
func (p *Promoter) DecideAt(each time.Duration) (spent func() time.Duration) {
	var total time.Duration
	p.watch = func() func() time.Duration {
		began := total
		return func() time.Duration { return total - began }
	}
	p.decideJob = func(j *dueJob, s *schedule.Schedule, at time.Time) dueTimes {
		total += each
		return dueTimesOf(j, s, at)
	}
	return func() time.Duration { return total }
}

// SetBatch makes passes take so many jobs at most.
func (p *Promoter) SetBatch(n int) { p.batch = n }

// KeepSize has passes take as much as they may, however long they take.
func (p *Promoter) KeepSize(keep bool) { p.size.fixed = keep }

// Follows has the promoter wake up now for a job that was due just before, after another
// promoter took what was due the time before.
func (p *Promoter) Follows() {
	p.quiet = quiet{began: clock.Start(), next: clock.Now(), behind: 1}
}

// Polls says whether its next turn is a poll.
func (p *Promoter) Polls() bool { return p.quiet.polls() }

// Turn is one turn of the promoter's loop.
func (p *Promoter) Turn(ctx context.Context) error { return p.promoteDue(ctx, &loop.Turn{}) }

// Parts is how many parts of failed batches wait for a trial.
func (p *Promoter) Parts() int { return len(p.suspects.parts) }

// FailedWait is a turn of the loop that waits for locked jobs, of one job, with a context that has
// ended. It says whether the turn asked when to come again.
func (p *Promoter) FailedWait(ctx context.Context, job, tenant uuid.UUID) (asked bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	p.locked.add(part{jobs: []suspect{{job, tenant}}, rows: 10})
	turn := &loop.Turn{}
	err = p.promoteLocked(ctx, turn)
	return reflect.ValueOf(turn).Elem().FieldByName("hasAgain").Bool(), err
}

// WaitTurn is a turn of the loop that waits for locked jobs, of these, and says how soon it asked to come
// again; it did not where that is negative.
func (p *Promoter) WaitTurn(ctx context.Context, tenant uuid.UUID, jobs ...uuid.UUID) (time.Duration, error) {
	for _, job := range jobs {
		p.locked.add(part{jobs: []suspect{{job, tenant}}, rows: 10})
	}
	turn := &loop.Turn{}
	if err := p.promoteLocked(ctx, turn); err != nil {
		return 0, err
	}
	asked := reflect.ValueOf(turn).Elem()
	if !asked.FieldByName("hasAgain").Bool() {
		return -1, nil
	}
	return time.Duration(asked.FieldByName("again").Int()), nil
}
