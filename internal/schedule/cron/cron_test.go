package cron_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/schedule/cron"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"0 */15 * * * *", "0 0,15,30,45 * * * *"},
		{"*/15 * * * *", "0 0,15,30,45 * * * *"},
		{"  0\t0 2  * * *  ", "0 0 2 * * *"},
		{"* * * * * *", "* * * * * *"},
		{"0-59 0/1 */1 1-31 1-12 0-6", "* * * * * *"},
		{"0 0 0 ? * ?", "0 0 0 * * *"},
		{"0 0/30 9-17 * * *", "0 0,30 9,10,11,12,13,14,15,16,17 * * *"},
		{"0 0 0 */10 * *", "0 0 0 1,11,21,31 * *"},
		{"0 0 0 * JAN,mar-May/2 *", "0 0 0 * 1,3,5 *"},
		{"0 0 0 * * MON-FRI", "0 0 0 * * 1,2,3,4,5"},
		{"0 0 0 * * 7", "0 0 0 * * 0"},
		{"0 0 0 * * 0-7", "0 0 0 * * *"},
		{"0 0 0 * * 1-7", "0 0 0 * * *"},
		{"0 0 0 * * 5-7", "0 0 0 * * 0,5,6"},
		{"0 0 0 * * 7-2", "0 0 0 * * 0,1,2"},
		{"0 0 0 * * 7-7", "0 0 0 * * 0"},
		{"0 0 0 * * 7-7/2", "0 0 0 * * 0"},
		{"0 0 0 * * 7/3", "0 0 0 * * 0,3,6"},
		{"0 0 0 * * 5/2", "0 0 0 * * 5"},
		{"0 0 0 * * 1-7/2", "0 0 0 * * 0,1,3,5"},
		{"0 0 0 * * 5,1,5,3-4", "0 0 0 * * 1,3,4,5"},
		{"0 0 0 L,15W,3,1W * *", "0 0 0 3,L,1W,15W * *"},
		{"0 0 0 * * 7L,FRI#2,1#1,sunl", "0 0 0 * * 0L,1#1,5#2"},
		{"0 0 0 *,15W * *", "0 0 0 * * *"},
		{"0 0 0 1 1 * 2030", "0 0 0 1 1 * 2030"},
		{"0 0 0 1 1 * 2024/4", "0 0 0 1 1 * " + years(2024, 4)},
		{"0 0 0 1 1 * */50", "0 0 0 1 1 * 1970,2020,2070"},
		{"0 0 0 1 1 * *", "0 0 0 1 1 *"},
		{"0 0 0 1 1 * 1970-2099", "0 0 0 1 1 *"},
		{"@yearly", "0 0 0 1 1 *"},
		{"@Annually", "0 0 0 1 1 *"},
		{"@monthly", "0 0 0 1 * *"},
		{"@weekly", "0 0 0 * * 0"},
		{"@daily", "0 0 0 * * *"},
		{" @MIDNIGHT ", "0 0 0 * * *"},
		{"@hourly", "0 0 * * * *"},
	} {
		t.Run(test.text, func(t *testing.T) {
			t.Parallel()
			e, err := cron.Parse(test.text, "")
			if err != nil {
				t.Fatal(err)
			}
			if got := e.String(); got != test.want {
				t.Errorf("String = %q, want %q", got, test.want)
			}
		})
	}
}

