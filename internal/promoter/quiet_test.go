package promoter

import (
	"slices"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// A promoter goes at once when a job is due, unless another one took what was due the last
// time. It does so again once it is the one who takes something.
func TestPromoterFollowsTheOneThatWasQuicker(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	due := at.Add(10 * time.Second)
	for _, test := range []struct {
		name   string
		behind int // before
		pass   Report
		after  int
		lasts  time.Duration
	}{
		{"it took something", 0, Report{Claimed: 1, At: due, Next: due.Add(time.Second)}, 0, time.Second},
		{"it took something although it followed", 2, Report{Claimed: 1, At: due, Next: due.Add(time.Second)}, 0, time.Second},
		{"another one took it", 0, Report{At: due, Next: due.Add(time.Second)}, 1, time.Second + yieldFor},
		{"another one holds it", 0, Report{At: due, Next: due}, 1, yieldFor},
		{"another one took it again", 1, Report{At: due, Next: due.Add(time.Second)}, 2, time.Second + 2*yieldFor},
		{"others take all there is", mostBehind, Report{At: due, Next: due.Add(time.Second)}, mostBehind, time.Second + 2*yieldFor},
		{"it woke up too early", 0, Report{At: due.Add(-time.Millisecond), Next: due}, 0, time.Millisecond},
		{"nothing is due for long", 1, Report{At: due, Next: due.Add(time.Hour)}, 2, quietFor},
		{"there may be more", 0, Report{Claimed: 1, At: due}, 0, 0},
		{"another one had a pass beside it", 0, Report{Claimed: 1, At: due, Next: due.Add(-time.Millisecond)}, 1, yieldFor},
		{"somebody holds a job for long", 1, Report{Claimed: 1, At: due, Next: due.Add(-tooLate)}, 0, 0},
	} {
		q := quiet{behind: test.behind}
		q.endsWith(due, at, 0)
		q.after(clock.Start(), test.pass)
		if q.behind != test.after || q.lasts != test.lasts {
			t.Errorf("%s: %d behind, for %v; want %d, %v", test.name, q.behind, q.lasts, test.after, test.lasts)
		}
	}
	// A pass before which no job was known to be due says nothing of another promoter.
	var q quiet
	q.after(clock.Start(), Report{At: at, Next: due})
	if q.behind != 0 || q.lasts != 10*time.Second {
		t.Errorf("%d behind, for %v after its first pass", q.behind, q.lasts)
	}
}

// Where no job is due at all a promoter polls for a minute, whether it follows or not. The
// database says the year 9999 then.
func TestQuietLastsWhereNoJobIsDue(t *testing.T) {
	t.Parallel()
	at, never := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, behind := range []int{0, 1, mostBehind} {
		for _, asked := range []time.Duration{0, time.Millisecond, time.Hour} {
			q := quiet{behind: behind}
			q.endsWith(never, at, asked)
			if q.lasts != quietFor || !q.next.IsZero() {
				t.Errorf("%d behind, asked after %v: quiet for %v until %v, want %v and no job", behind, asked, q.lasts, q.next, quietFor)
			}
		}
	}
}

// A promoter that follows leaves what is due to the others until it is late, and looks more
// seldom while they take it. One that does not follow leaves nothing.
func TestPromoterThatFollowsTakesWhatIsLate(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		behind int
		late   time.Duration
		goOn   bool // the others have taken a job since the last look
		leaves bool
	}{
		{0, 0, true, false},
		{0, time.Second, true, false},
		{1, 0, false, true},
		{1, yieldFor - 1, false, true},
		{1, yieldFor, false, false},
		{1, yieldFor, true, true},
		{1, tooLate - 1, true, true},
		{1, tooLate, true, false},
		{mostBehind, yieldFor, false, false},
	} {
		next := at.Add(-test.late)
		q := quiet{behind: test.behind, seen: next}
		if test.goOn {
			q.seen = next.Add(-time.Microsecond)
		}
		if got := q.leaves(next, at); got != test.leaves {
			t.Errorf("%+v: leaves it: %t", test, got)
		}
		if q.behind > 0 && test.late >= yieldFor && q.leaves(next, at) {
			t.Errorf("%+v: it leaves a late job a second time", test)
		}
	}
	q := quiet{behind: 1}
	var waits []time.Duration
	for now := at; len(waits) < 4; {
		q.endsWith(now, now, 0) // a job that is due just now
		waits = append(waits, q.lasts)
		if !q.polls() {
			t.Error("it passes after a job that it left to the others")
		}
		now = now.Add(q.lasts)
		q.outdone(now)
	}
	if want := []time.Duration{yieldFor, 2 * yieldFor, 2 * yieldFor, 2 * yieldFor}; !slices.Equal(waits, want) {
		t.Errorf("it waits for %v, want %v", waits, want)
	}
	q = quiet{}
	q.endsWith(at, at.Add(-time.Second), 0)
	if q.outdone(at); q.behind != 0 {
		t.Error("it follows although no pass of it came second")
	}
}

// The scan that finds what a killed promoter held comes again soon, also after one that took
// long because the database did not answer.
func TestFullScansComeAgainSoon(t *testing.T) {
	t.Parallel()
	bound := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		since time.Time
		took  time.Duration
		want  time.Duration
	}{
		{took: time.Millisecond, want: time.Second},
		{took: time.Second, want: 5 * time.Second},
		{took: time.Minute, want: 10 * time.Second},
		{since: bound, took: time.Second, want: 0}, // it was none
	} {
		p := &Promoter{}
		p.noteScan(test.since, test.took)
		if p.fullRest != test.want {
			t.Errorf("after a scan of %v since %v: %v, want %v", test.took, test.since, p.fullRest, test.want)
		}
	}
}
