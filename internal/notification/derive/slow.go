package derive

import (
	"time"

	"github.com/google/uuid"
)

const (
	// known is how many completed executions of a job say what is usual, and remembered how
	// many of the last ones the average goes by.
	known, remembered = 10, 20
	// slowFactor times the usual is slow, if that is slowLeast longer: a job of 2 ms may take
	// 10 ms.
	slowFactor = 3
	slowLeast  = time.Second
)

// pace is how long the completed executions of a job take.
type pace struct {
	tenant uuid.UUID
	usual  time.Duration
	runs   int
	slow   bool // the last one was
}

// add says whether an execution that took so long is the first slow one of a row, and what is
// usual after it. A slow one counts as little more than twice the usual, so that one that hung
// for hours does not hide the next; a job that is slow from now on is usual after some twenty.
func (p pace) add(took time.Duration) (after pace, first bool) {
	knows := p.runs >= known
	slow := knows && took > slowFactor*p.usual && took-p.usual >= slowLeast
	first, p.slow = slow && !p.slow, slow
	if knows {
		took = min(took, 2*p.usual+slowLeast)
	}
	p.runs = min(p.runs+1, remembered)
	p.usual += (took - p.usual) / time.Duration(p.runs)
	return p, first
}
