package chaos

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
)

// violation is one broken promise, and whose history shows it.
type violation struct {
	invariant string
	text      string
	job, run  uuid.UUID
}

// findings are all that the checks found: how often each invariant was checked
// at, and where it does not hold.
type findings struct {
	checked    map[string]int
	violations []violation
}

func (f *findings) check(invariant string, holds bool, job, run uuid.UUID, format string, args ...any) {
	f.checked[invariant]++
	if !holds {
		f.violations = append(f.violations, violation{invariant: invariant, text: fmt.Sprintf(format, args...), job: job, run: run})
	}
}

// evidence is everything that is known when all is finished.
type evidence struct {
	jobs     []*work
	stored   map[uuid.UUID]stored
	rows     []row
	calls    []call
	faults   []fault
	seen     []shownJob
	short    bool // leases that a call may outlast
	most     int  // of a tenant at once
	bursting int  // the tenant that asked for more than that
	readAt   time.Time

	byJob  map[uuid.UUID][]row
	byID   map[uuid.UUID]row
	byCall map[uuid.UUID][]call
}

func (e *evidence) index() {
	e.byJob, e.byID, e.byCall = map[uuid.UUID][]row{}, map[uuid.UUID]row{}, map[uuid.UUID][]call{}
	for _, r := range e.rows {
		e.byJob[r.job] = append(e.byJob[r.job], r)
		e.byID[r.id] = r
	}
	for _, c := range e.calls {
		e.byCall[c.execution] = append(e.byCall[c.execution], c)
	}
}

// checkAll checks all that the final read can show.
func (e *evidence) checkAll(f *findings) {
	e.index()
	f.check("I1", len(e.byID) == len(e.rows), uuid.Nil, uuid.Nil, "%d rows have %d ids", len(e.rows), len(e.byID))
	for _, w := range e.jobs {
		e.checkAcknowledged(f, w)
		if w.id == uuid.Nil {
			continue
		}
		if w.every > 0 || w.step > 0 {
			e.checkScheduledTimes(f, w)
		}
		e.checkAfterPauseAndDelete(f, w)
		e.checkTriggersAndRetries(f, w)
	}
	for _, r := range e.rows {
		e.checkAttempt(f, r)
	}
	e.checkIsolation(f)
	e.checkClocks(f)
	e.checkConcurrency(f)
	for id, calls := range e.byCall {
		_, known := e.byID[id]
		f.check("I2", known, calls[0].job, id, "execution %s ran and has no row", id)
	}
}

// checkAcknowledged checks that what was acknowledged is there (I9), and that what was
// repeated with its key was done once (I10).
func (e *evidence) checkAcknowledged(f *findings, w *work) {
	copies := 0
	for _, s := range e.stored {
		if s.name == w.name && s.tenant == tenantID(w.tenant) {
			copies++
		}
	}
	if w.id == uuid.Nil {
		f.check("I10", copies <= 1, uuid.Nil, uuid.Nil, "%q was created %d times, never acknowledged", w.name, copies)
		return
	}
	f.check("I10", copies == 1, w.id, uuid.Nil, "%q was created %d times", w.name, copies)
	s, there := e.stored[w.id]
	f.check("I9", there, w.id, uuid.Nil, "the creation of %q was acknowledged and it is not there", w.name)
	if w.deletion != nil && !w.deletion.ack.IsZero() {
		f.check("I9", s.deleted, w.id, uuid.Nil, "the deletion of %q was acknowledged and it is there", w.name)
	}
	if w.deletion == nil && len(w.pauses) > 0 && !w.pauses[len(w.pauses)-1].resume.ack.IsZero() {
		f.check("I9", s.status != "paused", w.id, uuid.Nil, "the resume of %q was acknowledged and it is paused", w.name)
	}
}

// nextDue counts scheduled times by arithmetic of its own: the first one after a
// scheduled time.
func (w *work) nextDue(after time.Time) time.Time {
	if w.every > 0 {
		return after.Truncate(w.every).Add(w.every)
	}
	passed := after.Sub(w.createdAt)
	return w.createdAt.Add((passed/w.step + 1) * w.step)
}

func (w *work) due(at time.Time) bool { return w.nextDue(at.Add(-time.Microsecond)).Equal(at) }

