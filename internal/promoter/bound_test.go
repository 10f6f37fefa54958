package promoter

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// The bound of the next scan is a second behind the oldest job that was promoted, and no later
// than one that was left. It goes back to a job that is not waited for any more.
func TestTheBoundPassesNoJobThatIsLeft(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	late := at.Add(-time.Minute)
	p := &Promoter{locked: &locked{called: make(chan struct{}, 1)}}
	for _, test := range []struct {
		name string
		made plan
		want time.Time
	}{
		{"one was left", plan{at: at, left: leftJob{at: late}}, late},
		{"one was left, and later ones were promoted", plan{at: at, oldest: at, left: leftJob{at: late}}, late},
		{"all was promoted", plan{at: at, oldest: at.Add(-time.Hour), left: leftJob{at: at}}, at.Add(-time.Hour - time.Second)},
		{"nothing is due", plan{at: at, left: leftJob{at: at.Add(time.Hour)}}, at.Add(-time.Second)},
	} {
		if p.raiseLowerBound(test.made); !p.since.Equal(test.want) {
			t.Errorf("%s: the bound is %v, want %v", test.name, p.since, test.want)
		}
	}
	p.locked.add(part{jobs: make([]suspect, 1), due: late})
	p.fullScan, p.fullRest = clock.Start(), time.Hour
	if got := p.lowerBound(); !got.Equal(at.Add(-time.Second)) {
		t.Errorf("while the job is waited for, the bound is %v", got)
	}
	p.locked.take()
	p.locked.settle(nil)
	for range 2 {
		if got := p.lowerBound(); !got.Equal(late) {
			t.Errorf("the bound is %v after the wait, want %v", got, late)
		}
	}
}

// No more jobs are waited for than maxLocked; the bound of scans stays at the others.
func TestHowMuchIsWaitedForIsBounded(t *testing.T) {
	t.Parallel()
	l := &locked{called: make(chan struct{}, 1)}
	l.add(part{jobs: make([]suspect, maxLocked-1)})
	l.add(part{jobs: make([]suspect, 2)})
	if ids, _ := l.kept(); len(ids) != maxLocked-1 {
		t.Errorf("%d jobs are waited for", len(ids))
	}
}

// A pass has the first job waited for that it left although it is late, unless it has only
// not come to it.
func TestPassesKnowWhichJobIsLocked(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	late, left, other := at.Add(-time.Second), uuid.New(), uuid.New()
	for _, test := range []struct {
		name    string
		left    time.Time
		oldest  time.Time
		claimed []uuid.UUID
		batch   int
		awaited int
	}{
		{"it is late", late, at, []uuid.UUID{other}, 2, 1},
		{"nothing was claimed", late, time.Time{}, nil, 2, 1},
		{"it is hardly late", at.Add(-lockedFor + 1), time.Time{}, nil, 2, 0},
		{"it is due later", at.Add(time.Second), time.Time{}, nil, 2, 0},
		{"nobody asked", time.Time{}, time.Time{}, nil, 2, 0},
		{"it was claimed, and not decided", late, late, []uuid.UUID{left}, 2, 0},
		{"the batch was full", late, late, []uuid.UUID{other}, 1, 0},
		{"the batch was full of later ones", late, at, []uuid.UUID{other}, 1, 1},
	} {
		p := &Promoter{locked: &locked{called: make(chan struct{}, 1)}}
		var c claim
		for _, id := range test.claimed {
			c.jobs = append(c.jobs, dueJob{id: id})
		}
		p.awaitLocked(plan{at: at, oldest: test.oldest, left: leftJob{suspect{id: left}, test.left}}, c, due{batch: test.batch})
		if ids, _ := p.locked.kept(); len(ids) != test.awaited {
			t.Errorf("%s: %d jobs are waited for, want %d", test.name, len(ids), test.awaited)
		}
	}
}
