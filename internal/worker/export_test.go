package worker

import "time"

// Stopping sets how long runs that a stop ended may take to end, and their last outcomes to be
// written.
func (c *Config) Stopping(endWithin, lastWords time.Duration) {
	c.endWithin, c.lastWords = endWithin, lastWords
}
