package watch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/monitor"
)

// While one process of several gives no sign, nobody is told who became late since its last one;
// who was late before is. Once it is taken for gone, that time makes nobody late.
func TestAHungProcessMakesNobodyLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before, since := b.make("before", 10*time.Minute), b.make("since", 10*time.Minute)
	b.ping(before, monitor.Success)
	b.age(20 * time.Second)
	b.ping(since, monitor.Success)
	b.age(11*time.Minute + 5*time.Second)                                                                                                              // 25 s after the deadline of one, 5 s after that of the other
	b.exec("INSERT INTO monitor_takers (id, name, touched_at) SELECT gen_random_uuid(), 'host-b', max(deadline) - interval '5 seconds' FROM monitors") // between the two
	if r := b.pass(); r.Seen != 1 || !r.Holds || b.told() != "before monitor.down not_started" {
		t.Errorf("while it hangs: %+v %s", r, b.told())
	}
	b.pass()
	if log := b.log.String(); strings.Count(log, "host=host-b") != 1 {
		t.Errorf("the log is %s", log)
	}
	_, stop := b.desk()
	stop()
	if left := b.text("SELECT string_agg(name, ' ') FROM monitor_takers"); left != "host-b" {
		t.Errorf("after another process ended, those that take pings are %s", left)
	}
	if r := b.pass(); r.Seen != 0 {
		t.Errorf("another process gives signs: %+v", r)
	}
	b.exec("UPDATE monitor_takers SET touched_at = now() - interval '61 seconds'")
	b.exec("UPDATE monitors SET deadline = now() - interval '55 seconds' WHERE name = 'since'")
	b.exec("DELETE FROM monitor_gaps")
	desk, stop := b.desk()
	if _, err := desk.Ping(t.Context(), "unknown", monitor.Ping{Signal: monitor.Success, Exit: -1}); err == nil { // it gives a sign first
		t.Error("an unknown key is taken")
	}
	stop()
	b.touch()
	if r := b.pass(); r.Seen != 1 || r.Holds || b.told() != "before monitor.down not_started" {
		t.Errorf("after it was taken for gone: %+v %s", r, b.told())
	}
	if got := b.outcomes(since); got != "completed: unknown:outage" {
		t.Errorf("runs are %s", got)
	}
	if log := b.log.String(); !strings.Contains(log, "no longer held back") {
		t.Errorf("the log is %s", log)
	}
}

// While no ping of our own comes in by the public address, nobody is told late, and afterwards
// nobody is late because of that time; but not for longer than the bound.
func TestAnOutageInFrontTellsNobody(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, front string
		seen        int
		told, runs  string
	}{
		{"never came in", "NULL", 1, "m monitor.down not_started", "completed: missed:not_started"},
		{"came in just now", "now() + interval '30 seconds'", 1, "m monitor.down not_started", "completed: missed:not_started"},
		{"closed", "now() - interval '5 minutes'", 0, "", "completed:"},
		{"closed for longer than alerts are held", "now() - interval '16 minutes'", 1, "m monitor.down not_started", "completed: missed:not_started"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m := b.make("m", 10*time.Minute)
			b.ping(m, monitor.Success)
			b.age(12 * time.Minute)
			b.exec("UPDATE monitor_front SET touched_at = " + test.front)
			r := b.pass()
			if r.Seen != test.seen || r.Holds != (test.seen == 0) || b.told() != test.told || b.outcomes(m) != test.runs {
				t.Errorf("%+v, told %q, runs %s", r, b.told(), b.outcomes(m))
			}
			if !r.Holds {
				return
			}
			desk, stop := b.desk()
			if err := desk.Front(t.Context(), b.text("SELECT ping_key FROM monitor_front")); err != nil {
				t.Fatal(err)
			}
			stop()
			b.touch()
			if r := b.pass(); r.Seen != 1 || b.told() != "" || b.outcomes(m) != "completed: unknown:outage" {
				t.Errorf("open again: %+v, told %q, runs %s", r, b.told(), b.outcomes(m))
			}
		})
	}
}
