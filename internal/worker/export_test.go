package worker

import "time"

// Stopping sets how long runs that a stop ended may take to end, and their last outcomes to be
// written.
func (c *Config) Stopping(endWithin, lastWords time.Duration) {
	c.endWithin, c.lastWords = endWithin, lastWords
}

// Ending is how many runs hold a slot while their outcome is written.
func (w *Worker) Ending() int { return w.ending() }

// Others is how many workers could drain a backlog, too, when this one last found that one does.
func (w *Worker) Others() int { return w.join.others }

// ClaimTook is about how long its last claims took, with their commits and without rowClaim of each execution.
func (w *Worker) ClaimTook() time.Duration { return w.join.usual.claim }
