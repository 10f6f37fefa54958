// Package queue is the only door to Redis and asynq.
//
// It owns the hint (which executions may be worth claiming), the three lanes
// that hints travel in, how they are published and consumed, and what is told
// about the Redis behind them. A hint is a doorbell: PostgreSQL owns every
// fact, so losing all of Redis loses time and never work, and a hint that
// arrives twice, late, or forged changes nothing, because the worker that receives it
// claims in PostgreSQL first.
//
// It refuses payloads, tenants and secrets in Redis, and everything of asynq
// that would make Redis a second truth: retries, archives, retention,
// uniqueness, results, cancellation, its scheduler, and queues made at run
// time. Data from Redis is untrusted.
//
// Promoter, worker and API publish; workers consume. Each declares the small
// interface it needs, so that PostgreSQL alone can stand in for this package.
package queue

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// Lane is one of three fixed queues. Lanes are weighted and not strict: while
// all three are full, high gets six turns, normal three and low one. There is
// no lane per tenant, since asynq pays one script call per queue and poll.
type Lane string

// The lanes, by the priority of a job (0 to 9, 9 first).
const (
	High   Lane = "high"   // 7 to 9
	Normal Lane = "normal" // 3 to 6
	Low    Lane = "low"    // 0 to 2
)

// LaneFor is the lane of a priority. A priority outside of 0 to 9 gets the
// nearest lane.
func LaneFor(priority int) Lane {
	switch {
	case priority >= 7:
		return High
	case priority >= 3:
		return Normal
	default:
		return Low
	}
}

// lanes lists every lane, the most urgent first.
func lanes() [3]Lane { return [...]Lane{High, Normal, Low} }

// weight is the lane's share of the polls, and zero for what is no lane.
func (l Lane) weight() int {
	switch l {
	case High:
		return 6
	case Normal:
		return 3
	case Low:
		return 1
	default:
		return 0
	}
}

// Window is how many hints may wait in a lane, all tenants together, before what
// is made is no longer hinted. It then waits in PostgreSQL, where it can be
// taken in any order: in Redis the first come is the first served, whatever tenant it
// belongs to. It holds four passes of a promoter (500 executions in 16 hints),
// and of hints of a single execution what one consumer takes in 10 ms.
const Window = 64

// MaxIDs is the most executions that one hint names. It bounds how much work
// a lost hint delays and how much a worker must put back.
const MaxIDs = 64

// Hint names executions that may be pending. It is advice: the receiver reads
// everything else from PostgreSQL.
type Hint struct {
	Lane Lane
	// IDs has 1 to MaxIDs entries, none of them twice.
	IDs []uuid.UUID
}

// The wire form: one byte of version, then 16 bytes for each id.
const (
	codecVersion = 1
	idSize       = len(uuid.UUID{})
)

// errHint is what every malformed hint is refused with, beside the reason.
var errHint = errors.New("malformed hint")

// encode is the wire form, and refuses what decode would.
func (h Hint) encode() ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	wire := make([]byte, 1, 1+len(h.IDs)*idSize)
	wire[0] = codecVersion
	for _, id := range h.IDs {
		wire = append(wire, id[:]...)
	}
	return wire, nil
}

// decode reads the wire form. It refuses an unknown lane or version, a length
// that is not whole ids, no ids, more than MaxIDs, and an id named twice, and
// it looks at the length before it allocates.
func decode(lane Lane, wire []byte) (Hint, error) {
	if len(wire) == 0 || wire[0] != codecVersion {
		return Hint{}, fmt.Errorf("%w: unknown version", errHint)
	}
	count := (len(wire) - 1) / idSize
	if len(wire) != 1+count*idSize || count < 1 || count > MaxIDs {
		return Hint{}, fmt.Errorf("%w: length %d", errHint, len(wire))
	}
	h := Hint{Lane: lane, IDs: make([]uuid.UUID, count)}
	for i := range h.IDs {
		copy(h.IDs[i][:], wire[1+i*idSize:])
	}
	if err := h.check(); err != nil {
		return Hint{}, err
	}
	return h, nil
}

// check holds what encode and decode demand alike. Comparing each pair of at
// most 64 ids takes a few microseconds and allocates nothing.
func (h Hint) check() error {
	if h.Lane.weight() == 0 {
		return fmt.Errorf("%w: unknown lane", errHint)
	}
	if len(h.IDs) < 1 || len(h.IDs) > MaxIDs {
		return fmt.Errorf("%w: %d ids", errHint, len(h.IDs))
	}
	for i, id := range h.IDs {
		for _, earlier := range h.IDs[:i] {
			if id == earlier {
				return fmt.Errorf("%w: an id twice", errHint)
			}
		}
	}
	return nil
}

// spread is how many hints a burst is cut into before the hints grow: enough
// that no worker gets more than a sixteenth of it, few enough that asynq's
// cost, which is per hint and not per id, stays small.
const spread = 16

// together is how many executions a hint names where there are so many and they do not
// compute. A worker claims them by one statement and writes their outcomes by one, and
// fewer workers wake up for a small burst.
const together = 4

// split cuts ids into hints of even size: least ids each for a small burst, MaxIDs
// each for a large one. An id that is named twice is sent once.
func split(lane Lane, ids []uuid.UUID, least int) []Hint {
	ids = distinct(ids)
	size := min(max((len(ids)+spread-1)/spread, least), MaxIDs)
	hints := make([]Hint, 0, (len(ids)+size-1)/size)
	for len(ids) > 0 {
		n := min(size, len(ids))
		hints = append(hints, Hint{Lane: lane, IDs: ids[:n:n]})
		ids = ids[n:]
	}
	return hints
}

// distinct drops repetitions and keeps the order. It leaves its argument as
// it is.
func distinct(ids []uuid.UUID) []uuid.UUID {
	if len(ids) < 2 {
		return ids
	}
	seen := make(map[uuid.UUID]struct{}, len(ids))
	kept := make([]uuid.UUID, 0, len(ids))
	for _, id := range ids {
		if _, ok := seen[id]; !ok {
			seen[id] = struct{}{}
			kept = append(kept, id)
		}
	}
	return kept
}
