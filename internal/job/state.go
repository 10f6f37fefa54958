package job

import "time"

// Edited is the state of a job after somebody replaced its definition at now:
// an edit of an inactive job makes it active, because its schedule was finished
// and the new one is meant to fire, a parked one from where it was; a paused job
// stays paused. An interval that changed counts from now.
func (j Job) Edited(spec Spec, by string, now time.Time) Job {
	if j.Status == Inactive {
		if !j.Parked() {
			j.NextExecutionAt = nil
		}
		j.Status, j.StatusReason, j.StatusBy, j.StatusAt = Active, "", by, now
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

// Parked says that a promoter made the job inactive because it could not promote
// it. It keeps its next scheduled time, from which a resume goes on.
func (j Job) Parked() bool { return j.Status == Inactive && j.NextExecutionAt != nil }

// MaxExecutionsReached is the reason of a job that became inactive after maxExecutions runs.
const MaxExecutionsReached = "maxExecutions is reached"

// Exhausted says that the schedule has had all the runs that it may have.
func (j Job) Exhausted() bool { return j.MaxExecutions > 0 && j.ExecutionCount >= j.MaxExecutions }
