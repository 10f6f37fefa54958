package job

import "time"

// Edited is the state of a job after somebody replaced its definition at now:
// an edit of an inactive job makes it active, because its schedule was over
// and the new one is meant to fire; a paused job stays paused. An interval
// that changed counts from now.
func (j Job) Edited(spec Spec, by string, now time.Time) Job {
	if j.Status == Inactive {
		j.Status, j.StatusReason, j.StatusBy, j.StatusAt, j.NextExecutionAt = Active, "", by, now, nil
	}
	if spec.Interval != j.Interval {
		j.AnchorAt = now
	}
	j.Spec = spec
	if j.Exhausted() && (j.NextExecutionAt == nil || j.NextExecutionAt.After(now)) {
		j.Status, j.StatusReason, j.StatusBy, j.StatusAt, j.NextExecutionAt = Inactive, MaxExecutionsReached, "system", now, nil
	}
	return j
}

// MaxExecutionsReached is why a job is inactive that had all its runs.
const MaxExecutionsReached = "maxExecutions is reached"

// Exhausted says that the schedule has had all the runs that it may have.
func (j Job) Exhausted() bool { return j.MaxExecutions > 0 && j.ExecutionCount >= j.MaxExecutions }
