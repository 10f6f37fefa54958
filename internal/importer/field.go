package importer

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// dialect is how a scheduler writes the fields of a cron expression.
type dialect struct {
	// sunday is the number of Sunday, and saturday the largest number of a weekday.
	sunday, saturday int
	// open: 5/15 means every 15th from 5 to the end. Otherwise it is refused, because
	// versions of the same program differ on it.
	open bool
	// wraps: a range may run over the end, as 22-2.
	wraps bool
	// letters: L, W and # mean something.
	letters bool
	// question: ? stands for * in a day field.
	question bool
}

var (
	vixie   = dialect{saturday: 7}
	robfig  = dialect{saturday: 6, open: true, question: true}
	amazons = dialect{sunday: 1, saturday: 7, open: true, letters: true, question: true}
	quartz  = dialect{sunday: 1, saturday: 7, open: true, wraps: true, letters: true, question: true}
)

// kind is one of the fields of an expression.
type kind struct {
	name     string
	min, max int
	names    []string // of min and those that follow
}

var (
	months   = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	weekdays = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

	second     = kind{name: "second", max: 59}
	minute     = kind{name: "minute", max: 59}
	hour       = kind{name: "hour", max: 23}
	dayOfMonth = kind{name: "day of month", min: 1, max: 31}
	month      = kind{name: "month", min: 1, max: 12, names: months}
)

// dayOfWeek is the weekday in the numbers of a dialect.
func (d dialect) dayOfWeek() kind {
	return kind{name: "day of week", min: d.sunday, max: d.saturday, names: weekdays}
}

// values are what a field admits.
type values struct {
	kind kind
	set  uint64 // bit v: the value v
	// letters are items of a day field that no set says, in our notation; with them set is
	// empty.
	letters []string
	starred bool // the field begins with * or ?
	// question: the field is ?.
	question bool
}

// full says whether every value is admitted.
func (v values) full() bool { return v.set == span(v.kind.min, v.kind.max) }

// span has the bits from first to last.
func span(first, last int) uint64 { return (1<<(last+1) - 1) &^ (1<<first - 1) }

// read reads a field of an expression.
func (d dialect) read(k kind, text string) (values, error) {
	v := values{kind: k, starred: strings.HasPrefix(text, "*") || strings.HasPrefix(text, "?"), question: text == "?"}
	if v.question && (!d.question || k.name != dayOfMonth.name && k.name != "day of week") {
		return v, fmt.Errorf("%s: ? stands only for a day", k.name)
	}
	for item := range strings.SplitSeq(strings.ToUpper(text), ",") {
		if special, ok, err := d.letter(k, item); err != nil {
			return v, err
		} else if ok {
			v.letters = append(v.letters, special)
			continue
		}
		set, err := d.item(k, item)
		if err != nil {
			return v, fmt.Errorf("%s: %q %w", k.name, item, err)
		}
		v.set |= set
	}
	if len(v.letters) > 0 && v.set != 0 {
		return v, fmt.Errorf("%s: L, W and # beside other values are not possible here", k.name)
	}
	return v, nil
}

// item reads one item of a list: a value, a range or all, with a step or without.
func (d dialect) item(k kind, item string) (uint64, error) {
	body, stepText, stepped := strings.Cut(item, "/")
	step := 1
	if stepped {
		var err error
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 || stepText[0] == '+' {
			return 0, errors.New("has no step that can be read")
		}
	}
	first, last := k.min, k.max
	switch from, to, ranged := strings.Cut(body, "-"); {
	case body == "*" || body == "?" && d.question || body == "" && stepped && d.wraps:
	case ranged:
		var err error
		if first, err = k.value(from); err != nil {
			return 0, err
		}
		if last, err = k.value(to); err != nil {
			return 0, err
		}
		if last == k.min && k.max == 7 && d.sunday == 0 && first > 0 { // FRI-SUN
			last = 7
		}
	default:
		var err error
		if first, err = k.value(body); err != nil {
			return 0, err
		}
		if last = first; stepped {
			if !d.open {
				return 0, errors.New("is not read alike by all versions; write the range out, such as 5-59/15")
			}
			last = k.max
		}
	}
	return d.steps(k, first, last, step)
}

// steps are the values from first to last, step apart.
func (d dialect) steps(k kind, first, last, step int) (uint64, error) {
	if last < first {
		if !d.wraps {
			return 0, errors.New("runs backwards")
		}
		last += k.max - k.min + 1
	}
	var set uint64
	for v := first; v <= last; v += step {
		at := v
		if at > k.max {
			at -= k.max - k.min + 1
		}
		set |= 1 << at
	}
	return set, nil
}