func years(from, step int) string {
	var list []string
	for y := from; y <= 2099; y += step {
		list = append(list, fmt.Sprint(y))
	}
	return strings.Join(list, ",")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, field, message string }{
		{"", "expression", "is empty"},
		{" \t ", "expression", "is empty"},
		{"0 0 0 * * *\n", "expression", "not printable ASCII (0x0a, byte 12)"},
		{"0 0 0 * * é", "expression", "byte 11)"},
		{strings.Repeat("0", 257), "expression", "has 257 bytes; at most 256"},
		{"* * * *", "expression", "has 4 fields; write six"},
		{"* * * * * * * *", "expression", "has 8 fields"},
		{"TZ=UTC * * * * *", "expression", "give it as timezone"},
		{"CRON_TZ=UTC * * * * *", "expression", "give it as timezone"},
		{"@reboot", "expression", "no boot"},
		{"@EVERY 5m", "expression", "@EVERY 5m is not known; give interval instead"},
		{"@daily *", "expression", "nothing after it"},
		{"@" + strings.Repeat("x", 60), "expression", "…"},
		{"0 0 9 * * 2027", "day-of-week", "looks like a year"},
		{"0 0 0 * * 00005", "day-of-week", "looks like a year"},
		{"60 * * * * *", "second", "60 is out of range; write 0-59"},
		{"0 60 * * * *", "minute", "60 is out of range; write 0-59"},
		{"0 0 24 * * *", "hour", "24 is out of range; write 0-23"},
		{"0 0 0 32 * *", "day-of-month", "32 is out of range; write 1-31"},
		{"0 0 0 0 * *", "day-of-month", "0 is out of range; write 1-31"},
		{"0 0 0 * 13 *", "month", "13 is out of range; write 1-12"},
		{"0 0 0 * * 8", "day-of-week", "8 is out of range; write 0-7"},
		{"0 0 0 * * * 1969", "year", "1969 is out of range; write 1970-2099"},
		{"0 0 0 * * * 2100", "year", "2100 is out of range"},
		{"0 0 0 * * * 02027", "year", "too many digits"},
		{"0 007 * * * *", "minute", "007 has too many digits"},
		{"0 1,,2 * * * *", "minute", "empty item"},
		{"0 , * * * *", "minute", "empty item"},
		{"0 5- * * * *", "minute", "a number is missing"},
		{"0 -5 * * * *", "minute", "a number is missing"},
		{"0 1-2-3 * * * *", "minute", "2-3 is not a number"},
		{"0 +5 * * * *", "minute", "+5 is not a number; write 0-59"},
		{"0 5-1 * * * *", "minute", "the range 5-1 runs backwards; write it as two, such as 5-59,0-1"},
		{"0 0 0 * * FRI-MON", "day-of-week", "such as FRI-6,0-MON"},
		{"0 */0 * * * *", "minute", "the step /0 is out of range; write 1-59"},
		{"0 */60 * * * *", "minute", "the step /60 is out of range"},
		{"0 */005 * * * *", "minute", "the step /005 is out of range"},
		{"0 */ * * * *", "minute", "the step / is not a number"},
		{"0 */5/2 * * * *", "minute", "the step /5/2 is not a number"},
		{"0 */99999999999999999999 * * * *", "minute", "is out of range"},
		{"0 0 0 1 1 * */130", "year", "the step /130 is out of range; write 1-129"},
		{"0 ** * * * *", "minute", "** is not a number"},
		{"0 ? * * * *", "minute", "? stands for no particular day"},
		{"0 0 0 ?,1 * *", "day-of-month", "? stands alone"},
		{"0 0 0 ?/2 * *", "day-of-month", "? stands alone"},
		{"0 JAN * * * *", "minute", "JAN is not a number; write 0-59"},
		{"0 0 0 * MON *", "month", "MON is not a number or a name JAN to DEC"},
		{"0 0 0 * * JAN", "day-of-week", "JAN is not a number or a name SUN to SAT"},
		{"0 0 0 * JANUARY *", "month", "JANUARY is not a number"},
		{"0 0 0 W * *", "day-of-month", "W needs a date; write 15W"},
		{"0 0 0 LW * *", "day-of-month", "LW is not supported"},
		{"0 0 0 L-3 * *", "day-of-month", "L-3 is not supported"},
		{"0 0 0 0W * *", "day-of-month", "0 is out of range"},
		{"0 0 0 32W * *", "day-of-month", "32 is out of range"},
		{"0 0 0 1-5W * *", "day-of-month", "1-5 is not a number"},
		{"0 0 0 * * L", "day-of-week", "L alone is not a weekday; write 6L"},
		{"0 0 0 * * 8L", "day-of-week", "8 is out of range"},
		{"0 0 0 * * 1#6", "day-of-week", "#6 is not a week of the month; write #1 to #5"},
		{"0 0 0 * * 1#", "day-of-week", "# is not a week of the month"},
		{"0 0 0 * * 1#1#1", "day-of-week", "#1#1 is not a week"},
		{"0 0 0 * * #1", "day-of-week", "a number is missing"},
		{"0 0 0 * * 9#1", "day-of-week", "9 is out of range"},
		{"0 0 0 30 2 *", "day-of-month", "30 in month 2 never comes"},
		{"0 0 0 31 4,6,9,11 *", "day-of-month", "31 in month 4,6,9,11 never comes"},
		{"0 0 0 31W 2 ?", "day-of-month", "never comes"},
		{"0 0 0 29 2 * 2027", "day-of-month", "29 in month 2 of year 2027 never comes"},
		{"0 0 0 ? 2 1#5 2025-2027", "day-of-week", "1#5 in month 2 of year 2025-2027 never comes"},
		{"0 H(5) * * * *", "minute", "H(5) is not understood"},
		{"0 HH * * * *", "minute", "HH is not understood"},
		{"0 H(0-9 * * * *", "minute", "H(0-9 is not understood"},
		{"0 H(0-60) * * * *", "minute", "60 is out of range"},
		{"0 H(9-0) * * * *", "minute", "runs backwards"},
		{"0 H(0-9)/20 * * * *", "minute", "longer than the range 0-9"},
		{"0 0 0 1 1 * H", "year", "H is not possible in a year"},
		{"0 0 0 H/29 * *", "day-of-month", "longer than the range 1-28"},
	} {
		t.Run(test.text, func(t *testing.T) {
			t.Parallel()
			_, err := cron.Parse(test.text, "key")
			var wrong *cron.Error
			if !errors.As(err, &wrong) {
				t.Fatalf("Parse(%q) = %v", test.text, err)
			}
			got := wrong.Problems[0]
			if len(wrong.Problems) != 1 || got.Field != test.field || !strings.Contains(got.Message, test.message) {
				t.Errorf("Parse(%q) = %q, want field %s and %q", test.text, wrong.Problems, test.field, test.message)
			}
			if strings.HasPrefix(got.Message, test.field+": ") == (test.field == "expression") || len(got.Message) > 200 {
				t.Errorf("message %q does not begin with its field and no other, or is too long", got.Message)
			}
		})
	}
}

