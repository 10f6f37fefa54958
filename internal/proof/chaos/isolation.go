package chaos

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// checkIsolation checks that nothing crosses from one tenant to another: no job, row or
// call, nothing that a tenant was shown (I22), and no Idempotency-Key (I25).
func (e *evidence) checkIsolation(f *findings) {
	ids := map[uuid.UUID]*work{}
	for _, w := range e.jobs {
		if w.id == uuid.Nil {
			continue
		}
		if one, there := e.stored[w.id]; there {
			f.check("I22", one.tenant == tenantID(w.tenant), w.id, uuid.Nil, "%q is of tenant %s", w.name, one.tenant)
		}
		for _, id := range w.triggers {
			if id == uuid.Nil {
				continue
			}
			first := ids[id]
			f.check("I25", first == nil || first.tenant == w.tenant, w.id, id, "execution %s was triggered by two tenants", id)
			ids[id] = w
		}
	}
	for _, r := range e.rows {
		if one, there := e.stored[r.job]; there {
			f.check("I22", r.tenant == one.tenant, r.job, r.id, "execution %s is of tenant %s, its job of %s", r.id, r.tenant, one.tenant)
		}
		for _, c := range e.byCall[r.id] {
			f.check("I22", tenantID(c.tenant) == r.tenant, r.job, r.id, "execution %s of tenant %s called a target of %d", r.id, r.tenant, c.tenant)
		}
	}
	for _, s := range e.seen {
		shown := e.stored[s.job].tenant
		f.check("I22", shown == tenantID(s.tenant), s.job, uuid.Nil, "tenant %d was shown an execution of a job of %s", s.tenant, shown)
	}
}

// checkClocks checks what promoters with a wrong clock did (I30): one that is too
// far off says so and makes nothing, one that is a little off goes on.
func (e *evidence) checkClocks(f *findings) {
	for i := range e.faults {
		fault := &e.faults[i]
		for _, s := range fault.skews {
			if s.works() {
				f.check("I30", s.alarms == 0, uuid.Nil, uuid.Nil, "%s, off by %v, halted", fault, s.by)
			}
			// It has to reach the database to find out.
			if s.halts() && s.answers > 3 && e.calm(s.begun, s.end, fault) {
				raised := s.alarms > 0 && (!s.database || s.alarms == s.answers) // it concerns all of them
				f.check("I30", raised, uuid.Nil, uuid.Nil, "%s, off by %v, raised no alarm", fault, s.by)
			}
			if s.halts() && s.everybody {
				// A transaction that begins before the clocks change and decides
				// after it has rows of the time of its beginning.
				made := e.madeBetween(s.begun.Add(clockSettleTime), s.end.Add(-clockSettleTime))
				f.check("I30", made == 0, uuid.Nil, uuid.Nil, "%s: %d rows were made while all promoters were off by %v", fault, made, s.by)
			}
		}
	}
}

// madeBetween is how many rows the schedule made.
func (e *evidence) madeBetween(from, to time.Time) (n int) {
	for _, r := range e.rows {
		if r.trigger == "scheduled" && r.createdAt.After(from) && r.createdAt.Before(to) {
			n++
		}
	}
	return n
}

// skewed says whether PostgreSQL's clock was moved: then its times cannot be
// compared with ours.
func (e *evidence) skewed() bool {
	return slices.ContainsFunc(e.faults, func(f fault) bool { return f.kind == "skew postgres" && !f.begun.IsZero() })
}

// calm says whether no other fault was in force between two times, nor a
// moment before.
func (e *evidence) calm(from, to time.Time, but *fault) bool {
	for i := range e.faults {
		if f := &e.faults[i]; f != but && !f.begun.IsZero() && f.begun.Before(to) && f.healed.After(from.Add(-3*time.Second)) {
			return false
		}
	}
	return true
}
