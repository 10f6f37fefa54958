package importer_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	robfig "github.com/robfig/cron/v3"

	"github.com/scheduler-service/scheduler/internal/importer"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

const (
	expressions = 250 // of each format
	times       = 100 // of each expression that are compared
	years       = 5   // within which
)

var beginning = time.Date(2026, 1, 31, 23, 59, 58, 0, time.UTC)

// ours are the next times of an expression of ours.
func ours(t *testing.T, e importer.Entry) (all []time.Time) {
	t.Helper()
	s, err := schedule.Compile(schedule.Definition{Cron: e.Cron, Zone: e.Zone})
	if err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
	end := beginning.AddDate(years, 0, 0)
	for at := beginning; len(all) < times; {
		next, ok := s.Next(at)
		if !ok || next.After(end) {
			return all
		}
		all, at = append(all, next.UTC()), next
	}
	return all
}

// agree imports one expression and compares its times with those of an independent
// reading. It says whether the importer took it.
func agree(t *testing.T, format, file, expression string, independent func() []time.Time) bool {
	t.Helper()
	entries, notes, err := importer.Read(format, file, "UTC")
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	if len(entries) == 0 {
		if len(notes) == 0 || !notes[0].Left {
			t.Errorf("%s: neither imported nor refused", expression)
		}
		return false
	}
	got, want := ours(t, entries[0]), independent()
	if !slices.EqualFunc(got, want, time.Time.Equal) {
		for i := range min(len(got), len(want)) {
			if !got[i].Equal(want[i]) {
				t.Errorf("%s became %q: time %d is %s, want %s", expression, entries[0].Cron, i, got[i], want[i])
				return true
			}
		}
		t.Errorf("%s became %q: %d times, want %d", expression, entries[0].Cron, len(got), len(want))
	}
	return true
}

// writer writes random expressions.
type writer struct{ *rand.Rand }

func (w writer) of(some ...string) string { return some[w.IntN(len(some))] }

// field is a random field of values from first to last.
func (w writer) field(first, last int) string {
	a := first + w.IntN(last-first+1)
	b := a + w.IntN(last-a+1)
	switch w.IntN(8) {
	case 0, 1, 2:
		return "*"
	case 3:
		return fmt.Sprint(a)
	case 4:
		return fmt.Sprintf("%d-%d", a, b)
	case 5:
		return fmt.Sprintf("%d-%d/%d", a, b, 1+w.IntN(4))
	case 6:
		return fmt.Sprintf("*/%d", 1+w.IntN(last))
	default:
		return fmt.Sprintf("%d,%d-%d", first, a, b)
	}
}

// admits is a naive reading of one field: it expands each item by counting. It knows
// numbers only.
func admits(text string, value, first, last int) bool {
	for item := range strings.SplitSeq(text, ",") {
		body, step, stepped := strings.Cut(item, "/")
		by := 1
		if stepped {
			by, _ = strconv.Atoi(step)
		}
		from, to := first, last
		if a, b, ranged := strings.Cut(body, "-"); ranged {
			from, _ = strconv.Atoi(a)
			to, _ = strconv.Atoi(b)
		} else if body != "*" && body != "?" {
			from, _ = strconv.Atoi(body)
			if to = last; !stepped {
				to = from
			}
		}
		for v := from; v <= to; v += by {
			if v == value {
				return true
			}
		}
	}
	return false
}

// walk collects times second field by second field on the days that day admits.
func walk(seconds, minutes, hours string, day func(time.Time) bool) (all []time.Time) {
	end := beginning.AddDate(years, 0, 0)
	for d := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC); d.Before(end); d = d.AddDate(0, 0, 1) {
		if !day(d) {
			continue
		}
		for second := range 24 * 60 * 60 {
			if second%60 != 0 && seconds == "0" {
				continue
			}
			h, m, s := second/3600, second/60%60, second%60
			if !admits(seconds, s, 0, 59) || !admits(minutes, m, 0, 59) || !admits(hours, h, 0, 23) {
				continue
			}
			if at := d.Add(time.Duration(second) * time.Second); at.After(beginning) && !at.After(end) {
				if all = append(all, at); len(all) == times {
					return all
				}
			}
		}
	}
	return all
}

// taken fails where too few expressions were imported to say something.
func taken(t *testing.T, n int) {
	t.Helper()
	if n < 200 {
		t.Errorf("only %d expressions were imported", n)
	}
	t.Logf("%d expressions were imported and compared", n)
}

