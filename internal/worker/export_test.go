package worker

import "time"

// EndWithin sets how long runs that a stop ended may take to end.
func (c *Config) EndWithin(d time.Duration) { c.endWithin = d }
