package execution

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// PhaseKind is what an execution did, or waited for, during a phase.
type PhaseKind string

// The phases, in the order in which an execution passes through them.
const (
	PhasePromotion PhaseKind = "promotion" // it was due, and no promoter had made it yet
	PhaseDelay     PhaseKind = "delay"     // it might start only later
	PhaseLimit     PhaseKind = "limit"     // as many ran as might, of its job, its type or its tenant
	PhaseBacklog   PhaseKind = "backlog"   // executions of its tenant that were made before it started first
	PhaseQueue     PhaseKind = "queue"     // nothing was in its way but that a worker had to take it
	PhaseAttempt   PhaseKind = "attempt"   // it ran
	PhaseRetry     PhaseKind = "retry"     // between two attempts: the backoff, and the wait for a worker
)

// Phase is an interval of an execution's life.
type Phase struct {
	Kind    PhaseKind
	From    time.Time
	To      *time.Time // nil: it goes on
	Attempt int        // of an attempt, and of the wait before it
	Limit   WaitReason // of a limit, which
	Status  Status     // of an attempt, how it ended; Running: it has not
}

// Timeline is what an execution's time went to.
type Timeline struct {
	Execution Execution
	Phases    []Phase // without gaps, oldest first; none of what was skipped or missed
	// Partial says that more executions ran beside it than are read: waits for a limit or
	// behind others may be called queue.
	Partial bool
	at      time.Time // when it was read
}

// neighbour is another execution of the tenant that was there while one waited.
type neighbour struct {
	id, job   uuid.UUID
	jobType   string
	createdAt time.Time
	from, to  time.Time // it ran, with its retries
}

// bounds are how many may run at once; 0: any number.
type bounds struct{ job, jobType, tenant int }

// Late is how long after its scheduled time the execution started, or by how much it is
// late by now; not known of what did not run.
func (t Timeline) Late() (late time.Duration, known bool) {
	start := t.at
	switch e := t.Execution; {
	case e.StartedAt != nil:
		start = *e.StartedAt
	case e.Status.Terminal():
		return 0, false
	}
	return max(0, start.Sub(t.Execution.ScheduledAt)), true
}

// Spent is how long phases of a kind took together, by now.
func (t Timeline) Spent(kind PhaseKind) (total time.Duration) {
	for _, p := range t.Phases {
		if p.Kind == kind {
			total += t.Length(p)
		}
	}
	return total
}

// Length is how long a phase took, by now where it goes on.
func (t Timeline) Length(p Phase) time.Duration {
	if p.To == nil {
		return max(0, t.at.Sub(p.From))
	}
	return p.To.Sub(p.From)
}

