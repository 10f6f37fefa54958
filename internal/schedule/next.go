package schedule

import (
	"hash/fnv"
	"math"
	"slices"
	"time"
)

const (
	microsecond = 1
	millisecond = 1000 * microsecond
	second      = 1000 * millisecond

	// maxDrops is how many slots calendars may drop one after the other before
	// a search gives up and answers "never": 27 years of daily slots, each
	// dropped by a range of its own. A longer range counts once, and once more
	// for each clock change inside it.
	maxDrops = 10_000
	maxOwed  = 10_000  // the longest list that Owed gives
	maxCount = 100_000 // where Owed stops counting
)

// Next is the first instant strictly after after, in UTC; false means never
// again. Instants lie between 1970 and 2499. With jitter it is the instant
// itself that is compared, not its slot, so that feeding each answer back gives
// every instant once.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	at, ok := s.next(micro(after))
	if !ok {
		return time.Time{}, false
	}
	return moment(at), true
}

func (s *Schedule) next(after int64) (int64, bool) {
	if slot, ok := s.late(after); ok {
		return s.at(slot), true
	}
	budget := maxDrops
	slot, ok := s.slot(after, math.MaxInt64, &budget)
	if !ok {
		return 0, false
	}
	return s.at(slot), true
}

// slot is the first slot in (after, high] that the window and the calendars
// admit. The budget says how many slots the calendars may still drop; at zero
// the answer is false.
func (s *Schedule) slot(after, high int64, budget *int) (int64, bool) {
	if s.rule == nil {
		return 0, false
	}
	after = max(after, s.start-1, -1)
	for *budget > 0 {
		slot, ok := s.rule.slot(after)
		if !ok || slot >= s.end || slot > high {
			return 0, false
		}
		free := s.free(slot)
		if free == slot {
			return slot, true
		}
		after = free - 1
		*budget--
	}
	return 0, false
}

// free is the slot itself where every calendar admits it, else an instant
// before which those that refuse it admit nothing.
func (s *Schedule) free(slot int64) int64 {
	free := slot
	for i := range s.calendars {
		free = max(free, s.calendars[i].free(slot))
	}
	return free
}

// at is a slot moved by its jitter. The slot's own hash picks the place, so that
// it is the same in every process and after a restart, and it lies before the
// next slot of the rule, whichever calendars there are, so that instants keep
// the order of their slots.
func (s *Schedule) at(slot int64) int64 {
	if s.jitter == 0 {
		return slot
	}
	room := s.jitter
	if next, ok := s.rule.slot(slot); ok {
		room = min(room, next-slot)
	}
	return slot + int64(mix(s.seed^mix(uint64(slot)))%uint64(room/millisecond))*millisecond
}

// late is the admitted slot at or before after whose instant is still to come.
// Only the rule's last slot can be one: the others have their instant before it.
func (s *Schedule) late(after int64) (int64, bool) {
	if s.jitter == 0 || s.rule == nil {
		return 0, false
	}
	slot, ok := last(s.rule.slot, after-s.jitter, after)
	if !ok || slot < s.start || slot >= s.end || s.free(slot) != slot {
		return 0, false
	}
	return slot, s.at(slot) > after
}

// last is the last of the ascending values in (low, high] that next steps
// through. Rules run forwards only, so it asks from windows of doubling width
// before high, and then halves.
func last(next func(int64) (int64, bool), low, high int64) (int64, bool) {
	found, ok := next(low)
	if !ok || found > high {
		return 0, false
	}
	if later, ok := next(found); !ok || later > high {
		return found, true // mostly there is only one
	}
	for width := int64(second); high-width > low; width *= 2 {
		if later, ok := next(high - width); ok && later <= high {
			found = later
			break
		}
	}
	for empty := high; ; { // nothing lies in (empty, high]
		later, ok := next(found)
		if !ok || later > high {
			return found, true
		}
		found = later
		middle := found + (empty-found)/2
		if later, ok := next(middle); ok && later <= high {
			found = later
		} else {
			empty = middle
		}
	}
}

