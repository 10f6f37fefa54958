package promoter

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// crowdedAfter is how many runs of a tenant may wait in the pool before what
// becomes due for it goes there too: a hint would overtake them.
const crowdedAfter = 16

// crowds is where hints would wait behind others: lanes without room, and
// tenants with a line in the pool. It is advice, and a little old.
type crowds struct {
	looked  clock.Mark // the zero mark is long ago
	lanes   map[queue.Lane]bool
	tenants map[uuid.UUID]bool
	none    bool // no hint can be sent at all
}

// look counts anew if the last count is too old. Without an answer nothing is
// hinted, which costs an idle worker's distance between two looks.
func (c *crowds) look(ctx context.Context, p *Promoter, now time.Time) {
	if c.looked.Elapsed() < crowdsEvery {
		return
	}
	*c = crowds{looked: clock.Start(), lanes: map[queue.Lane]bool{}, tenants: map[uuid.UUID]bool{}}
	depths, err := p.Hints.Depth(ctx)
	if err != nil {
		c.none = true
		return
	}
	for lane, waiting := range depths {
		c.lanes[lane] = waiting >= queue.Window
	}
	tenants, err := p.store.crowdedTenants(ctx, now)
	if err != nil {
		c.none = true // the pass that follows meets the same error, and tells of it
		return
	}
	for _, id := range tenants {
		c.tenants[id] = true
	}
}

// takes says whether a run's hint may be sent.
func (c *crowds) takes(lane queue.Lane, tenant uuid.UUID) bool {
	return !c.none && !c.lanes[lane] && !c.tenants[tenant]
}

// announce decides of each run whether it is hinted or waits in the pool. What
// may not start yet is in the pool, where it is found when it may. A run that
// waits for a place or a key is never: it would be in the way of those that may
// start.
func (p *plan) announce(c *crowds) {
	for i := range p.runs {
		r := &p.runs[i]
		r.hinted = !r.available.After(p.at) && c.takes(queue.LaneFor(r.job.spec.Priority), r.job.tenant)
		r.pooled = !r.hinted && r.gate == 0 && r.key() == ""
	}
}

// key is the run's concurrency key; empty: none.
func (r run) key() string { return r.job.spec.KeyOf(r.job.id, nil) }

// lanes are the ids to hint, by lane. Tenants take turns: a hint names what
// stands side by side, and a tenant with one run is not in the last of them.
func (p *plan) lanes() map[queue.Lane][]uuid.UUID {
	type line struct {
		lane   queue.Lane
		tenant uuid.UUID
	}
	lines, order := map[line][]uuid.UUID{}, []line{}
	for _, r := range p.runs {
		if !r.hinted {
			continue
		}
		l := line{queue.LaneFor(r.job.spec.Priority), r.job.tenant}
		if len(lines[l]) == 0 {
			order = append(order, l)
		}
		lines[l] = append(lines[l], r.id)
	}
	out := map[queue.Lane][]uuid.UUID{}
	for len(order) > 0 {
		left := order[:0]
		for _, l := range order {
			out[l.lane] = append(out[l.lane], lines[l][0])
			if lines[l] = lines[l][1:]; len(lines[l]) > 0 {
				left = append(left, l)
			}
		}
		order = left
	}
	return out
}