// waited is the interval between the making of an execution and its first attempt, as far
// as it could have started; empty where it did not wait.
func waited(e Execution, at time.Time) (from, to time.Time) {
	from, to = later(e.ScheduledAt, e.CreatedAt), at
	if e.StartedAt == nil && e.CompletedAt == nil && e.AvailableAt != nil {
		from = later(from, *e.AvailableAt)
	}
	switch {
	case e.StartedAt != nil:
		to = *e.StartedAt
	case e.CompletedAt != nil:
		to = *e.CompletedAt
	}
	return from, later(from, to)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// timelineOf tells an execution's time apart. Limits are those of now: what they were
// then is not recorded.
func timelineOf(e Execution, near []neighbour, limits bounds, at time.Time) Timeline {
	t := Timeline{Execution: e, at: at}
	if e.Status == Skipped || e.Status == Missed {
		return t
	}
	ready, start := waited(e, at)
	t.add(Phase{Kind: PhasePromotion, From: e.ScheduledAt}, e.CreatedAt)
	t.add(Phase{Kind: PhaseDelay, From: later(e.ScheduledAt, e.CreatedAt)}, ready)
	for _, p := range split(e, near, limits, ready, start) {
		t.add(p, *p.To)
	}
	for i, a := range e.Attempts {
		if a.StartedAt == nil {
			continue // of history from before this was recorded
		}
		if i > 0 {
			t.add(Phase{Kind: PhaseRetry, From: t.end(*a.StartedAt), Attempt: a.Number}, *a.StartedAt)
		}
		end := at
		if a.EndedAt != nil {
			end = *a.EndedAt
		}
		t.add(Phase{Kind: PhaseAttempt, From: *a.StartedAt, Attempt: a.Number, Status: a.Status}, end)
	}
	if e.Status == Retrying {
		t.add(Phase{Kind: PhaseRetry, From: t.end(at), Attempt: e.Attempt + 1}, at)
	}
	if n := len(t.Phases); n > 0 && !e.Status.Terminal() {
		t.Phases[n-1].To = nil
	}
	return t
}

// end is when the last phase ended; at where there is none.
func (t *Timeline) end(at time.Time) time.Time {
	if n := len(t.Phases); n > 0 {
		return *t.Phases[n-1].To
	}
	return at
}

// add takes in a phase, but for an empty wait, and joins it to the one before if they
// are alike.
func (t *Timeline) add(p Phase, to time.Time) {
	if p.Kind != PhaseAttempt && !to.After(p.From) {
		return
	}
	if n := len(t.Phases); n > 0 && p.Kind != PhaseAttempt {
		if last := &t.Phases[n-1]; last.Kind == p.Kind && last.Limit == p.Limit && last.To.Equal(p.From) {
			last.To = &to
			return
		}
	}
	p.To = &to
	t.Phases = append(t.Phases, p)
}

// split says what an execution waited for between two times, by what ran meanwhile.
func split(e Execution, near []neighbour, limits bounds, ready, start time.Time) (phases []Phase) {
	marks, passed := []time.Time{ready, start}, ready
	for _, n := range near {
		for _, mark := range []time.Time{n.from, n.to} {
			if mark.After(ready) && mark.Before(start) {
				marks = append(marks, mark)
			}
		}
		if n.createdAt.Before(e.CreatedAt) && !n.from.After(start) {
			passed = later(passed, n.from)
		}
	}
	slices.SortFunc(marks, time.Time.Compare)
	marks = slices.CompactFunc(marks, time.Time.Equal)
	running, next, ended := counts{}, byStart(near), byEnd(near)
	for i, from := range marks[:len(marks)-1] {
		for ; len(next) > 0 && !next[0].from.After(from); next = next[1:] {
			running.change(e, next[0], 1)
		}
		for ; len(ended) > 0 && !ended[0].to.After(from); ended = ended[1:] {
			running.change(e, ended[0], -1)
		}
		p := Phase{Kind: PhaseQueue, From: from, To: &marks[i+1], Limit: running.met(limits)}
		switch {
		case p.Limit != "":
			p.Kind = PhaseLimit
		case from.Before(passed):
			p.Kind = PhaseBacklog
		}
		phases = append(phases, p)
	}
	return phases
}

func byStart(near []neighbour) []neighbour {
	return slices.SortedFunc(slices.Values(near), func(a, b neighbour) int { return a.from.Compare(b.from) })
}

func byEnd(near []neighbour) []neighbour {
	return slices.SortedFunc(slices.Values(near), func(a, b neighbour) int { return a.to.Compare(b.to) })
}

// counts are how many executions run of a job, a type and a tenant.
type counts struct{ job, jobType, tenant int }

func (c *counts) change(e Execution, n neighbour, by int) {
	c.tenant += by
	if n.jobType == e.JobType {
		c.jobType += by
	}
	if n.job == e.JobID {
		c.job += by
	}
}

// met is the first limit that is used up.
func (c *counts) met(limits bounds) WaitReason {
	switch {
	case limits.job > 0 && c.job >= limits.job:
		return WaitJob
	case limits.jobType > 0 && c.jobType >= limits.jobType:
		return WaitType
	case limits.tenant > 0 && c.tenant >= limits.tenant:
		return WaitTenant
	}
	return ""
}

// phrases say what a wait was for.
var phrases = []struct {
	kind PhaseKind
	says string
}{
	{PhasePromotion, "for promotion"},
	{PhaseDelay, "until it might start"},
	{PhaseLimit, "for a limit"},
	{PhaseBacklog, "behind earlier executions of the tenant"},
	{PhaseQueue, "for a worker"},
}

// ends say how an attempt ended.
var ends = map[Status]string{Running: "runs", Completed: "completed", Failed: "failed", Cancelled: "was cancelled"}

// Summary is what happened, in a few sentences.
func (t Timeline) Summary() string {
	late, known := t.Late()
	if !known {
		return fmt.Sprintf("It was %s and did not run.", t.Execution.Status)
	}
	var parts []string
	for _, p := range phrases {
		if spent := t.Spent(p.kind); spent >= time.Millisecond {
			parts = append(parts, fmt.Sprintf("%s %s", spent.Round(time.Millisecond), p.says))
		}
	}
	how := "It started"
	if t.Execution.StartedAt == nil {
		how = "It has not started"
	}
	said := fmt.Sprintf("%s %s after its scheduled time.", how, late.Round(time.Millisecond))
	if len(parts) > 0 {
		said = strings.TrimSuffix(said, ".") + ": " + strings.Join(parts, ", ") + "."
	}
	if retries := t.Spent(PhaseRetry); retries > 0 {
		said += fmt.Sprintf(" It waited %s between attempts.", retries.Round(time.Millisecond))
	}
	if n := len(t.Execution.Attempts); n > 0 {
		said += fmt.Sprintf(" Attempt %d %s.", n, ends[t.Execution.Attempts[n-1].Status])
	}
	return said
}