func TestAllFieldsAreBlamed(t *testing.T) {
	t.Parallel()
	_, err := cron.Parse("a b c d e f g", "")
	var wrong *cron.Error
	if !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	var fields []string
	for _, p := range wrong.Problems {
		fields = append(fields, p.Field)
	}
	if diff := cmp.Diff([]string{"second", "minute", "hour", "day-of-month", "month", "day-of-week", "year"}, fields); diff != "" {
		t.Error(diff)
	}
	if text := wrong.Error(); strings.Count(text, "; ") < 6 {
		t.Errorf("Error() = %q", text)
	}
}

// TestHashValues pins what H gives: another hash would move tenants' jobs.
func TestHashValues(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, key, want string }{
		{"H H H H H H", "", "2 12 17 1 3 4"},
		{"H H H H H H", "6f1c2e0a-0000-8000-8000-000000000001", "21 45 8 23 12 5"},
		{"0 H/15 * * * *", "6f1c2e0a-0000-8000-8000-000000000001", "0 0,15,30,45 * * * *"},
		{"0 H(30-39) H(0-7)/4 ? * H(MON-FRI)", "6f1c2e0a-0000-8000-8000-000000000001", "0 35 0,4 * * 2"},
		{"0 H(30-39) H(0-7)/4 ? * H(MON-FRI)", "6f1c2e0a-0000-8000-8000-000000000002", "0 30 1,5 * * 4"},
		{"0 h,H(0-9) 0 H/7 * *", "6f1c2e0a-0000-8000-8000-000000000002", "0 0 0 5,12,19,26 * *"},
	} {
		e, err := cron.Parse(test.text, test.key)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.String(); got != test.want {
			t.Errorf("%q with key %q = %q, want %q", test.text, test.key, got, test.want)
		}
	}
}

