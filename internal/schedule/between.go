package schedule

import (
	"math"
	"time"
)

const (
	maxListed = 10_000        // the longest list that Between gives
	fewTimes  = 4             // so many are listed without counting first
	maxCount  = 1_000_000_000 // where Between stops counting: 31 years of every second
	// countSteps and listSteps are how many intervals Between visits to count and to
	// list. An hour has at most 3,600, because ranges of calendars are whole seconds.
	countSteps = 5_000
	listSteps  = 20_000
)

// Range holds the scheduled times between two times.
type Range struct {
	// Times are the last ones, at most as many as asked for, ascending.
	Times []time.Time
	// Count is how many there were in all, Times included.
	Count int
	// Capped says that counting stopped: there were Count at least.
	Capped bool
	// First and Last are the first and the last of those left out of
	// Times; zero when none was.
	First, Last time.Time
	// Next is the first scheduled time after the window; zero when there is none.
	Next time.Time
}

// Between gives the scheduled times in (after, until]: the last limit of them (at most
// 10,000), how many there are, and the first scheduled time after until. An until
// before after counts as after.
//
// The cost depends on the list and on how often the calendars' verdict changes,
// and not on how many scheduled times there are: an interval in which all calendars admit
// everything is counted at once. Counting stops after 5,000 intervals, or at
// 1,000,000,000 scheduled times, and then Capped is true. The list, First, Last and
// Next are exact all the same, but the list is shorter than it could be where
// the verdict changes another 20,000 times around it.
func (s *Schedule) Between(after, until time.Time, limit int) Range {
	low, high := micro(after), max(micro(until), micro(after))
	limit = min(max(limit, 0), maxListed)
	var r Range
	if s.few(&r, low, high, limit) {
		return r
	}
	if at, ok := s.next(high); ok {
		r.Next = moment(at)
	}
	// From here on in slots: those in (low, high] are the ones whose scheduled times
	// are. At either end one slot may have its scheduled time on the other side.
	if slot, ok := s.slotStillToCome(low); ok {
		low = slot - 1
	}
	if slot, ok := s.slotStillToCome(high); ok {
		high = slot - 1
	}
	s.fill(&r, low, high, limit)
	return r
}

// few fills in a Range of at most limit scheduled times by asking for one after the
// other, which is the fastest where there is hardly any, as nearly always. It is
// false where there are more than a few.
func (s *Schedule) few(r *Range, low, high int64, limit int) bool {
	var found [fewTimes]int64
	for n, after := 0, low; ; n++ {
		at, ok := s.next(after)
		switch {
		case !ok || at <= high && n == min(limit, fewTimes):
			return false
		case at > high:
			r.Next, r.Count = moment(at), n
			for _, at := range found[:n] {
				r.Times = append(r.Times, moment(at))
			}
			return true
		}
		found[n], after = at, at
	}
}

// fill fills in all of a Range but Next, for the slots in (low, high].
func (s *Schedule) fill(r *Range, low, high int64, limit int) {
	budget := countSteps
	all := s.tally(low, high, limit+1, &budget)
	kept, complete := all, all.complete
	if !complete {
		if kept = s.tallyEnd(low, high, limit+1); kept.total == 0 {
			kept = all // the last ones that are known
		}
	}
	slots := s.list(kept, limit+1)
	if len(slots) == 0 {
		r.Capped = !complete
		return
	}
	r.Count = int(min(max(all.total, int64(len(slots))), maxCount))
	r.Capped = !complete || all.total > maxCount
	first := slots[0]
	if all.total > 0 {
		first = all.first
	} else if slot, ok := s.slot(low, first, &budget); ok {
		first = slot
	}
	// A list that was cut tells of its oldest that it is left out, so that First,
	// Last and Count speak of the same scheduled times.
	if len(slots) > limit || first < slots[0] {
		r.First, r.Last = moment(s.at(first)), moment(s.at(slots[0]))
		slots = slots[1:]
	}
	for _, slot := range slots {
		r.Times = append(r.Times, moment(s.at(slot)))
	}
}

// interval is (low, high], in which the calendars admit every slot of the rule,
// and how many these are.
type admittedSpan struct{ low, high, n int64 }

// tally is what there is in a window: how many slots, the first of them, and the
// intervals that hold the last ones.
type tally struct {
	first, total int64
	tail         []admittedSpan
	kept         int64 // slots in tail
	complete     bool  // the budget sufficed
}

// tally goes through (low, high] interval by interval and keeps those that hold the
// last want slots. The budget says how many intervals it may still look at.
func (s *Schedule) tally(low, high int64, want int, budget *int) (t tally) {
	if s.rule == nil {
		return tally{complete: true}
	}
	low, high = max(low, s.start-1, -1), min(high, s.end-1)
	for {
		slot, ok := s.rule.slot(low)
		if !ok || slot > high {
			t.complete = true
			return t
		}
		if *budget <= 0 {
			return t
		}
		*budget--
		admitted, until := s.verdict(slot)
		low = min(until-1, high)
		if admitted {
			t.add(slot, admittedSpan{slot - 1, low, s.rule.count(slot-1, low)}, int64(want))
		}
	}
}

func (t *tally) add(first int64, next admittedSpan, want int64) {
	if t.total == 0 {
		t.first = first
	}
	t.total, t.kept = t.total+next.n, t.kept+next.n
	t.tail = append(t.tail, next)
	for t.kept-t.tail[0].n >= want {
		t.kept -= t.tail[0].n
		t.tail = t.tail[1:]
	}
}

// tallyEnd is tally for the end of a window only: it looks at twice as much of
// it until it has as many slots as are wanted.
func (s *Schedule) tallyEnd(low, high int64, want int) (t tally) {
	budget := listSteps
	for width := int64(want) * second; ; width *= 2 {
		from := max(low, high-width)
		wider := s.tally(from, high, want, &budget)
		if !wider.complete {
			return t
		}
		if t = wider; t.total >= int64(want) || from == low {
			return t
		}
	}
}

// list gives the last want slots of a tally, ascending.
func (s *Schedule) list(t tally, want int) []int64 {
	slots := make([]int64, 0, min(int64(want), t.kept))
	for i, part := range t.tail {
		low := part.low
		if surplus := t.kept - int64(want); i == 0 && surplus > 0 {
			low = s.cut(part, part.n-surplus)
		}
		for slot, ok := s.rule.slot(low); ok && slot <= part.high; slot, ok = s.rule.slot(slot) {
			slots = append(slots, slot)
		}
	}
	return slots
}

// cut is a time in an interval after which it has n slots, 1 to all but one: it
// widens a window at the end until there are as many in it, and then halves.
func (s *Schedule) cut(of admittedSpan, n int64) int64 {
	low, high := of.low, of.high // after low there are more, after high fewer
	for width := n * second; of.high-width > of.low; width *= 2 {
		if low = of.high - width; s.rule.count(low, of.high) >= n {
			break
		}
		low, high = of.low, low
	}
	for high-low > 1 {
		middle := low + (high-low)/2
		switch got := s.rule.count(middle, of.high); {
		case got == n:
			return middle
		case got > n:
			low = middle
		default:
			high = middle
		}
	}
	return low
}

// verdict says whether the calendars admit a slot. If so, they admit all before
// until, else none.
func (s *Schedule) verdict(slot int64) (admitted bool, until int64) {
	admitted, until = true, math.MaxInt64
	refused := slot
	for i := range s.calendars {
		if admits, end := s.calendars[i].verdict(slot); admits {
			until = min(until, end)
		} else {
			admitted, refused = false, max(refused, end)
		}
	}
	if !admitted {
		return false, refused
	}
	return true, until
}
