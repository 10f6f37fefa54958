package promoter

import (
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// A promoter goes at once when a job is due, unless another one took what was due the last
// time. It does so again once it is the one who takes something.
func TestPromoterYieldsToTheOneThatWasQuicker(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	due := at.Add(10 * time.Second)
	for _, test := range []struct {
		name   string
		yields bool // before
		pass   Report
		after  bool
		lasts  time.Duration
	}{
		{"it took something", false, Report{Claimed: 1, At: due, Next: due.Add(time.Second)}, false, time.Second},
		{"it took something although it yielded", true, Report{Claimed: 1, At: due, Next: due.Add(time.Second)}, false, time.Second},
		{"another one took it", false, Report{At: due, Next: due.Add(time.Second)}, true, time.Second + yieldFor},
		{"another one holds it", false, Report{At: due, Next: due}, true, 0},
		{"another one took it again", true, Report{At: due, Next: due.Add(time.Second)}, true, time.Second + yieldFor},
		{"it woke up too early", false, Report{At: due.Add(-time.Millisecond), Next: due}, false, time.Millisecond},
		{"nothing is due for long", true, Report{At: due, Next: due.Add(time.Hour)}, true, quietFor},
		{"there may be more", false, Report{Claimed: 1, At: due}, false, 0},
	} {
		q := quiet{yields: test.yields}
		q.endsWith(due, at, 0)
		q.after(clock.Start(), test.pass)
		if q.yields != test.after || q.lasts != test.lasts {
			t.Errorf("%s: it yields: %t, for %v; want %t, %v", test.name, q.yields, q.lasts, test.after, test.lasts)
		}
	}
	// A pass before which no job was known to be due says nothing of another promoter.
	var q quiet
	q.after(clock.Start(), Report{At: at, Next: due})
	if q.yields || q.lasts != 10*time.Second {
		t.Errorf("it yields: %t, for %v after its first pass", q.yields, q.lasts)
	}
}
