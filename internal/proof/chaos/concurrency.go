package chaos

import (
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
)

// interval is how long a call took that its worker owned.
type interval struct{ start, end time.Time }

// checkConcurrency checks by the targets' own log that never more ran at once than may:
// of a job, of a concurrency key, and of a tenant (I11).
func (e *evidence) checkConcurrency(f *findings) {
	if e.skewed() {
		return
	}
	jobs := map[uuid.UUID]*work{}
	for _, w := range e.jobs {
		jobs[w.id] = w
	}
	type lock struct {
		tenant int
		key    string
	}
	byJob, byTenant, byKey := map[uuid.UUID][]interval{}, map[int][]interval{}, map[lock][]interval{}
	for _, r := range e.rows {
		for _, c := range e.byCall[r.id] {
			w := jobs[r.job]
			if w == nil || !e.ownedThroughout(r, c) {
				continue
			}
			if w.concurrencyLimited() {
				byJob[w.id] = append(byJob[w.id], interval{c.start, c.end})
			}
			if w.key != "" {
				of := lock{w.tenant, w.key}
				byKey[of] = append(byKey[of], interval{c.start, c.end})
			}
			if !c.reported && !c.outside { // an attempt that awaits a report counts against no limit of its tenant
				byTenant[w.tenant] = append(byTenant[w.tenant], interval{c.start, c.end})
			}
		}
	}
	for id, all := range byJob {
		n, at := maxOverlap(all)
		f.check("I11", n <= jobs[id].maxConcurrent, id, uuid.Nil, "targets of %q saw %d runs at once at %s, %d may", jobs[id].name, n, at.Format(stamp), jobs[id].maxConcurrent)
	}
	for of, all := range byKey {
		n, at := maxOverlap(all)
		f.check("I11", n <= 1, uuid.Nil, uuid.Nil, "targets of tenant %d saw %d runs with the key %s at once at %s", of.tenant, n, of.key, at.Format(stamp))
	}
	for tenant, all := range byTenant {
		n, at := maxOverlap(all)
		f.check("I11", n <= e.most, uuid.Nil, uuid.Nil, "targets of tenant %d saw %d runs at once at %s, %d may", tenant, n, at.Format(stamp), e.most)
	}
}

// ownedThroughout says whether a call was its worker's to make from beginning to end.
// One that went on after its worker was given up (frozen, cut off) was not: its
// slot belonged to another already. Calls end long before a lease does, but
// for the short form.
func (e *evidence) ownedThroughout(r row, c call) bool {
	if c.end.IsZero() || !r.finished() {
		return false
	}
	if c.reported && c.aborted { // its report was refused, so the attempt had ended before
		return false
	}
	if c.attempt == r.attempt {
		return !c.end.After(*r.completedAt)
	}
	return c.status == http.StatusInternalServerError && !e.short
}

// maxOverlap is how many intervals there are at once, and when.
func maxOverlap(of []interval) (n int, at time.Time) {
	type edge struct {
		at time.Time
		by int
	}
	var edges []edge
	for _, s := range of {
		edges = append(edges, edge{s.start, 1}, edge{s.end, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.by - b.by // what ends just then makes room
	})
	now := 0
	for _, one := range edges {
		if now += one.by; now > n {
			n, at = now, one.at
		}
	}
	return n, at
}

// checkKeys checks that one execution runs of each concurrency key (I11).
func (shot snapshot) checkKeys(f *findings) {
	for key, n := range shot.byKey {
		f.check("I11", n <= 1, uuid.Nil, uuid.Nil, "%d runs at once with the key %s", n, key)
	}
}

// checkTenants checks what the tables say of each tenant at one moment (I11).
func (shot snapshot) checkTenants(f *findings, limit int) {
	for id, one := range shot.byTenant {
		f.check("I11", one.running <= limit, uuid.Nil, uuid.Nil, "%d runs of tenant %s at once, %d may", one.running, id, limit)
		f.check("I11", one.running == one.counted, uuid.Nil, uuid.Nil, "%d runs of tenant %s at once, and %d are counted", one.running, id, one.counted)
	}
}