// TestHashSpreads holds H to its ranges and to using all of them.
func TestHashSpreads(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for i := range 20_000 {
		e, err := cron.Parse("0 H(10-19) 0 H * *", fmt.Sprintf("job-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		f := strings.Fields(e.String())
		seen["minute "+f[1]]++
		seen["date "+f[3]]++
	}
	for v := 10; v <= 19; v++ {
		if n := seen[fmt.Sprintf("minute %d", v)]; n < 1700 || n > 2300 {
			t.Errorf("minute %d was picked %d times of 20000, want about 2000", v, n)
		}
	}
	for v := 1; v <= 28; v++ {
		if n := seen[fmt.Sprintf("date %d", v)]; n < 550 || n > 900 {
			t.Errorf("date %d was picked %d times of 20000, want about 714", v, n)
		}
	}
	if len(seen) != 38 {
		t.Errorf("%d values were picked, want 38", len(seen))
	}
}

func TestFacts(t *testing.T) {
	t.Parallel()
	type facts struct {
		EveryHour, EitherDay, EverySecond bool
		Uneven                            []string
	}
	for _, test := range []struct {
		text string
		want facts
	}{
		{"0 0 * * * *", facts{EveryHour: true}},
		{"0 0 0-23/1 1 * 1", facts{EveryHour: true, EitherDay: true}},
		{"* 0 9 1-31 * 1", facts{EverySecond: true}},
		{"*/7 */5 */5 */7 */5 */2 */3", facts{EitherDay: true, Uneven: []string{"second */7", "hour */5", "month */5"}}},
		{"0 0/7 0 * * *", facts{}},
	} {
		e, err := cron.Parse(test.text, "")
		if err != nil {
			t.Fatal(err)
		}
		got := facts{e.EveryHour(), e.EitherDay(), e.EverySecond(), e.Uneven()}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.text, diff)
		}
	}
}

func TestDaysIn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text        string
		year, month int
		days        int
		named       bool
	}{
		{"0 0 0 31 * *", 2026, 2, 0, true},
		{"0 0 0 31 * *", 2026, 1, 1, true},
		{"0 0 0 29 2 *", 2028, 2, 1, true},
		{"0 0 0 29 2 *", 2026, 2, 0, true},
		{"0 0 0 29 2 *", 2026, 3, 0, false},
		{"0 0 0 * * 1-5", 2026, 8, 21, true},
		{"0 0 0 1 * 1", 2026, 8, 6, true},
		{"0 0 0 ? * 6#5", 2026, 8, 1, true},
		{"0 0 0 ? * 6#5", 2026, 9, 0, true},
		{"0 0 0 29 2 *", 2100, 2, 0, true},
		{"0 0 0 29 2 *", 2000, 2, 1, true},
	} {
		e, err := cron.Parse(test.text, "")
		if err != nil {
			t.Fatal(err)
		}
		if days, named := e.DaysIn(test.year, test.month); days != test.days || named != test.named {
			t.Errorf("%q in %d-%02d: %d, %v, want %d, %v", test.text, test.year, test.month, days, named, test.days, test.named)
		}
	}
}

func TestNextBeyondTheEdges(t *testing.T) {
	t.Parallel()
	wall := func(year int, month time.Month, day int) int64 {
		return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
	}
	for _, test := range []struct {
		text string
		from int64
		want int64
		ok   bool
	}{
		{"0 0 0 1 1 *", wall(2499, 1, 1), wall(2499, 1, 1), true},
		{"0 0 0 1 1 *", wall(2499, 1, 1) + 1, 0, false},
		{"0 0 0 1 1 * 2030", wall(2030, 1, 1) + 1, 0, false},
		{"0 0 0 1 1 * 2030", wall(1969, 12, 31), wall(2030, 1, 1), true},
		{"0 0 0 1 1 * 2030", wall(2200, 1, 1), 0, false},
		{"0 0 0 * * *", wall(1, 1, 1) + 1, wall(1, 1, 2), true},
		{"0 0 0 29 2 *", wall(-4, 2, 28), wall(-4, 2, 29), true},
		{"0 0 0 29 2 1#5", wall(2096, 3, 1), wall(2104, 2, 29), true},
	} {
		e, err := cron.Parse(test.text, "")
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := e.Next(test.from); got != test.want || ok != test.ok {
			t.Errorf("%q from %v: %v, %v", test.text, time.Unix(test.from, 0).UTC(), time.Unix(got, 0).UTC(), ok)
		}
	}
}

