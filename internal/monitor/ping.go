package monitor

import (
	"strconv"
	"time"
)

// Signal is what a ping says.
type Signal string

// The signals.
const (
	Success Signal = "success"
	Start   Signal = "start"
	Fail    Signal = "fail"
	LogOnly Signal = "log"
)

// repeated is how soon after a ping without an id the same is the same one, sent again: curl --retry
// does so where the answer got lost. No cron that is watched runs that often.
const repeated = 10 * time.Second

// Ping is one that came. Of an end, Exit is the exit code, -1 where none was told.
type Ping struct {
	At     time.Time
	Signal Signal
	Exit   int
	RunID  string // empty: it is about the last run
	Log    string
}

// Open is a run other than the last one that has begun and not ended, which a ping names.
type Open struct {
	N         int64
	StartedAt time.Time
}

// ReadSignal reads the last part of a ping's path: start, fail, log or an exit code, and
// nothing for success.
func ReadSignal(text string) (s Signal, exit int, ok bool) {
	switch Signal(text) {
	case "":
		return Success, -1, true
	case Start, Fail, LogOnly:
		return Signal(text), -1, true
	}
	code, err := strconv.Atoi(text)
	if err != nil || code < 0 || code > 255 || text != strconv.Itoa(code) {
		return "", 0, false
	}
	if code > 0 {
		return Fail, code, true
	}
	return Success, 0, true
}

// Elsewhere reports whether a ping ends another run than the last one, if such a run is open.
func (m *Monitor) Elsewhere(p Ping) bool {
	run := m.State.Run
	return p.RunID != "" && (p.Signal == Success || p.Signal == Fail) && (run == nil || run.ID != p.RunID) && p.RunID != m.State.LastRunID
}

// Ping takes a ping. open is the run that it names where that is not the last one; nil: there
// is none. Only watch says that something did not start or is too slow, because it alone knows
// when pings were lost: one that comes after its deadline, before watch saw it, is in time.
func (j *Machine) Ping(p Ping, open *Open) {
	s := &j.m.State
	p.At = later(p.At, s.LastPingAt) // the clock may have been set back
	s.LastPingAt = p.At
	if s.Status == statusNew && p.Signal != LogOnly {
		s.Status = statusOK
	}
	if p.RunID != "" && p.RunID == s.LastRunID && p.Signal != LogOnly && (s.Run == nil || s.Run.ID != p.RunID) {
		return // it is sent again, or its start was overtaken by its end
	}
	switch {
	case p.Signal == LogOnly:
		j.log(p)
	case p.Signal == Start:
		j.start(p)
	case s.Run != nil && (p.RunID == "" || p.RunID == s.Run.ID):
		j.end(p)
	case open != nil:
		j.endOther(p, *open)
	default:
		j.bare(p)
	}
}

func (j *Machine) log(p Ping) {
	run := j.m.State.Run
	if run == nil || p.RunID != "" && p.RunID != run.ID {
		j.m.State.Runs++
		j.record(Record{N: j.m.State.Runs, At: p.At, EndedAt: p.At, Outcome: runLogged, Exit: -1, RunID: p.RunID, Log: p.Log})
		return
	}
	run.AliveAt = p.At
	j.record(run.record(p.Log))
}

func (r *Run) record(log string) Record {
	return Record{N: r.N, At: r.StartedAt, StartedAt: r.StartedAt, Outcome: runRunning, Reason: r.Reason, Exit: -1, RunID: r.ID, Log: log}
}

// start begins a run. One that goes on is left behind, which fails nobody: its end may have been
// lost on its way, and runs with ids may overlap. The same start may be sent twice.
func (j *Machine) start(p Ping) {
	s := &j.m.State
	if s.Run != nil && s.Run.ID == p.RunID && (p.RunID != "" || p.At.Sub(s.Run.StartedAt) < repeated) {
		s.Run.AliveAt = p.At
		j.record(s.Run.record(p.Log))
		return
	}
	if s.Run != nil {
		left := s.Run.record("")
		left.Outcome = runAbandoned
		j.record(left)
	}
	s.Runs++
	s.Run = &Run{N: s.Runs, ID: p.RunID, StartedAt: p.At, AliveAt: p.At}
	expected := s.ExpectedAt
	if j.begin(p.At) {
		s.Run.Reason = tooOften
	}
	first := s.Run.record(p.Log)
	first.ExpectedAt = expected
	j.record(first)
}

