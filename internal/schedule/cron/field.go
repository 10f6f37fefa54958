package cron

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// field is what the grammar says of one of the fields.
type field struct {
	name      string
	low, high int      // bounds of its values
	digits    int      // how many digits a number may have
	names     []string // names[i] stands for the value low+i
	hashHigh  int      // where a bare H ends: 28 for dates, so that every month has it
}

// grammar is the fields in order. Sunday may also be written 7.
var grammar = [7]field{
	{name: "second", high: 59, digits: 2, hashHigh: 59},
	{name: "minute", high: 59, digits: 2, hashHigh: 59},
	{name: "hour", high: 23, digits: 2, hashHigh: 23},
	{name: "day-of-month", low: 1, high: 31, digits: 2, hashHigh: 28},
	{
		name: "month", low: 1, high: 12, digits: 2, hashHigh: 12,
		names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"},
	},
	{
		name: weekdayField, high: 6, digits: 2, hashHigh: 6,
		names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"},
	},
	{name: "year", low: minYear, high: maxYear, digits: 4},
}

const (
	dateField    = "day-of-month"
	weekdayField = "day-of-week"
)

func (g *field) isDay() bool { return g.name == dateField || g.name == weekdayField }

// top is the largest number that may be written.
func (g *field) top() int {
	if g.name == weekdayField {
		return 7
	}
	return g.high
}

func (g *field) bounds() string { return fmt.Sprintf("%d-%d", g.low, g.top()) }

// fieldParser gathers the items of one field.
type fieldParser struct {
	grammar     *field
	key         string
	text, typed string // the whole field, in capitals and as it was typed
	values      set    // the value v is kept as v, years as v-minYear
	last        bool
	near        uint32
	lastWeekday uint32
	nth         [6]uint32
	uneven      string
}

// item reads one item of a comma-separated list.
func (f *fieldParser) item(text string) error {
	if text == "" {
		return errors.New("has an empty item; remove the extra comma")
	}
	if f.grammar.isDay() {
		if done, err := f.special(text); done || err != nil {
			return err
		}
	}
	base, stepText, stepped := strings.Cut(text, "/")
	step := 1
	if stepped {
		var err error
		if step, err = f.step(stepText); err != nil {
			return err
		}
	}
	if strings.HasPrefix(base, "H") {
		return f.hashed(base, step, stepped)
	}
	from, to, err := f.span(base, stepped)
	if err != nil {
		return err
	}
	if size := f.grammar.high - f.grammar.low + 1; base == "*" && size%step != 0 && !f.grammar.isDay() && f.grammar.low != minYear {
		f.uneven = text
	}
	f.addRange(from, to, step)
	return nil
}

// span reads *, a number, a name or a range. A number with a step after it
// runs to the end of the field.
func (f *fieldParser) span(text string, stepped bool) (from, to int, err error) {
	if text == "*" {
		return f.grammar.low, f.grammar.high, nil
	}
	if text == "?" {
		return 0, 0, errors.New("? stands alone; write * in a list or before a step")
	}
	low, high, ranged := strings.Cut(text, "-")
	if from, err = f.number(low); err != nil {
		return 0, 0, err
	}
	to = from
	if ranged {
		if to, err = f.number(high); err != nil {
			return 0, 0, err
		}
	}
	if f.grammar.name == weekdayField && from == 7 && (!ranged || to != 7) {
		from, to = 0, to%7 // 7-2 begins on Sunday, and so does 7/2
	}
	if to < from {
		return 0, 0, fmt.Errorf("the range %s runs backwards; write it as two, such as %s-%d,%d-%s", f.quote(text), f.quote(low), f.grammar.high, f.grammar.low, f.quote(high))
	}
	if stepped && !ranged {
		to = f.grammar.high
	}
	return from, to, nil
}

// addRange adds every step-th value; in the day of week 7 is Sunday.
func (f *fieldParser) addRange(from, to, step int) {
	for v := from; v <= to; v += step {
		switch f.grammar.name {
		case weekdayField:
			f.values.add(v % 7)
		case "year":
			f.values.add(v - minYear)
		default:
			f.values.add(v)
		}
	}
}

