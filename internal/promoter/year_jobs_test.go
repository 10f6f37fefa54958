package promoter_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/job"
)

// The jobs of the simulated year.

// yearZones have clocks that change at midnight, by half an hour or not at all,
// and offsets of half and three quarters of an hour.
var yearZones = []string{
	"UTC", "America/New_York", "Europe/London", "Asia/Shanghai", "Asia/Kolkata", "Asia/Kathmandu",
	"Australia/Lord_Howe", "America/Santiago", "America/Havana", "Africa/Cairo", "Asia/Beirut", "Pacific/Apia",
}

// add draws a job until it has a time left, and creates it.
func (y *year) add(t *testing.T, i int) {
	t.Helper()
	now := clock.Now()
	for {
		a := y.draw(i, now)
		left := len(a.times(now.Add(time.Minute), now.AddDate(0, 20, 0))) > 0
		if err := job.Validate(a.spec, nil, now); err != nil && left {
			t.Fatalf("a job with times is refused: %v: %+v", err, a.spec)
		}
		if !left {
			continue
		}
		a.stored = y.create(t, func(s *job.Spec) { *s = a.spec })
		y.asks = append(y.asks, a)
		return
	}
}

// draw draws a job: some of every kind, the others at times of day.
func (y *year) draw(i int, now time.Time) *ask {
	r := y.random
	a := &ask{spec: job.Spec{
		Name: fmt.Sprint("job ", i), Type: "function", Retry: job.DefaultRetry(),
		Config: []byte(`{"modulePath":"builtin","functionName":"noop"}`),
		Policy: job.Policy{
			Timezone: yearZones[i%len(yearZones)], DSTGap: []string{"shift", "skip"}[r.IntN(2)],
			Overlap: job.OverlapAllow, DSTOverlap: []string{"first", "last", "both"}[r.IntN(3)],
			Misfire: job.Misfire{
				Policy:       []job.MisfirePolicy{job.MisfireSkip, job.FireOnce, job.FireAll}[r.IntN(3)],
				Limit:        []int{0, 1, 2, 5, 1000}[r.IntN(5)],
				GraceSeconds: []int{0, 0, 1, 600, 7200, 86400}[r.IntN(6)],
			},
		},
	}}
	if n := i % 13; n < 4 { // the others run beside each other, which are most
		a.spec.Overlap = []job.Overlap{job.OverlapSkip, job.OverlapQueue1, job.OverlapQueue, job.OverlapCancel}[n]
		a.spec.OverlapQueueLimit = 1 + r.IntN(3)
		if a.spec.Overlap != job.OverlapCancel {
			a.spec.MaxConcurrent = 1 + r.IntN(2)
		}
	}
	y.drawRule(a, i, now)
	if a.dial != nil {
		a.spec.CronExpression = a.dial.text
	}
	a.spec = a.spec.WithDefaults()
	a.stored.AnchorAt = now
	return a
}

func (y *year) drawRule(a *ask, i int, now time.Time) {
	r := y.random
	moment := func() *time.Time {
		at := now.Add(time.Duration(r.IntN(365*86400)) * time.Second).UTC().Truncate(time.Second)
		return &at
	}
	switch i % 20 {
	case 0:
		a.dial = hourly(r)
	case 1, 2: // fires all the time, but only around the outage
		from, until := y.outage.Add(-20*time.Minute), y.outage.Add(outage+20*time.Minute)
		a.spec.StartDate, a.spec.EndDate = &from, &until
		if a.dial = dense(r); r.IntN(3) == 0 {
			a.dial, a.spec.Interval = nil, job.Duration(time.Duration(7+r.IntN(90))*time.Second)
		}
		return
	case 3:
		a.spec.Interval = job.Duration(time.Duration(80*60+r.IntN(36*3600)) * time.Second)
	case 4:
		if a.spec.RunAt = moment(); r.IntN(3) == 0 {
			*a.spec.RunAt = y.outage.Add(time.Duration(r.IntN(int(outage))).Truncate(time.Second))
		}
		return
	default:
		a.dial = timesOfDay(r)
	}
	if r.IntN(5) == 0 {
		a.spec.StartDate = moment()
	}
	if r.IntN(5) == 0 {
		a.spec.EndDate = moment()
	}
	if r.IntN(5) == 0 {
		a.spec.JitterSeconds = []int{1, 60, 600, 7200, 86400}[r.IntN(5)]
	}
	if r.IntN(10) == 0 {
		a.spec.MaxExecutions = int64(1 + r.IntN(300))
	}
}

