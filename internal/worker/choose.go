package worker

import "github.com/google/uuid"

// candidate is an execution that waits and may start.
type candidate struct{ id, tenant uuid.UUID }

// choice is a candidate that is to be claimed.
type choice struct {
	candidate
	kept bool // it may have a slot that is kept
}

// choose gives slots to candidates, in their order. A tenant of which nothing
// runs here may have one that is kept; everybody else has the open ones. busy
// says how many runs of each tenant this worker holds.
func choose(found []candidate, busy map[uuid.UUID]int, open, kept int) (chosen []choice) {
	here := make(map[uuid.UUID]bool, len(found))
	for _, c := range found {
		first := busy[c.tenant] == 0 && !here[c.tenant]
		switch {
		case open > 0:
			open--
		case first && kept > 0:
			kept--
		default:
			continue
		}
		here[c.tenant] = true
		chosen = append(chosen, choice{candidate: c, kept: first})
	}
	return chosen
}