// number reads a number or a name and holds it to the field's bounds.
func (f *fieldParser) number(text string) (int, error) {
	g := f.grammar
	if i := slices.Index(g.names, text); i >= 0 {
		return g.low + i, nil
	}
	if text == "" {
		return 0, fmt.Errorf("a number is missing; write one of %s", g.bounds())
	}
	if strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("%s is not a number%s; write %s", f.quote(text), f.orName(), g.bounds())
	}
	if len(text) > g.digits {
		return 0, fmt.Errorf("%s has too many digits; write %s", f.quote(text), g.bounds())
	}
	v, _ := strconv.Atoi(text)
	if v < g.low || v > g.top() {
		return 0, fmt.Errorf("%s is out of range; write %s", f.quote(text), g.bounds())
	}
	return v, nil
}

func (f *fieldParser) orName() string {
	if f.grammar.names == nil {
		return ""
	}
	return fmt.Sprintf(" or a name %s to %s", f.grammar.names[0], f.grammar.names[len(f.grammar.names)-1])
}

// quote is a part of the field as it was typed: capitals are as long as what they
// are made of, because an expression is ASCII.
func (f *fieldParser) quote(part string) string {
	if i := strings.Index(f.text, part); i >= 0 {
		part = f.typed[i : i+len(part)]
	}
	return shorten(part)
}

// step reads what stands after a slash: 1 to the largest value of the field,
// for years 1 to the length of their range.
func (f *fieldParser) step(text string) (int, error) {
	limit := f.grammar.top()
	if f.grammar.low == minYear {
		limit = maxYear - minYear
	}
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("the step /%s is not a number; write 1-%d", f.quote(text), limit)
	}
	v, err := strconv.Atoi(text)
	if err != nil || len(text) > len(strconv.Itoa(limit)) || v < 1 || v > limit {
		return 0, fmt.Errorf("the step /%s is out of range; write 1-%d", f.quote(text), limit)
	}
	return v, nil
}

// special reads the items that only day fields have.
func (f *fieldParser) special(text string) (done bool, err error) {
	if f.grammar.name == dateField {
		return f.specialDate(text)
	}
	day, nth, numbered := strings.Cut(text, "#")
	if numbered {
		weekday, err := f.number(day)
		if err != nil {
			return false, err
		}
		if len(nth) != 1 || nth[0] < '1' || nth[0] > '5' {
			return false, fmt.Errorf("#%s is not a week of the month; write #1 to #5", f.quote(nth))
		}
		f.nth[nth[0]-'0'] |= 1 << (weekday % 7)
		return true, nil
	}
	day, last := strings.CutSuffix(text, "L")
	switch {
	case !last:
		return false, nil
	case day == "":
		//lint:ignore ST1005 the capital is the letter that the tenant wrote
		return false, errors.New("L alone is not a weekday; write 6L for the month's last Saturday, or L in day-of-month for its last day")
	}
	weekday, err := f.number(day)
	if err != nil {
		return false, err
	}
	f.lastWeekday |= 1 << (weekday % 7)
	return true, nil
}

func (f *fieldParser) specialDate(text string) (done bool, err error) {
	day, near := strings.CutSuffix(text, "W")
	switch {
	case text == "L":
		f.last = true
		return true, nil
	case text == "LW" || strings.HasPrefix(text, "L-"):
		return false, fmt.Errorf("%s is not supported; L is the month's last day and 15W the weekday nearest to the 15th", f.quote(text))
	case text == "W":
		//lint:ignore ST1005 the capital is the letter that the tenant wrote
		return false, errors.New("W needs a date; write 15W for the weekday nearest to the 15th")
	case !near:
		return false, nil
	}
	date, err := f.number(day)
	if err != nil {
		return false, err
	}
	f.near |= 1 << date
	return true, nil
}