// checkScheduledTimes compares scheduled times and rows, one by one (I1, I2).
func (e *evidence) checkScheduledTimes(f *findings, w *work) {
	covered := map[int64]int{} // by µs
	for _, r := range e.byJob[w.id] {
		if r.trigger != "scheduled" {
			continue
		}
		inside := (r.scheduledAt.After(w.createdAt) || e.skewed()) && r.scheduledAt.Before(w.end)
		f.check("I2", w.due(r.scheduledAt) && inside, w.id, r.id, "%s of %q is no scheduled time", r.scheduledAt, w.name)
		if r.missedUntil == nil {
			covered[r.scheduledAt.UnixMicro()]++
			continue
		}
		n := int64(0)
		for at := r.scheduledAt; !at.After(*r.missedUntil) && n < 1e5; at = w.nextDue(at) {
			covered[at.UnixMicro()]++
			n++
		}
		f.check("I1", n == r.missedCount, w.id, r.id, "a row of %q stands for %d scheduled times, and its range has %d", w.name, r.missedCount, n)
	}
	end := w.mustHaveRowUntil()
	if e.skewed() && w.deletion != nil {
		end = end.Add(-time.Minute)
	}
	if w.deletion != nil {
		for at := range covered {
			if t := time.UnixMicro(at); !t.Before(end) {
				end = t.Add(time.Microsecond) // up to the last one there is no gap
			}
		}
	}
	for at := w.nextDue(w.createdAt); at.Before(end); at = w.nextDue(at) {
		n := covered[at.UnixMicro()]
		// See "Conditions" in docs/how/guarantees.md for PostgreSQL's own clock.
		once := n == 1 || n > 1 && e.skewed()
		f.check("I1", once, w.id, uuid.Nil, "%d rows for the scheduled time %s of %q", n, at.Format(time.RFC3339Nano), w.name)
	}
}

// mustHaveRowUntil is the scheduled time before which every scheduled time must have its row.
// A time that was due and not yet promoted when the job was deleted has none, and
// how far promotion was behind then nobody knows exactly; nor whether a job is
// paused whose resume was not answered.
func (w *work) mustHaveRowUntil() time.Time {
	const behind = 30 * time.Second
	end, n := w.end, len(w.pauses)
	if w.deletion != nil {
		end = w.deletion.asked.Add(-behind)
	}
	if n > 0 && (w.pauses[n-1].resume.ack.IsZero() || w.deletion != nil && w.pauses[n-1].resume.ack.After(end)) {
		if paused := w.pauses[n-1].pause.asked.Add(-behind); paused.Before(end) {
			end = paused
		}
	}
	return end
}

// checkAfterPauseAndDelete checks what must not happen once a pause or a deletion was answered
// (I13, I14, I15).
func (e *evidence) checkAfterPauseAndDelete(f *findings, w *work) {
	if e.skewed() {
		return
	}
	for _, p := range w.pauses {
		if p.made >= 0 {
			f.check("I13", p.made == 0, w.id, uuid.Nil, "%q was paused at %s and made %d rows until %s", w.name, p.pause.ack, p.made, p.resume.asked)
		}
	}
	for _, r := range e.byJob[w.id] {
		if w.stop != nil {
			late := r.status != "cancelled" && (!r.finished() || r.completedAt.After(w.stop.ack))
			f.check("I14", !late, w.id, r.id, "%q was stopped at %s and its execution is %s after that", w.name, w.stop.ack, r.status)
		}
		if d := w.deletion; d != nil && !d.ack.IsZero() {
			f.check("I15", !r.createdAt.After(d.ack), w.id, r.id, "%q was deleted at %s and has a row made at %s", w.name, d.ack, r.createdAt)
			ended := r.status != "cancelled" && r.status != "skipped" && r.status != "missed" && (!r.finished() || r.completedAt.After(d.ack))
			f.check("I14", !ended, w.id, r.id, "%q was deleted at %s and its execution is %s after that", w.name, d.ack, r.status)
		}
	}
}

// checkTriggersAndRetries checks that each trigger and each retry has one execution (I9, I10),
// and that what was cancelled did not end otherwise (I14).
func (e *evidence) checkTriggersAndRetries(f *findings, w *work) {
	for kind, asked := range map[string]map[string]uuid.UUID{"manual": w.triggers, "retry": w.retries} {
		open, ids := 0, map[uuid.UUID]bool{}
		for name, id := range asked {
			if id == uuid.Nil {
				open++
				continue
			}
			f.check("I10", !ids[id], w.id, id, "two requests for %q share execution %s", w.name, id)
			ids[id] = true
			_, there := e.byID[id]
			f.check("I9", there, w.id, id, "%s of %q was acknowledged (%s) and its execution %s is not there", kind, w.name, name, id)
		}
		n := 0
		for _, r := range e.byJob[w.id] {
			if r.trigger == kind {
				n++
			}
		}
		planted := w.inserted
		if kind == "retry" {
			planted = 0
		}
		f.check("I10", n >= len(ids)+planted && n <= len(ids)+planted+open, w.id, uuid.Nil,
			"%q has %d %s executions, for %d acknowledged and %d unknown requests", w.name, n, kind, len(ids)+planted, open)
	}
	for id, asked := range w.cancels {
		r := e.byID[id]
		f.check("I14", r.status == "cancelled", w.id, id, "execution %s was cancelled at %s and is %s", id, asked.ack.Format(stamp), r.status)
	}
}