func TestCrontabsMeanTheSame(t *testing.T) {
	t.Parallel()
	w := writer{rand.New(rand.NewPCG(1, 1))}
	n := 0
	for range 2 * expressions {
		minute, hour, dom, month, dow := w.field(0, 59), w.field(0, 23), w.field(1, 31), w.field(1, 12), w.field(0, 7)
		if w.IntN(2) == 0 {
			dom = "*"
		}
		expression := strings.Join([]string{minute, hour, dom, month, dow}, " ")
		// Vixie's rule: either day where neither field begins with a star, else both.
		day := func(d time.Time) bool {
			onDate := admits(dom, d.Day(), 1, 31)
			onWeekday := admits(dow, int(d.Weekday()), 0, 7) || d.Weekday() == time.Sunday && admits(dow, 7, 0, 7)
			if !admits(month, int(d.Month()), 1, 12) {
				return false
			}
			if dom[0] == '*' || dow[0] == '*' {
				return onDate && onWeekday
			}
			return onDate || onWeekday
		}
		if agree(t, "crontab", expression+" /bin/true\n", expression, func() []time.Time { return walk("0", minute, hour, day) }) {
			n++
		}
	}
	taken(t, n)
}

func TestCronJobsMeanTheSame(t *testing.T) {
	t.Parallel()
	w := writer{rand.New(rand.NewPCG(2, 2))}
	n := 0
	for range 2 * expressions {
		dom := w.field(1, 31)
		if w.IntN(2) == 0 {
			dom = w.of("*", "?")
		}
		expression := strings.Join([]string{w.of(w.field(0, 59), "7/13"), w.field(0, 23), dom, w.of(w.field(1, 12), "jan-mar"), w.of(w.field(0, 6), "?", "MON-FRI")}, " ")
		read, err := robfig.ParseStandard(expression)
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		independent := func() (all []time.Time) {
			for at := beginning; len(all) < times; all = append(all, at) {
				if at = read.Next(at); at.IsZero() || at.After(beginning.AddDate(years, 0, 0)) {
					return all
				}
			}
			return all
		}
		file := fmt.Sprintf("kind: CronJob\nmetadata: { name: x }\nspec: { schedule: %q }\n", expression)
		if agree(t, "kubernetes", file, expression, independent) {
			n++
		}
	}
	taken(t, n)
}

// questioned is a naive reading of Amazon's and Quartz's days, where Sunday is 1.
func questioned(dom, month, dow string) func(time.Time) bool {
	return func(d time.Time) bool {
		if !admits(month, int(d.Month()), 1, 12) {
			return false
		}
		last := d.AddDate(0, 1, -d.Day()).Day()
		weekday := int(d.Weekday()) + 1
		switch {
		case dom == "L":
			return d.Day() == last
		case strings.HasSuffix(dom, "W"):
			target, _ := strconv.Atoi(strings.TrimSuffix(dom, "W"))
			if target > last {
				return false
			}
			at := time.Date(d.Year(), d.Month(), target, 0, 0, 0, 0, time.UTC)
			switch {
			case at.Weekday() == time.Saturday && target > 1:
				target--
			case at.Weekday() == time.Saturday:
				target += 2
			case at.Weekday() == time.Sunday && target < last:
				target++
			case at.Weekday() == time.Sunday:
				target -= 2
			}
			return d.Day() == target
		case dow == "?":
			return admits(dom, d.Day(), 1, 31)
		case strings.HasSuffix(dow, "L"):
			want, _ := strconv.Atoi(strings.TrimSuffix(dow, "L"))
			return weekday == want && d.Day() > last-7
		case strings.Contains(dow, "#"):
			day, nth, _ := strings.Cut(dow, "#")
			want, _ := strconv.Atoi(day)
			n, _ := strconv.Atoi(nth)
			return weekday == want && (d.Day()-1)/7+1 == n
		default:
			return admits(dow, weekday, 1, 7)
		}
	}
}

func (w writer) questioned() (dom, month, dow string) {
	dom, month, dow = "?", w.field(1, 12), "?"
	if w.IntN(2) == 0 {
		dom = w.of(w.field(1, 31), "L", fmt.Sprintf("%dW", 1+w.IntN(31)))
	} else {
		dow = w.of(w.field(1, 7), fmt.Sprintf("%dL", 1+w.IntN(7)), fmt.Sprintf("%d#%d", 1+w.IntN(7), 1+w.IntN(5)))
	}
	return dom, month, dow
}

