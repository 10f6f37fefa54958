package promoter

import (
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// pacer is how passes follow one another that find something. A job that is due at
// a time of its own is promoted at that time; where times are denser
// than the pace, several share a pass.
type pacer struct {
	began clock.Mark // the last of these passes
	every time.Duration
}

// pass notes that a pass which began at mark claimed so many jobs.
func (t *pacer) pass(mark clock.Mark, claimed int) {
	t.every = pace(t.began.Elapsed()-mark.Elapsed(), claimed)
	t.began = mark
}

// left is how long the next pass should be put off; it may be negative.
func (t *pacer) left() time.Duration { return t.every - t.began.Elapsed() }

// pace is the time from the beginning of a pass to that of the next: as long as
// paceJobs jobs take to become due, at the rate seen since the pass before.
func pace(since time.Duration, claimed int) time.Duration {
	every := float64(since) * paceJobs / float64(max(claimed, 1))
	return time.Duration(min(max(every, float64(minPace)), float64(maxPace)))
}

// pause is how long to sleep after a pass that took so long, when the pace
// leaves so long until the next.
func (r Report) pause(took, left time.Duration) time.Duration {
	switch {
	case r.Next.IsZero():
		return 0
	case r.Claimed == 0 && r.Next.Before(r.At):
		return lockedRetry
	default:
		return min(max(r.Next.Sub(r.At)-took, left, 0), maxSleep)
	}
}