// checkAttempt compares one row with what its target saw (I6, I7, I8, I16).
func (e *evidence) checkAttempt(f *findings, r row) {
	f.check("I16", r.finished(), r.job, r.id, "execution %s is still %s", r.id, r.status)
	f.check("I7", r.attempt <= r.max, r.job, r.id, "attempt %d of at most %d", r.attempt, r.max)
	seen, succeeded := map[int]int{}, false
	for _, c := range e.byCall[r.id] {
		seen[c.attempt]++
		f.check("I7", c.attempt <= r.attempt, r.job, r.id, "the target saw attempt %d and the row says %d", c.attempt, r.attempt)
		f.check("I2", c.job == r.job && c.key == r.id.String() && c.scheduledAt.Equal(r.scheduledAt), r.job, r.id, "the target was told other things than the row says")
		early := c.start.Before(c.scheduledAt) && (r.trigger == "scheduled" || !e.skewed())
		f.check("I30", !early, r.job, r.id, "the target was called at %s, before the scheduled time", c.start.Format(stamp))
		e.checkReport(f, r, c)
		unknown := c.reported && c.status == 0 // a report that got no answer in time may have been accepted
		succeeded = succeeded || c.attempt == r.attempt && (c.status == http.StatusOK || unknown)
	}
	for attempt, n := range seen {
		f.check("I6", n == 1, r.job, r.id, "attempt %d of execution %s started %d times", attempt, r.id, n)
	}
	switch r.status {
	case "completed":
		f.check("I8", succeeded, r.job, r.id, "execution %s is completed, and its target saw no success of attempt %d", r.id, r.attempt)
	case "skipped", "missed":
		f.check("I8", len(seen) == 0, r.job, r.id, "execution %s is %s and ran", r.id, r.status)
	}
}

// history is everything that happened to a job, or to one execution of it, in
// the order of time.
func (e *evidence) history(v violation) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	add := func(at time.Time, format string, args ...any) {
		if !at.IsZero() {
			lines = append(lines, line{at, fmt.Sprintf(format, args...)})
		}
	}
	for _, w := range e.jobs {
		if w.id != v.job || v.job == uuid.Nil {
			continue
		}
		add(w.createdAt, "job %s %q created: every %v, interval %v, overlap %s", w.id, w.name, w.every, w.step, w.overlap)
		for _, p := range w.pauses {
			add(p.pause.asked, "pause asked, answered %s", p.pause.ack.Format(stamp))
			add(p.resume.asked, "resume asked, answered %s", p.resume.ack.Format(stamp))
		}
		if w.deletion != nil {
			add(w.deletion.asked, "deletion asked, answered %s", w.deletion.ack.Format(stamp))
		}
	}
	for _, r := range e.byJob[v.job] {
		if v.run != uuid.Nil && r.id != v.run {
			continue
		}
		add(r.createdAt, "row %s %s due %s: %s %q attempt %d of %d %s", r.id, r.trigger, r.scheduledAt.Format(stamp), r.status, r.reason, r.attempt, r.max, r.attempts)
		if r.finished() {
			add(*r.completedAt, "row %s is finished: %s", r.id, r.status)
		}
		for _, c := range e.byCall[r.id] {
			add(c.start, "target: %s attempt %d starts", r.id, c.attempt)
			add(c.end, "target: %s attempt %d ends with %d, aborted %t", r.id, c.attempt, c.status, c.aborted)
		}
	}
	if v.invariant != "" {
		for _, fault := range e.faults {
			add(fault.begun, "fault: %s", fault)
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, "  %s  %s\n", l.at.Format(stamp), l.text)
	}
	return out.String()
}

const stamp = "15:04:05.000"

// concurrencyLimited says whether the job has a concurrency limit.
func (w *work) concurrencyLimited() bool {
	return w.overlap != api.OverlapPolicyAllow && w.overlap != api.OverlapPolicyCancelRunning
}

// checkReport checks that a report that was accepted decided, and that its repeat was
// answered alike (I8).
func (e *evidence) checkReport(f *findings, r row, c call) {
	if !c.reported || c.status != http.StatusOK {
		return
	}
	decided := r.attempt == c.attempt && (r.status == "completed" || r.status == "cancelled")
	f.check("I8", decided, r.job, r.id, "the report of attempt %d was accepted, and execution %s is %s by attempt %d", c.attempt, r.id, r.status, r.attempt)
	f.check("I8", c.again != http.StatusConflict || r.status == "cancelled", r.job, r.id, "the same report of execution %s was answered 200 and then %d", r.id, c.again)
}