func TestEventBridgeMeansTheSame(t *testing.T) {
	t.Parallel()
	w := writer{rand.New(rand.NewPCG(3, 3))}
	n := 0
	for range expressions {
		minute, hour := w.of(w.field(0, 59), "0/5"), w.field(0, 23)
		dom, month, dow := w.questioned()
		expression := fmt.Sprintf("cron(%s %s %s %s %s *)", minute, hour, dom, month, dow)
		file := fmt.Sprintf(`{"Name":"x","ScheduleExpression":%q}`, expression)
		if agree(t, "eventbridge", file, expression, func() []time.Time { return walk("0", minute, hour, questioned(dom, month, dow)) }) {
			n++
		}
	}
	taken(t, n)
}

func TestQuartzMeansTheSame(t *testing.T) {
	t.Parallel()
	w := writer{rand.New(rand.NewPCG(4, 4))}
	n := 0
	for range expressions {
		second, minute, hour := w.of("0", "0", w.field(0, 59)), w.of(w.field(0, 59), "3/20"), w.field(0, 23)
		dom, month, dow := w.questioned()
		expression := strings.Join([]string{second, minute, hour, dom, month, dow}, " ")
		file := fmt.Sprintf("<job-scheduling-data><schedule><trigger><cron><name>x</name><cron-expression>%s</cron-expression></cron></trigger></schedule></job-scheduling-data>", expression)
		if agree(t, "quartz", file, expression, func() []time.Time { return walk(second, minute, hour, questioned(dom, month, dow)) }) {
			n++
		}
	}
	taken(t, n)
}

// systemd reads its own expressions.
func TestTimersMeanTheSame(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not on this machine, and nothing else reads its expressions")
	}
	w := writer{rand.New(rand.NewPCG(5, 5))}
	dots := func(first, last int) string {
		text := w.field(first, last)
		if step, ok := strings.CutPrefix(text, "*/"); ok {
			// systemd begins to count at a value. Versions before 254 skip the first value of
			// an open repetition on some days, so this one has an end.
			text = fmt.Sprintf("%d-%d/%s", first, last, step)
		}
		for one := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '/' }) {
			if a, b, ranged := strings.Cut(one, "-"); ranged && a == b { // it wants two ends
				text = strings.Replace(text, one, a, 1)
			}
		}
		return strings.ReplaceAll(text, "-", "..")
	}
	n := 0
	for range expressions + 50 {
		weekday, date := w.of("", "Mon ", "Mon..Fri ", "Sat,Sun "), "*-*-"+dots(1, 28)
		if weekday != "" {
			date = w.of("*-*-*", "*-"+dots(1, 12)+"-*")
			if weekday == "Mon " && w.IntN(2) == 0 {
				date = w.of("*-*-1..7", "*-*-8..14", "*-*-22..28")
			}
		}
		expression := fmt.Sprintf("%s%s %s:%s:%s UTC", weekday, date, dots(0, 23), dots(0, 59), w.of("00", "00", dots(0, 59)))
		out, err := exec.Command(program, "calendar", "--iterations="+strconv.Itoa(times), "--base-time="+beginning.Format("2006-01-02 15:04:05")+" UTC", expression).Output()
		if err != nil {
			continue // a step that leaves its range, which systemd refuses
		}
		independent := func() (all []time.Time) {
			for line := range strings.Lines(string(out)) {
				_, text, ok := strings.Cut(strings.TrimSpace(line), ": ")
				if !ok || !strings.HasPrefix(line, "       Iter. #") && !strings.HasPrefix(strings.TrimSpace(line), "Next elapse") && !strings.HasPrefix(strings.TrimSpace(line), "Iter. #") {
					continue
				}
				at, err := time.Parse("Mon 2006-01-02 15:04:05 MST", text)
				if err != nil {
					t.Fatalf("%s: %v", expression, err)
				}
				if at.After(beginning.AddDate(years, 0, 0)) {
					break
				}
				all = append(all, at)
			}
			return all
		}
		if agree(t, "systemd", "[Timer]\nOnCalendar="+expression+"\n", expression, independent) {
			n++
		}
	}
	taken(t, n)
}
