package promoter

import "time"

// catchup spreads late runs over time, so that an outage is not followed by a
// stampede on the tenants' targets: it hands out places at a steady rate.
type catchup struct {
	every time.Duration // distance between two late runs
	last  time.Time     // the place handed out last
}

// next is when the next late run may start, by the database's clock.
func (c *catchup) next(now time.Time) time.Time {
	if c.last.Before(now) {
		c.last = now
	} else {
		c.last = c.last.Add(c.every)
	}
	return c.last
}
