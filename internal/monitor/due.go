package monitor

import "time"

// Gap is a time in which pings may have been lost by our fault.
type Gap struct{ From, To time.Time }

// Due decides about a deadline that has passed at now; one that has not changes nothing.
// Where pings may have been lost that would have kept it, nobody failed: the next run is
// expected as if they had come at the end of the gap.
func (j *Machine) Due(now time.Time, gaps []Gap) {
	s, deadline := &j.m.State, j.Deadline()
	if deadline.IsZero() || deadline.After(now) {
		return
	}
	if s.Run != nil && s.Run.Reason != tooSlow {
		j.overdueRun(now, deadline, gaps)
		return
	}
	expected := s.ExpectedAt
	s.Runs++
	r := Record{N: s.Runs, At: now, ExpectedAt: expected, Exit: -1}
	// A ping half a period before its time would have stood for it.
	if gap := within(gaps, expected.Add(-j.period(expected)/2), deadline); gap != nil {
		r.Outcome, r.Reason = runUnknown, outage
		j.resume(now, expected, gap.To)
	} else {
		r.Outcome, r.Reason = runMissed, notStarted
		j.fail(now, notStarted)
		j.resume(now, expected, expected)
	}
	j.record(r)
}

// overdueRun decides about a run that did not end in time.
func (j *Machine) overdueRun(now, deadline time.Time, gaps []Gap) {
	s, run := &j.m.State, j.m.State.Run
	if gap := within(gaps, run.AliveAt, deadline); gap != nil {
		r := run.record("")
		r.Outcome, r.Reason = runUnknown, outage
		j.record(r)
		s.Run = nil
		j.resume(now, now, gap.To)
		return
	}
	run.Reason = tooSlow // it may still end, which is recorded
	j.record(run.record(""))
	j.fail(now, tooSlow)
	j.resume(now, now, now)
}

// resume expects the next run: by the schedule, the first after another whose grace has not
// passed; by the interval, one interval after a time.
func (j *Machine) resume(now, after, from time.Time) {
	s := &j.m.State
	s.EarliestAt = time.Time{} // what comes now is not too often
	if j.schedule != nil {
		s.ExpectedAt = j.next(later(after, now.Add(-j.m.StartGrace)))
		return
	}
	if s.ExpectedAt = from.Add(j.m.Interval); !s.ExpectedAt.Add(j.m.StartGrace).After(now) {
		s.ExpectedAt = now.Add(j.m.Interval)
	}
}

// Restart has a monitor begin anew at now, which was paused or is another now: what went on
// is left behind, and nothing that comes is too often.
func (j *Machine) Restart(now time.Time) {
	s := &j.m.State
	s.Run = nil
	s.ExpectedAt, s.EarliestAt = time.Time{}, time.Time{}
	if s.Status != statusNew && !j.m.Paused {
		s.ExpectedAt = j.next(now)
	}
}

// within is the last gap that touches a time span; nil: none does.
func within(gaps []Gap, from, to time.Time) *Gap {
	var last *Gap
	for i := range gaps {
		if g := &gaps[i]; !g.From.After(to) && !g.To.Before(from) && (last == nil || g.To.After(last.To)) {
			last = g
		}
	}
	return last
}