// begin notes that a run starts at a time, and says whether that is too often.
func (j *Machine) begin(at time.Time) (early bool) {
	s := &j.m.State
	early = j.m.AlertTooOften && !s.EarliestAt.IsZero() && at.Before(s.EarliestAt)
	if j.expect(at); early && !j.m.Paused {
		j.fail(at, tooOften)
	}
	return early
}

// expect computes when the next run should start after one that starts at a time.
func (j *Machine) expect(at time.Time) {
	s := &j.m.State
	if j.schedule == nil {
		s.ExpectedAt = at.Add(j.m.Interval)
		s.EarliestAt = j.earliest(s.ExpectedAt)
		return
	}
	expected := s.ExpectedAt
	switch early := j.tolerance(expected); {
	case expected.IsZero() || at.After(expected.Add(j.m.StartGrace)):
		// It may be a late one, or an early one of the next time: neither that one nor the one
		// after is held against it.
		first := j.next(at)
		s.ExpectedAt, s.EarliestAt = j.next(at.Add(j.tolerance(first))), j.earliest(first)
	case at.Before(expected.Add(-early)):
		// It stands for no scheduled time; the next one stays expected.
		s.EarliestAt = j.earliest(expected)
	case at.Before(expected) && s.EarliestAt.IsZero():
		// After one that did not come it may be a late one too.
		s.ExpectedAt, s.EarliestAt = j.next(expected), j.earliest(expected)
	default:
		s.ExpectedAt = j.next(later(expected, at))
		s.EarliestAt = j.earliest(s.ExpectedAt)
	}
}

// end ends the last run.
func (j *Machine) end(p Ping) {
	s, run := &j.m.State, j.m.State.Run
	r := run.record(p.Log)
	r.EndedAt, r.Exit = p.At, p.Exit
	r.Outcome, r.Reason = j.judge(p, run.StartedAt, run.Reason)
	late := p.At.After(j.completionDeadline())
	s.Run, s.LastEndAt, s.LastRunID, s.LastBare = nil, p.At, run.ID, ""
	if late && r.Reason == "" {
		r.Reason = tooSlow
	}
	j.record(r)
	if j.schedule == nil {
		s.ExpectedAt = p.At.Add(j.m.Interval) // some count from the start, others from the end
	} else if !s.ExpectedAt.After(p.At) {
		s.ExpectedAt = j.next(p.At) // what was due while it ran may have been left out
	}
}

// judge says what an end means and counts it.
func (j *Machine) judge(p Ping, started time.Time, before string) (outcome, reason string) {
	switch {
	case p.Signal == Fail:
		outcome, reason = runFailed, failed
	case j.m.MinRuntime > 0 && !started.IsZero() && p.At.Sub(started) < j.m.MinRuntime:
		outcome, reason = runFailed, tooFast
	default:
		outcome, reason = runCompleted, before
	}
	switch {
	case j.m.Paused:
	case outcome == runFailed:
		j.fail(p.At, reason)
	case reason != tooOften:
		j.succeed(p.At)
	}
	return outcome, reason
}

// endOther ends a run that another has overtaken.
func (j *Machine) endOther(p Ping, open Open) {
	outcome, reason := j.judge(p, open.StartedAt, "")
	j.m.State.LastEndAt = p.At
	j.record(Record{N: open.N, At: open.StartedAt, StartedAt: open.StartedAt, EndedAt: p.At, Outcome: outcome, Reason: reason, Exit: p.Exit, RunID: p.RunID, Log: p.Log})
}

// bare takes the end of a run whose start was not pinged.
func (j *Machine) bare(p Ping) {
	s := &j.m.State
	if p.RunID == "" && s.LastBare == p.Signal && p.At.Sub(s.LastEndAt) < repeated {
		return
	}
	s.Runs++
	r := Record{N: s.Runs, At: p.At, ExpectedAt: s.ExpectedAt, EndedAt: p.At, Exit: p.Exit, RunID: p.RunID, Log: p.Log}
	before := ""
	if s.Run == nil && j.begin(p.At) {
		before = tooOften
	}
	r.Outcome, r.Reason = j.judge(p, time.Time{}, before)
	s.LastEndAt, s.LastBare = p.At, p.Signal
	if p.RunID != "" {
		s.LastRunID = p.RunID
	}
	j.record(r)
}