func TestNearestWorkday(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, from, want string }{
		{"0 0 0 15W * *", "2026-01-01", "2026-01-15"}, // a Thursday
		{"0 0 0 15W * *", "2026-08-01", "2026-08-14"}, // a Saturday
		{"0 0 0 15W * *", "2026-02-01", "2026-02-16"}, // a Sunday
		{"0 0 0 1W * *", "2026-08-01", "2026-08-03"},  // a Saturday, and July stays out of it
		{"0 0 0 31W * *", "2026-05-01", "2026-05-29"}, // a Sunday, and June stays out of it
		{"0 0 0 30W * *", "2026-05-01", "2026-05-29"}, // a Saturday
		{"0 0 0 31W * *", "2026-06-01", "2026-07-31"}, // June has none
	} {
		e, err := cron.Parse(test.text, "")
		if err != nil {
			t.Fatal(err)
		}
		from, _ := time.Parse(time.DateOnly, test.from)
		next, _ := e.Next(from.Unix())
		if got := time.Unix(next, 0).UTC().Format(time.DateOnly); got != test.want {
			t.Errorf("%q from %s = %s, want %s", test.text, test.from, got, test.want)
		}
	}
}

// TestNextMatches steps each expression from a random moment: what Next gives
// matches, and no second before it does.
func TestNextMatches(t *testing.T) {
	t.Parallel()
	texts := []string{"*/7 3,50 */6 * * *", "0 0 0 1 * *", "30 * 23 L * *", "59 59 23 31 12 *", "0 0 * * * 5L", "1 2 3 15W * *"}
	rapid.Check(t, func(t *rapid.T) {
		e, err := cron.Parse(rapid.SampledFrom(texts).Draw(t, "text"), "")
		if err != nil {
			t.Fatal(err)
		}
		from := rapid.Int64Range(-1e9, 5e9).Draw(t, "from")
		next, ok := e.Next(from)
		if !ok || next < from || !e.Match(next) {
			t.Fatalf("Next(%d) = %d, %v", from, next, ok)
		}
		if next > from {
			before := rapid.Int64Range(from, next-1).Draw(t, "before")
			if e.Match(before) {
				t.Fatalf("%d matches and Next(%d) = %d passes over it", before, from, next)
			}
		}
	})
}

// TestCount compares Count with Next one by one.
func TestCount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{
			"*/7 */9 */5 * * *", "* 59 23 L * *", "0 0 0 * * *", "59 59 23 31 * *", "0 0 12 29 2 *", "5/20 0 1-3 1,15W * 5#2", "0 30 2 ? * 1-5", "0 0 6 * * * 2026-2028/2",
			"0 */30 * 1-7 1,12 0",
		}).Draw(t, "expression")
		e, err := cron.Parse(text, "")
		if err != nil {
			t.Fatal(err)
		}
		from := rapid.Int64Range(-86_400, 1_830_000_000).Draw(t, "from")
		if rapid.Bool().Draw(t, "midnight") {
			from -= from % 86_400
		}
		to := from + rapid.SampledFrom([]int64{-1, 0, 1, 3600, 86_399, 86_400, 86_401, 31 * 86_400, 400 * 86_400}).Draw(t, "length")
		want := int64(0)
		for at, ok := e.Next(from); ok && at < to; at, ok = e.Next(at + 1) {
			want++
		}
		if got := e.Count(from, to); got != want {
			t.Fatalf("%q: Count(%d, %d) = %d, want %d", text, from, to, got, want)
		}
	})
}
