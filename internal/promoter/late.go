package promoter

import (
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
)

// maxCatchingUp is for how many tenants places are kept; those beyond share theirs.
const maxCatchingUp = 10_000

// lateStarts spreads late runs over time, so that an outage is not followed by a
// stampede on the tenants' targets: it hands out places at a steady rate, to each
// tenant for itself. Passes beside one another may hand out the same ones.
type lateStarts struct {
	rate func() int // late runs of a tenant in a second; nil: one
	mu   sync.Mutex // of last
	// last is the start that a tenant got last. A time in the past is treated as
	// absent, and is forgotten.
	last map[uuid.UUID]time.Time
}

// places are the starts that one pass hands out. They count once it is committed.
type places struct {
	from   *lateStarts
	every  time.Duration // distance between two late runs of a tenant
	handed map[uuid.UUID]time.Time
}

func (c *lateStarts) begin() *places {
	rate := 1
	if c.rate != nil {
		rate = max(1, c.rate())
	}
	return &places{from: c, every: time.Second / time.Duration(rate)}
}

// next is when the next late run of a tenant may start, by the database's clock.
func (p *places) next(tenant uuid.UUID, now time.Time) time.Time {
	p.from.mu.Lock()
	defer p.from.mu.Unlock()
	last, ok := p.last(tenant)
	if !ok && len(p.from.last)+len(p.handed) >= maxCatchingUp {
		tenant = uuid.Nil
		last, _ = p.last(tenant)
	}
	if last.Before(now) {
		last = now
	} else {
		last = last.Add(p.every)
	}
	if p.handed == nil {
		p.handed = map[uuid.UUID]time.Time{}
	}
	p.handed[tenant] = last
	return last
}

// forget takes back what was handed out to a tenant.
func (p *places) forget(tenant uuid.UUID) { delete(p.handed, tenant) }

func (p *places) last(tenant uuid.UUID) (time.Time, bool) {
	if last, ok := p.handed[tenant]; ok {
		return last, true
	}
	last, ok := p.from.last[tenant]
	return last, ok
}

// commit makes what a pass handed out count, and forgets what has passed.
func (p *places) commit(now time.Time) {
	p.from.mu.Lock()
	defer p.from.mu.Unlock()
	if p.from.last == nil {
		p.from.last = map[uuid.UUID]time.Time{}
	}
	maps.Copy(p.from.last, p.handed)
	maps.DeleteFunc(p.from.last, func(_ uuid.UUID, last time.Time) bool { return last.Before(now) })
}