// Owed is the answer to "what was due between two instants".
type Owed struct {
	// Instants are the last ones, at most as many as asked for, ascending.
	Instants []time.Time
	// Count is how many there were in all, Instants included.
	Count int
	// Capped says that counting stopped at Count, and there were more.
	Capped bool
	// First and Last are the first and the last of those left out of
	// Instants; zero when none was.
	First, Last time.Time
	// Next is the first instant after the window; zero when there is none.
	Next time.Time
}

// Owed gives the instants in (after, until]: the last limit of them (at most
// 10,000), how many there are, and the first instant after until. An until
// before after counts as after.
//
// The work is bounded: it counts slot by slot and stops at 100,000, or when
// calendars dropped 100,000, and then says Capped. The list, First, Last and
// Next are exact all the same, but the list is shorter than it could be where
// calendars drop another 100,000 around it.
func (s *Schedule) Owed(after, until time.Time, limit int) Owed {
	low, high := micro(after), max(micro(until), micro(after))
	limit = min(max(limit, 0), maxOwed)
	var o Owed
	if at, ok := s.next(high); ok {
		o.Next = moment(at)
	}
	// From here on in slots: those in (low, high] are the ones whose instants
	// are. At either end one slot may have its instant on the other side.
	if slot, ok := s.late(low); ok {
		low = slot - 1
	}
	if slot, ok := s.late(high); ok {
		high = slot - 1
	}
	kept := s.count(&o, low, high, limit)
	if o.Capped {
		kept = s.lastSlots(low, high, limit+1)
	}
	if len(kept) > limit {
		budget := maxDrops
		first, _ := s.slot(low, high, &budget)
		o.First, o.Last = moment(s.at(first)), moment(s.at(kept[0]))
		kept = kept[1:]
	}
	for _, slot := range kept {
		o.Instants = append(o.Instants, moment(s.at(slot)))
	}
	return o
}

// count counts the slots in (low, high] and keeps the last limit and the one
// before them.
func (s *Schedule) count(o *Owed, low, high int64, limit int) []int64 {
	var ring []int64
	budget := 10 * maxDrops
	for slot, ok := s.slot(low, high, &budget); ok; slot, ok = s.slot(slot, high, &budget) {
		if o.Count == maxCount {
			o.Capped = true
			return nil
		}
		if len(ring) <= limit {
			ring = append(ring, slot)
		} else {
			ring[o.Count%(limit+1)] = slot
		}
		o.Count++
	}
	o.Capped = budget == 0
	turn := 0
	if o.Count > limit {
		turn = o.Count % (limit + 1)
	}
	return append(ring[turn:len(ring):len(ring)], ring[:turn]...)
}

// lastSlots finds the last slots in (low, high] from the end, and gives them
// ascending.
func (s *Schedule) lastSlots(low, high int64, limit int) []int64 {
	budget := 10 * maxDrops
	next := func(after int64) (int64, bool) { return s.slot(after, high, &budget) }
	var slots []int64
	for len(slots) < limit {
		slot, ok := last(next, low, high)
		if !ok || budget == 0 {
			break
		}
		slots = append(slots, slot)
		high = slot - 1
	}
	slices.Reverse(slots)
	return slots
}

// micro is an instant in whole microseconds, rounded down: the unit in which
// the database keeps time.
func micro(t time.Time) int64 { return t.UnixMicro() }

func moment(at int64) time.Time {
	return time.UnixMicro(at).UTC()
}

// seedOf and mix spread keys and slots. What they give is part of what tenants
// rely on: another hash would move their jobs.
func seedOf(key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	return mix(h.Sum64())
}

func mix(v uint64) uint64 { // splitmix64
	v ^= v >> 30
	v *= 0xbf58476d1ce4e5b9
	v ^= v >> 27
	v *= 0x94d049bb133111eb
	return v ^ v>>31
}

// slot is clockRule's rule: expressions are due on whole seconds.
func (c *clockRule) slot(after int64) (int64, bool) {
	due, ok := c.next(floorDiv(after, second) + 1)
	return due * second, ok
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
