package maintenance

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

const (
	// countBudget is how long a pass counts, each second: it keeps a fifth of one
	// connection busy. An execution takes 2 µs (measured on two cores). So a pass counts
	// about 100,000 of them, and with a million waiting a number is 10 s old.
	countBudget = 200 * time.Millisecond
	// countFrom is how many must wait for a number to be kept.
	countFrom = 500
	// countRows is how many rows one statement reads, at most; fewer where that takes
	// long, down to countRowsLeast. So no statement is longer for a tenant that has much.
	countRows, countRowsLeast = 10_000, 500
	// countPause is after how long a pass counts from the beginning: what was read before
	// may be gone, as where nothing waited meanwhile or another process counted.
	countPause = 10 * time.Second
	// countRest is how many times as long as it read a round is left alone where nobody is
	// near a limit, and countRestMost how long at most. The numbers decide nothing there, and
	// counting each second was 5 of the 74 µs that PostgreSQL spent on an execution of a drain.
	countRest, countRestMost = 50, 5 * time.Second
	// keepNumbers is how many numbers one statement keeps, at most.
	keepNumbers = 5000
)

// waitingCount is where the counting is. Rows are read by tenant, and those of a tenant
// by scheduled time.
type waitingCount struct {
	after   rowPlace                     // the row that was read last
	rows    int32                        // how many the next statement reads
	tenants map[uuid.UUID]*tenantWaiting // of whom rows may still follow, with those that were read
	kept    numberKey                    // the numbers before this one are kept
	last    clock.Mark                   // when the last pass ended
	spent   time.Duration                // by this round, reading
	near    bool                         // this round found somebody near a limit
	rest    time.Duration                // how long the round that ended is left alone
}

// rowPlace is the place of a row in the order of reading.
type rowPlace struct {
	within bool // rows of its tenant may follow
	tenant uuid.UUID
	at     time.Time
	id     uuid.UUID
}

// end is the first number that rows after the place may change.
func (p rowPlace) end() numberKey {
	if p.within {
		return numberKey{tenant: p.tenant}
	}
	return numberKey{p.tenant, uuid.Max}
}

// page is what was counted among some rows.
type page struct {
	jobs []waitingJob
	last rowPlace // the row that was read last
	all  bool     // no rows follow
}

// waitingJob is what waits of a job.
type waitingJob struct {
	numberKey
	waiting int64
	own     int64 // the smaller one of the limits of the tenant's own; 0: none
}

// tenantWaiting is what waits of a tenant.
type tenantWaiting struct {
	own  int64 // as of waitingJob
	jobs map[uuid.UUID]int64
}

// numberKey says of what a number is: of a job or, with uuid.Nil, of a tenant.
type numberKey struct{ tenant, job uuid.UUID }

func (k numberKey) compare(other numberKey) int {
	if c := bytes.Compare(k.tenant[:], other.tenant[:]); c != 0 {
		return c
	}
	return bytes.Compare(k.job[:], other.job[:])
}

// number is how much waits.
type number struct {
	of      numberKey
	waiting int64
}

// CountWaiting goes on counting what waits, of tenants and jobs that have much,
// for a fifth of a second at most: admissions compare the numbers with the limits.
// One process at a time does so. It says whether all tenants were counted.
func (m *Maintainer) CountWaiting(ctx context.Context) (all bool, err error) {
	began := clock.Start()
	if m.counting.last.Elapsed() > countPause {
		m.counting.restart()
	}
	m.counting.rest = 0
	for !all && err == nil && began.Elapsed() < countBudget {
		all, err = m.countPage(ctx)
	}
	m.counting.last = clock.Start()
	return all, err
}

// countPage reads the next rows, and keeps the numbers of the tenants that end with
// them. Where that fails these keep the numbers that they had, until the next round.
func (m *Maintainer) countPage(ctx context.Context) (all bool, err error) {
	c := &m.counting
	mark := clock.Start()
	page, err := m.store.countNextWaiting(ctx, c.after, c.rows)
	took := mark.Elapsed()
	c.resize(took)
	c.spent += took
	if err != nil {
		return false, err
	}
	c.add(page.jobs)
	from, until := c.kept, page.last.end()
	if page.all {
		until = numberKey{uuid.Max, uuid.Max}
	}
	numbers := c.end(until, m.c.Backlog())
	if c.after, c.kept = page.last, until; page.all {
		c.rest = c.rested()
		c.restart()
	}
	return page.all, m.store.keepWaiting(ctx, from, until, numbers)
}

// restart begins with the first tenant again.
func (c *waitingCount) restart() {
	*c = waitingCount{rows: c.rows, rest: c.rest, tenants: map[uuid.UUID]*tenantWaiting{}}
}

// rested is how long a round that ends now is left alone.
func (c *waitingCount) rested() time.Duration {
	if c.near {
		return 0
	}
	return clock.Rest(c.spent, countRest, 0, countRestMost)
}

// rests says whether the last round is still left alone.
func (c *waitingCount) rests() bool { return c.last.Elapsed() < c.rest }

// resize says how many rows are read next, by how long the last ones took.
func (c *waitingCount) resize(took time.Duration) {
	switch {
	case took > countBudget/2:
		c.rows = max(countRowsLeast, c.rows/2)
	case took < countBudget/8:
		c.rows = min(countRows, 2*c.rows)
	}
}

// add adds what was counted among rows.
func (c *waitingCount) add(jobs []waitingJob) {
	for _, j := range jobs {
		t := c.tenants[j.tenant]
		if t == nil {
			t = &tenantWaiting{own: j.own, jobs: map[uuid.UUID]int64{}}
			c.tenants[j.tenant] = t
		}
		t.jobs[j.job] += j.waiting
	}
}

// end forgets the tenants that lie before a key and answers, in order, their numbers
// that are to be kept: those of as much as countLeast, or as a limit of the tenant's own.
func (c *waitingCount) end(until numberKey, most tenant.Backlog) (numbers []number) {
	least := countLeast(most)
	for id, t := range c.tenants {
		if (numberKey{tenant: id}).compare(until) >= 0 {
			continue
		}
		numbers = append(numbers, t.numbers(id, least)...)
		c.near = c.near || t.near(most)
		delete(c.tenants, id)
	}
	slices.SortFunc(numbers, func(a, b number) int { return a.of.compare(b.of) })
	return numbers
}

// numbers are those of the tenant that are to be kept.
func (t *tenantWaiting) numbers(id uuid.UUID, least int64) (numbers []number) {
	if t.own > 0 {
		least = min(least, t.own)
	}
	var sum int64
	for job, waiting := range t.jobs {
		if sum += waiting; waiting >= least {
			numbers = append(numbers, number{numberKey{id, job}, waiting})
		}
	}
	if sum >= least {
		numbers = append(numbers, number{numberKey{tenant: id}, sum})
	}
	return numbers
}

// near says whether half of what a limit allows waits, or more. A limit of the tenant's own is
// taken for one of both: it is the smaller one.
func (t *tenantWaiting) near(most tenant.Backlog) bool {
	var sum int64
	for _, waiting := range t.jobs {
		if sum += waiting; isHalf(waiting, t.own) || isHalf(waiting, int64(most.MaxPerJob)) {
			return true
		}
	}
	return isHalf(sum, t.own) || isHalf(sum, int64(most.Max))
}

// isHalf says whether a number is half of a limit, or more; 0 is no limit.
func isHalf(waiting, limit int64) bool { return limit > 0 && 2*waiting >= limit }
