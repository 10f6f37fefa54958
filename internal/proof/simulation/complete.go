package simulation

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
)

// maxLost is how many workers one execution may lose, as the sweeper says.
const maxLost = 3

func (o completeExecutions) do(t *tables, at time.Time) (a answer) {
	// Everything is read on the snapshot from before, as the parts of the
	// statement are.
	verdicts := make([]verdict, 0, len(o.Outcomes))
	accepted := make([]outcome, 0, len(o.Outcomes))
	ends := map[uuid.UUID][]*activeRow{}
	for _, d := range o.Outcomes {
		r := t.row(d.ID)
		if r == nil || !t.mayComplete(r, d) {
			continue
		}
		verdicts = append(verdicts, verdict{ID: r.ID, Status: t.judge(r, d), Tenant: r.Tenant, Key: r.Key})
		accepted = append(accepted, d)
		ends[r.Job] = append(ends[r.Job], r)
	}
	for i := range verdicts {
		verdicts[i].Next = t.nextOf(ends, verdicts, verdicts[i].ID, at)
	}
	for i, v := range verdicts {
		d, r := accepted[i], t.row(v.ID)
		if r == nil {
			continue // the same twice, which only a broken fence accepts
		}
		t.ends(r)
		verdicts[i].Backlogged = t.tenant(r.Tenant).Backlogged.After(at.Add(-2 * time.Minute))
		if v.Status == execution.Retrying {
			r.failed(d.Error)
			r.letGo(execution.Retrying)
			r.AvailableAt = at.Add(d.Retry)
			r.pool()
			continue
		}
		over := r.end(v.Status, at)
		if over.ErrorType = d.Error; v.Status == execution.Cancelled {
			over.ErrorType, over.Reason = "", r.CancelFor
		}
		t.remove(r.ID)
		t.record(over)
	}
	a.Verdicts = verdicts
	return a
}

// mayComplete is the fence.
func (t *tables) mayComplete(r *activeRow, d outcome) bool {
	switch t.bug {
	case noToken:
		return !r.waits() && r.Attempt == d.Attempt
	case noFence:
		return !r.waits() // neither number nor token
	default:
		// An execution released to be cancelled has no token, and NULL equals nothing.
		return !r.waits() && r.Attempt == d.Attempt && r.Token == d.Token && d.Token != uuid.Nil
	}
}

func (t *tables) judge(r *activeRow, d outcome) execution.Status {
	switch {
	case !r.CancelAt.IsZero() && t.bug != successWins:
		return execution.Cancelled
	case d.Succeeded:
		return execution.Completed
	case d.Retry < 0 || r.Attempt >= r.MaxAttempts:
		return execution.Failed
	default:
		return execution.Retrying
	}
}

// nextOf are the runs of a job that get the slots which its ends free. They are
// said with the first of these.
func (t *tables) nextOf(ends map[uuid.UUID][]*activeRow, verdicts []verdict, id uuid.UUID, at time.Time) []uuid.UUID {
	r := t.row(id)
	freed := 0
	for _, end := range ends[r.Job] {
		if compareIDs(end.ID, id) < 0 {
			return nil
		}
		i := slices.IndexFunc(verdicts, func(v verdict) bool { return v.ID == end.ID })
		if verdicts[i].Status != execution.Retrying || end.SlotLimit > 0 {
			freed++
		}
	}
	return t.nextInLine(r.Job, []string{r.Type}, at, freed)
}

// nextInLine are the runs of a job of some types that get the slots which a
// statement frees, or those that are free where it frees none: next_of_job.
func (t *tables) nextInLine(of uuid.UUID, types []string, at time.Time, freed int) (ids []uuid.UUID) {
	var rows []*activeRow
	taken := 0
	if freed == 0 {
		taken = t.places(of).Taken
	}
	for i := range t.active {
		if r := &t.active[i]; r.Job == of && r.SlotLimit > taken && r.mayStart(at) && !t.taken(r) && t.runs(types, r) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, byTurn)
	for i, r := range rows {
		if i+1+taken <= r.SlotLimit && (freed == 0 || i < freed) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

func (o releaseExecutions) do(t *tables, at time.Time) (a answer) {
	for _, given := range o.Rows {
		r := t.row(given.ID)
		if r == nil || r.waits() || r.Token != given.Token || given.Token == uuid.Nil {
			continue
		}
		r.MaxAttempts++
		r.AvailableAt = at
		if !r.CancelAt.IsZero() {
			r.letGo(execution.Running) // the sweeper ends it
			r.SweepAt = at.Add(dispatch.SweepAhead)
		} else {
			t.ends(r)
			r.letGo(execution.Pending)
			r.pool()
		}
		a.IDs = append(a.IDs, r.ID)
	}
	return a
}

func (o reassignExecutions) do(t *tables, at time.Time) (a answer) {
	var over []finishedRow
	for i := range t.active {
		r := &t.active[i]
		w := t.worker(r.Worker)
		lost := w == nil && t.bug != needsWorkerRow || w != nil && w.Dead
		late := !r.DeadlineAt.IsZero() && r.DeadlineAt.Before(at)
		if r.waits() || r.SweepAt.After(at.Add(dispatch.SweepAhead)) || !lost && !late || o.Locked.holds(r.ID) {
			continue
		}
		v := verdict{ID: r.ID, Lost: lost, Status: t.afterLoss(r, lost), Tenant: r.Tenant, Key: r.Key}
		t.ends(r)
		a.Verdicts = append(a.Verdicts, v)
		kind := "TIMEOUT"
		if lost {
			kind = "SYSTEM_ERROR"
		}
		if v.Status == execution.Pending {
			r.failed(kind)
			r.letGo(execution.Pending)
			if lost {
				r.MaxAttempts++
				r.Lost++
			}
			r.AvailableAt = at
			r.pool()
			continue
		}
		o := r.end(v.Status, at)
		if v.Status == execution.Cancelled {
			o.Reason = r.CancelFor
		} else {
			o.ErrorType = kind
		}
		over = append(over, o)
	}
	for _, o := range over {
		t.remove(o.ID)
		t.record(o)
	}
	return a
}

// afterLoss is what becomes of a run that is taken from its worker.
func (t *tables) afterLoss(r *activeRow, lost bool) execution.Status {
	switch {
	case !r.CancelAt.IsZero():
		return execution.Cancelled
	case lost && r.Lost+1 < maxLost:
		return execution.Pending
	case lost || r.Attempt >= r.MaxAttempts:
		return execution.Failed
	default:
		return execution.Pending
	}
}

func (o poolLateExecutions) do(t *tables, at time.Time) (a answer) {
	for i := range t.active {
		if r := &t.active[i]; r.waits() && !r.SweepAt.After(at.Add(o.Ahead)) && !o.Locked.holds(r.ID) {
			r.pool()
			a.Count++
		}
	}
	return a
}

func (o poolExecutions) do(t *tables, _ time.Time) (a answer) {
	for _, id := range distinct(o.IDs) {
		if r := t.row(id); r != nil && r.waits() && !r.Pooled && !r.bound() && !o.Locked.holds(id) {
			r.pool()
			a.Count++
		}
	}
	return a
}