// value is a number or a name of a field.
func (k kind) value(text string) (int, error) {
	if at := slices.Index(k.names, text); at >= 0 {
		return k.min + at, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || text[0] == '+' || text[0] == '-' {
		return 0, errors.New("cannot be read")
	}
	if n < k.min || n > k.max {
		return 0, fmt.Errorf("is out of range %d-%d", k.min, k.max)
	}
	return n, nil
}

// letter reads an item with L, W or #, into our notation.
func (d dialect) letter(k kind, item string) (ours string, ok bool, err error) {
	isWeekday := k.name == "day of week"
	weekday := func(text string) (string, error) {
		n, err := k.value(text)
		return strconv.Itoa(n - d.sunday), err
	}
	switch {
	case k.name == dayOfMonth.name && (item == "L" || strings.HasSuffix(item, "W") && item != "LW"):
	case isWeekday && strings.Contains(item, "#"), isWeekday && strings.HasSuffix(item, "L"):
	case k.name == dayOfMonth.name && (item == "LW" || strings.HasPrefix(item, "L-")):
		return "", false, fmt.Errorf("%s: %s has no counterpart here", k.name, item)
	default:
		return "", false, nil
	}
	if !d.letters {
		return "", false, fmt.Errorf("%s: %s is not known to this scheduler", k.name, item)
	}
	day, rest, _ := strings.Cut(item, "#")
	switch {
	case !isWeekday:
		return item, true, nil
	case item == "L": // Quartz and Amazon: every Saturday
		return "6", true, nil
	case rest != "":
		ours, err = weekday(day)
		return ours + "#" + rest, true, wrap(k, item, err)
	default:
		ours, err = weekday(strings.TrimSuffix(item, "L"))
		return ours + "L", true, wrap(k, item, err)
	}
}

func wrap(k kind, item string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %q %w", k.name, item, err)
	}
	return nil
}

// String is the field in our notation.
func (v values) String() string {
	if len(v.letters) > 0 {
		return strings.Join(v.letters, ",")
	}
	k, set := v.kind, v.set
	if k.name == "day of week" {
		k.min, k.max = 0, 6
		if v.kind.min == 1 {
			set >>= 1 // Sunday becomes 0
		} else if set&(1<<7) != 0 {
			set = set&^(1<<7) | 1
		}
	}
	if set == span(k.min, k.max) {
		return "*"
	}
	if step := stepOf(k, set); step > 1 {
		return "*/" + strconv.Itoa(step)
	}
	var parts []string
	for rest := set; rest != 0; {
		first := bits.TrailingZeros64(rest)
		length := bits.TrailingZeros64(^(rest >> first))
		rest &^= span(first, first+length-1)
		switch last := first + length - 1; length {
		case 1:
			parts = append(parts, strconv.Itoa(first))
		case 2:
			parts = append(parts, strconv.Itoa(first), strconv.Itoa(last))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", first, last))
		}
	}
	return strings.Join(parts, ",")
}

// stepOf is the step from each value of the set to the next, up to the last; 0: there is none.
func stepOf(k kind, set uint64) int {
	if bits.OnesCount64(set) < 3 || set&(1<<k.min) == 0 {
		return 0
	}
	step := bits.TrailingZeros64(set&^(1<<k.min)) - k.min
	want, _ := dialect{}.steps(k, k.min, k.max, step) // forwards it never fails
	if want != set {
		return 0
	}
	return step
}

// posix says in our notation which days a day of the month and a weekday mean together:
// either, unless a field begins with a star (Vixie's rule), and is full (robfig's).
func posix(day, weekday values, star func(values) bool) (days, weekdays string, err error) {
	switch {
	case star(day) || star(weekday):
		if !day.full() && !weekday.full() {
			return "", "", errors.New("the day has to fit both fields, which a job cannot say; make it two conditions of the job or use a calendar")
		}
	case day.full() || weekday.full(): // either, and one is every day
		return "*", "*", nil
	}
	return day.String(), weekday.String(), nil
}

// exclusive says the same for schedulers in which one of the two is always a question
// mark.
func exclusive(day, weekday values) (days, weekdays string, err error) {
	if day.question == weekday.question {
		return "", "", errors.New("one of day of month and day of week has to be ?")
	}
	if day.question {
		return "*", weekday.String(), nil
	}
	return day.String(), "*", nil
}
