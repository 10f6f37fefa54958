package job

// edited is the state of a job after its definition was replaced: an edit of
// an inactive job makes it active, because its schedule was over and the new
// one is meant to fire; a paused job stays paused.
func (j Job) edited(spec Spec) Job {
	if j.Status == Inactive {
		j.Status, j.StatusReason, j.NextExecutionAt = Active, "", nil
	}
	j.Spec = spec
	return j
}
