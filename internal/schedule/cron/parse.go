package cron

import (
	"fmt"
	"strings"
)

// MaxLength is the longest expression, in bytes.
const MaxLength = 256

// Problem is one thing that is wrong with an expression.
type Problem struct {
	// Field is the cron field ("minute", "day-of-week"), or "expression" where
	// the whole is wrong.
	Field string
	// Message says what is wrong and what would be right, with the cron field in
	// front where it is about one.
	Message string
}

// Error lists every field that is wrong, in the order of the fields.
type Error struct{ Problems []Problem }

// Error joins the messages.
func (e *Error) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.Message
	}
	return strings.Join(texts, "; ")
}

func whole(format string, args ...any) *Error {
	return &Error{[]Problem{{"expression", fmt.Sprintf(format, args...)}}}
}

// aliases are the names that stand for an expression, and what they stand for.
var aliases = map[string]string{
	"@yearly":   "0 0 0 1 1 *",
	"@annually": "0 0 0 1 1 *",
	"@monthly":  "0 0 0 1 * *",
	"@weekly":   "0 0 0 * * 0",
	"@daily":    "0 0 0 * * *",
	"@midnight": "0 0 0 * * *",
	"@hourly":   "0 0 * * * *",
}

// Parse compiles an expression. The key picks the values of H; the same key
// gives the same values for ever. The error is an *Error.
func Parse(text, key string) (*Expr, error) {
	fields, typed, problem := split(text)
	if problem != nil {
		return nil, problem
	}
	p := parser{key: key, expr: &Expr{}}
	var problems []Problem
	for i, field := range fields {
		if err := p.field(i, field, typed[i]); err != nil {
			problems = append(problems, Problem{grammar[i].name, grammar[i].name + ": " + err.Error()})
		}
	}
	if problems != nil {
		return nil, &Error{problems}
	}
	p.expr.everyYear = p.expr.everyYear || len(fields) < len(grammar)
	// From 1970 to LastYear lie more than 400 years, which hold every
	// arrangement of months that there is.
	if _, ok := p.expr.Next(0); !ok {
		return nil, never(typed)
	}
	return p.expr, nil
}

// never names the fields that no date satisfies together.
func never(fields []string) *Error {
	name, day := dateField, fields[3]
	if day == "*" || day == "?" {
		name, day = weekdayField, fields[5]
	}
	text := fmt.Sprintf("%s: %s in month %s", name, day, fields[4])
	if len(fields) == len(grammar) {
		text += " of year " + fields[6]
	}
	return &Error{[]Problem{{name, text + " never comes, so the expression would never fire"}}}
}

// split takes an expression apart into six or seven fields, in capitals and as
// they were typed.
func split(text string) (fields, typed []string, problem *Error) {
	if len(text) > MaxLength {
		return nil, nil, whole("has %d bytes; at most %d are allowed", len(text), MaxLength)
	}
	for i := range len(text) {
		if c := text[i]; c != '\t' && (c < ' ' || c > '~') {
			return nil, nil, whole("has a character that is not printable ASCII (%#02x, byte %d)", c, i+1)
		}
	}
	text = strings.Trim(text, " \t")
	capitals := strings.ToUpper(text)
	switch {
	case text == "":
		return nil, nil, whole("is empty; write six fields: second minute hour day-of-month month day-of-week")
	case strings.HasPrefix(capitals, "TZ=") || strings.HasPrefix(capitals, "CRON_TZ="):
		return nil, nil, whole("must not hold a zone; give it as timezone")
	case text[0] == '@':
		fields, problem = alias(text)
		return fields, fields, problem
	}
	fields, typed = strings.Fields(capitals), strings.Fields(text)
	switch {
	case len(fields) < 5 || len(fields) > 7:
		return nil, nil, whole("has %s; write six (second minute hour day-of-month month day-of-week), five without second, or seven with year", count(len(fields)))
	case len(fields) == 6 && yearLike(fields[5]):
		return nil, nil, &Error{[]Problem{{weekdayField, fmt.Sprintf("%s: %s looks like a year, but the sixth field is the day of the week; a year stands seventh, and the second first", weekdayField, shorten(typed[5]))}}}
	case len(fields) == 5:
		fields, typed = append([]string{"0"}, fields...), append([]string{"0"}, typed...)
	}
	return fields, typed, nil
}

func count(fields int) string {
	if fields == 1 {
		return "1 field"
	}
	return fmt.Sprintf("%d fields", fields)
}

func alias(text string) ([]string, *Error) {
	name := strings.ToLower(text)
	if known, ok := aliases[name]; ok {
		return strings.Fields(known), nil
	}
	hint := "use @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually, and nothing after it"
	switch {
	case strings.HasPrefix(name, "@every"):
		hint = "give interval instead"
	case name == "@reboot":
		hint = "a service has no boot to run at"
	}
	return nil, whole("%s is not known; %s", shorten(text), hint)
}

// yearLike says whether a field contains three digits in a row, which no
// weekday does.
func yearLike(field string) bool {
	run := 0
	for i := range len(field) {
		if run++; field[i] < '0' || field[i] > '9' {
			run = 0
		}
		if run == 3 {
			return true
		}
	}
	return false
}

// shorten keeps a message readable whatever the tenant wrote.
func shorten(text string) string {
	if len(text) > 24 {
		return text[:24] + "…"
	}
	return text
}

// parser fills an Expr field by field.
type parser struct {
	key  string
	expr *Expr
}

// field reads one field of the grammar and stores it.
func (p *parser) field(index int, text, typed string) error {
	g := &grammar[index]
	f := fieldParser{grammar: g, key: p.key, text: text, typed: typed}
	if text == "?" {
		if !g.isDay() {
			return fmt.Errorf("? stands for no particular day and only in a day field; write *")
		}
		text = "*"
	}
	for item := range strings.SplitSeq(text, ",") {
		if err := f.item(item); err != nil {
			return err
		}
	}
	p.store(index, &f)
	return nil
}

// store keeps what a field says. A field that covers its whole range is
// unrestricted, however it is written, and then its special days add nothing.
func (p *parser) store(index int, f *fieldParser) {
	every := f.values.len() == f.grammar.high-f.grammar.low+1
	e := p.expr
	switch index {
	case 0:
		e.second = f.values[0]
	case 1:
		e.minute = f.values[0]
	case 2:
		e.hour = f.values[0]
	case 3:
		e.day.anyDay, e.day.date, e.day.last, e.day.near = every, uint32(f.values[0]), f.last, f.near
	case 4:
		e.month = f.values[0]
	case 5:
		e.day.anyWeekday, e.day.weekday = every, uint32(f.values[0])
		e.day.lastWeekday, e.day.nth = f.lastWeekday, f.nth
	case 6:
		e.year, e.everyYear = f.values, every
	}
	if f.uneven != "" {
		e.uneven = append(e.uneven, f.grammar.name+" "+f.uneven)
	}
}
