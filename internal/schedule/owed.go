package schedule

import (
	"math"
	"time"
)

const (
	maxOwed  = 10_000        // the longest list that Owed gives
	fewOwed  = 4             // so many are listed without counting first
	maxCount = 1_000_000_000 // where Owed stops counting: 31 years of every second
	// countSteps and listSteps are how many stretches Owed looks at to count and to
	// list. An hour has at most 3,600, because ranges of calendars are whole seconds.
	countSteps = 5_000
	listSteps  = 20_000
)

// Owed is the answer to "what was due between two scheduled times".
type Owed struct {
	// Instants are the last ones, at most as many as asked for, ascending.
	Instants []time.Time
	// Count is how many there were in all, Instants included.
	Count int
	// Capped says that counting stopped: there were Count at least.
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
// The cost depends on the list and on how often the calendars' verdict changes,
// and not on how many instants there are: a stretch in which all calendars admit
// everything is counted at once. Counting stops after 5,000 stretches, or at
// 1,000,000,000 instants, and then Owed says Capped. The list, First, Last and
// Next are exact all the same, but the list is shorter than it could be where
// the verdict changes another 20,000 times around it.
func (s *Schedule) Owed(after, until time.Time, limit int) Owed {
	low, high := micro(after), max(micro(until), micro(after))
	limit = min(max(limit, 0), maxOwed)
	var o Owed
	if s.few(&o, low, high, limit) {
		return o
	}
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
	s.owed(&o, low, high, limit)
	return o
}

// few fills in an Owed of at most limit instants by asking for one after the
// other, which is the fastest where hardly any is owed, as nearly always. It is
// false where there are more than a few.
func (s *Schedule) few(o *Owed, low, high int64, limit int) bool {
	var found [fewOwed]int64
	for n, after := 0, low; ; n++ {
		at, ok := s.next(after)
		switch {
		case !ok || at <= high && n == min(limit, fewOwed):
			return false
		case at > high:
			o.Next, o.Count = moment(at), n
			for _, at := range found[:n] {
				o.Instants = append(o.Instants, moment(at))
			}
			return true
		}
		found[n], after = at, at
	}
}

// owed fills in all of an Owed but Next, for the slots in (low, high].
func (s *Schedule) owed(o *Owed, low, high int64, limit int) {
	budget := countSteps
	all := s.tally(low, high, limit+1, &budget)
	kept, whole := all, all.whole
	if !whole {
		if kept = s.tallyEnd(low, high, limit+1); kept.total == 0 {
			kept = all // the last ones that are known
		}
	}
	slots := s.list(kept, limit+1)
	if len(slots) == 0 {
		o.Capped = !whole
		return
	}
	o.Count = int(min(max(all.total, int64(len(slots))), maxCount))
	o.Capped = !whole || all.total > maxCount
	first := slots[0]
	if all.total > 0 {
		first = all.first
	} else if slot, ok := s.slot(low, first, &budget); ok {
		first = slot
	}
	// A list that was cut tells of its oldest that it is left out, so that First,
	// Last and Count speak of the same instants.
	if len(slots) > limit || first < slots[0] {
		o.First, o.Last = moment(s.at(first)), moment(s.at(slots[0]))
		slots = slots[1:]
	}
	for _, slot := range slots {
		o.Instants = append(o.Instants, moment(s.at(slot)))
	}
}

// stretch is (low, high], in which the calendars admit every slot of the rule,
// and how many these are.
type stretch struct{ low, high, n int64 }

// tally is what there is in a window: how many slots, the first of them, and the
// stretches that hold the last ones.
type tally struct {
	first, total int64
	tail         []stretch
	kept         int64 // slots in tail
	whole        bool  // the budget sufficed
}

// tally goes through (low, high] stretch by stretch and keeps those that hold the
// last want slots. The budget says how many stretches it may still look at.
func (s *Schedule) tally(low, high int64, want int, budget *int) (t tally) {
	if s.rule == nil {
		return tally{whole: true}
	}
	low, high = max(low, s.start-1, -1), min(high, s.end-1)
	for {
		slot, ok := s.rule.slot(low)
		if !ok || slot > high {
			t.whole = true
			return t
		}
		if *budget <= 0 {
			return t
		}
		*budget--
		admitted, until := s.verdict(slot)
		low = min(until-1, high)
		if admitted {
			t.add(slot, stretch{slot - 1, low, s.rule.count(slot-1, low)}, int64(want))
		}
	}
}

func (t *tally) add(first int64, next stretch, want int64) {
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
		if !wider.whole {
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

// cut is an instant of a stretch after which it has n slots, 1 to all but one: it
// widens a window at the end until there are as many in it, and then halves.
func (s *Schedule) cut(of stretch, n int64) int64 {
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
