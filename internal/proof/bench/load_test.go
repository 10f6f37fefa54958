package bench

import (
	"net/http"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// The lag at the target is that of the calls due in the measured part of a load, and every
// execution of the load has to be one call.
func TestLagAtTheTarget(t *testing.T) {
	t.Parallel()
	from := clock.Now().Truncate(time.Second)
	l := load{jobs: []uuid.UUID{uuid.New()}, from: from, to: from.Add(4 * time.Second)}
	s := openTest(t)
	for i := range l.runsPerJob() {
		insert(t, s, kept{uuid.New(), l.jobs[0], from.Add(time.Duration(i) * time.Second), "completed", 1})
	}
	for _, test := range []struct {
		name string
		late []time.Duration // of the call of each second
		want string
	}{
		{"the second and third second count", []time.Duration{time.Minute, 7 * time.Millisecond, 9 * time.Millisecond, time.Hour}, "7 / 9 / 9"},
		{"a call is missing", []time.Duration{1, 1, 1}, "the target saw 3 calls of 4 executions"},
		{"a call is doubled", []time.Duration{1, 1, 1, 1, -1}, "the target saw 5 calls of 4 executions"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			check := &stack{Config: Config{HTTP: true}, store: s, target: &target{}}
			for i, late := range test.late {
				at := from.Add(time.Duration(i%l.runsPerJob()) * time.Second)
				check.target.note(at.Add(late), at.Format(time.RFC3339Nano))
			}
			check.target.note(from, "not a time")
			check.target.note(from, l.to.Format(time.RFC3339Nano)) // of another load
			var r row
			got := ""
			if err := check.lags(t.Context(), &r, l, from.Add(time.Second), from.Add(3*time.Second)); err != nil {
				got = err.Error()
			} else {
				got = r.atTarget.String()
			}
			if got != test.want || !strings.HasPrefix(r.lag.String(), "20 / 20 / 20") {
				t.Errorf("got %q and %q, want %q", got, r.lag, test.want)
			}
		})
	}
}

// The target reads the scheduled time from the header that the product sends.
func TestTargetNotesCalls(t *testing.T) {
	t.Parallel()
	to, err := newTarget(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = to.close() }()
	at := time.Date(2020, 3, 4, 1, 0, 0, 123456000, time.UTC)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Scheduled-At", "2020-03-04T01:00:00.123456Z")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if late := to.take(at.Add(time.Microsecond), clock.Now()); len(late) > 0 {
		t.Errorf("a call that was due before: %v", late)
	}
	late := to.take(at, at.Add(time.Microsecond))
	if len(late) != 1 || late[0] <= 0 {
		t.Errorf("a call that was due at %v: %v", at, late)
	}
	if diff := gocmp.Diff([]time.Duration(nil), to.take(at, at.Add(time.Microsecond))); diff != "" {
		t.Errorf("calls that were taken are still there\n%s", diff)
	}
}
