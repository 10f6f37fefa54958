package worker

import (
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
)

// choice is a candidate that is to be claimed.
type choice struct {
	dispatch.Candidate
	kept bool // it may have a slot that is kept
}

// choose gives slots to candidates, in their order. A tenant of which nothing
// runs here may have one that is kept; everybody else has the open ones. busy
// says how many runs of each tenant this worker holds.
func choose(found []dispatch.Candidate, busy map[uuid.UUID]int, open, kept int) (chosen []choice) {
	here := make(map[uuid.UUID]bool, len(found))
	for _, c := range found {
		first := busy[c.Tenant] == 0 && !here[c.Tenant]
		switch {
		case open > 0:
			open--
		case first && kept > 0:
			kept--
		default:
			continue
		}
		here[c.Tenant] = true
		chosen = append(chosen, choice{Candidate: c, kept: first})
	}
	return chosen
}