// days draws the three fields of the day, and what they mean.
func days(r *rand.Rand) (text string, on func(time.Time) bool) {
	n, k, weekday := 1+r.IntN(31), 1+r.IntN(5), time.Weekday(r.IntN(7))
	length := func(day time.Time) int { return day.AddDate(0, 1, -day.Day()).Day() }
	switch r.IntN(12) {
	case 0:
		return "? * MON-FRI", func(d time.Time) bool { return d.Weekday() != time.Saturday && d.Weekday() != time.Sunday }
	case 1:
		return fmt.Sprintf("* * %d", weekday), func(d time.Time) bool { return d.Weekday() == weekday }
	case 2:
		return fmt.Sprintf("%d * *", n), func(d time.Time) bool { return d.Day() == n }
	case 3:
		return "L * ?", func(d time.Time) bool { return d.Day() == length(d) }
	case 4:
		return fmt.Sprintf("* * %d#%d", weekday, k), func(d time.Time) bool { return d.Weekday() == weekday && (d.Day()+6)/7 == k }
	case 5:
		return fmt.Sprintf("* * %dL", weekday), func(d time.Time) bool { return d.Weekday() == weekday && d.Day()+7 > length(d) }
	case 6: // either of two restricted fields
		return fmt.Sprintf("%d * %d", n, weekday), func(d time.Time) bool { return d.Day() == n || d.Weekday() == weekday }
	case 7:
		return "*/2 MAR-OCT *", func(d time.Time) bool { return d.Day()%2 == 1 && d.Month() >= time.March && d.Month() <= time.October }
	}
	return "* * *", func(time.Time) bool { return true }
}

// field writes a list of values.
func field(values []int) string {
	var list []string
	for _, v := range values {
		list = append(list, strconv.Itoa(v))
	}
	return strings.Join(list, ",")
}

func stepped(low, high, step int) (values []int) {
	for v := low; v <= high; v += step {
		values = append(values, v)
	}
	return values
}

// timesOfDay draws an expression that names times of day, most of them at
// night, where clocks change.
func timesOfDay(r *rand.Rand) *dial {
	d := &dial{seconds: []int{0}, minutes: []int{[]int{0, 0, 15, 30, 30, 45, 59}[r.IntN(7)]}, hour: []int{r.IntN(4)}}
	hours := ""
	switch r.IntN(10) {
	case 0:
		d.hour, hours = stepped(0, 23, 6), "*/6"
	case 1:
		d.hour, hours = stepped(1, 3, 1), "1-3"
	case 2:
		d.hour = []int{0, 23}
	case 3:
		d.hour, d.seconds = []int{r.IntN(24)}, []int{r.IntN(60)}
	case 4:
		d.minutes, d.seconds = stepped(0, 59, 30), []int{r.IntN(60)}
	}
	if hours == "" {
		hours = field(d.hour)
	}
	day, on := days(r)
	d.onDay, d.text = on, fmt.Sprintf("%s %s %s %s", field(d.seconds), field(d.minutes), hours, day)
	if d.seconds[0] == 0 && r.IntN(4) == 0 {
		d.text = strings.TrimPrefix(d.text, "0 ")
	}
	return d
}

// hourly draws an expression for all hours.
func hourly(r *rand.Rand) *dial {
	d := &dial{seconds: []int{0}, minutes: []int{[]int{0, 0, 30, 5}[r.IntN(4)]}, hour: stepped(0, 23, 1), onDay: func(time.Time) bool { return true }}
	if d.text = fmt.Sprintf("0 %d * * * *", d.minutes[0]); d.minutes[0] == 0 && r.IntN(2) == 0 {
		d.text = "@hourly"
	}
	return d
}

// dense is an expression that fires all the time; window it.
func dense(r *rand.Rand) *dial {
	d := &dial{seconds: []int{0}, minutes: stepped(0, 59, 1), hour: stepped(0, 23, 1), onDay: func(time.Time) bool { return true }}
	if d.text = "* * * * *"; r.IntN(2) == 0 {
		d.text, d.seconds = "*/20 * * * * *", []int{0, 20, 40}
	}
	return d
}
