package job

// Overlap says what happens to a due time while as many executions of the job are
// active as may run at once.
type Overlap string

// The policies. The names are Temporal's where it has the same.
const (
	OverlapSkip   Overlap = "skip"           // it does not run; its row says why
	OverlapQueue1 Overlap = "queue_one"      // it waits, if no other does; else it is skipped
	OverlapQueue  Overlap = "queue_all"      // it waits, up to the queue's limit; else it is skipped
	OverlapCancel Overlap = "cancel_running" // what is active is cancelled, and it runs after that
	OverlapAllow  Overlap = "allow"          // it runs beside them
)

// MaxTriggersWaiting bounds how many triggered runs of one job may wait for a
// place.
const MaxTriggersWaiting = 1000

// Places are the runs of a job that are not over.
type Places struct {
	Taken   int // running, or with a place reserved
	Waiting int // waiting for a place
}

// Admission is what becomes of a due time, or of a trigger.
type Admission struct {
	Run bool
	// Gated says that the execution waits for a concurrency slot.
	Gated bool
	// CancelOthers says that what is active is to be cancelled first.
	CancelOthers bool
	// Reason is why it does not run.
	Reason string
}

// Admit decides about a due time. It is exact when the places were counted
// after the job's row was locked and are kept up to date by Took.
func (s Policy) Admit(p Places) Admission {
	if s.Overlap == OverlapAllow {
		return Admission{Run: true}
	}
	active := p.Taken + p.Waiting
	if active < s.MaxConcurrent {
		return Admission{Run: true}
	}
	switch s.Overlap {
	case OverlapQueue1:
		return Admission{Run: p.Waiting < 1, Gated: true, Reason: "a run of this job waits already (overlapPolicy queue_one)"}
	case OverlapQueue:
		return Admission{Run: p.Waiting < s.OverlapQueueLimit, Gated: true, Reason: "as many runs of this job wait as may (overlapPolicy queue_all, overlapQueueLimit)"}
	case OverlapCancel:
		return Admission{Run: true, Gated: true, CancelOthers: true}
	default:
		return Admission{Reason: "as many runs of this job are active as may run at once (overlapPolicy skip, maxConcurrent)"}
	}
}

// AdmitTrigger decides about a run that somebody asked for: it runs whatever
// the schedule says, and waits for a place where the job has none free.
func (s Policy) AdmitTrigger(p Places) Admission {
	if s.Overlap == OverlapAllow || p.Taken+p.Waiting < s.MaxConcurrent {
		return Admission{Run: true}
	}
	return Admission{Run: p.Waiting < MaxTriggersWaiting, Gated: true, Reason: "as many triggered runs of this job wait as may"}
}

// Took is the places after an admission.
func (p Places) Took(a Admission) Places {
	switch {
	case !a.Run:
	case a.CancelOthers:
		p.Waiting = 1
	case a.Gated:
		p.Waiting++
	default:
		p.Taken++
	}
	return p
}
