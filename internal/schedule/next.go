package schedule

import (
	"hash/fnv"
	"math"
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
)

// Next is the first scheduled time strictly after after, in UTC; false means never
// again. Scheduled times lie between 1970 and 2499. With jitter it compares the
// scheduled time itself, not its slot, so that feeding each answer back gives every
// scheduled time once.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	at, ok := s.next(micro(after))
	if !ok {
		return time.Time{}, false
	}
	return moment(at), true
}

func (s *Schedule) next(after int64) (int64, bool) {
	if slot, ok := s.slotStillToCome(after); ok {
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

// free is the slot itself where every calendar admits it, else a scheduled time
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
// next slot of the rule, whichever calendars there are, so that scheduled times keep
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

// slotStillToCome is the admitted slot at or before after whose scheduled time is still to come.
// Only the rule's last slot can be one: the others have their scheduled time before it.
func (s *Schedule) slotStillToCome(after int64) (int64, bool) {
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

// micro is a time in whole microseconds, rounded down: the unit in which
// the database keeps time.
func micro(t time.Time) int64 { return t.UnixMicro() }

func moment(at int64) time.Time {
	return time.UnixMicro(at).UTC()
}

// seedOf and mix spread keys and slots. Their results are part of what tenants
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
