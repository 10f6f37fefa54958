package monitor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/monitor"
)

// story is a monitor, and what became of it at times after midnight.
type story struct {
	t       *testing.T
	m       *monitor.Monitor
	machine *monitor.Machine
	gaps    []monitor.Gap
	events  []string
	runs    map[int64]monitor.Record
}

func midnight() time.Time { return time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC) }

// at reads a time such as 26:30:00, which is of the next day.
func at(text string) time.Time {
	var h, m, s int
	if _, err := fmt.Sscanf(text, "%d:%d:%d", &h, &m, &s); err != nil {
		panic(text)
	}
	return midnight().Add(time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second)
}

func hourly() monitor.Spec {
	return monitor.Spec{Name: "backup", Cron: "0 * * * *", StartGrace: 5 * time.Minute, CompletionGrace: 10 * time.Minute, AlertTooOften: true, FailureThreshold: 1, RecoveryThreshold: 1}
}

func tenMinutes() monitor.Spec {
	s := hourly()
	s.Cron, s.Interval, s.StartGrace = "", 10*time.Minute, time.Minute
	return s
}

func with(s monitor.Spec, change func(*monitor.Spec)) monitor.Spec {
	change(&s)
	return s
}

func begin(t *testing.T, spec monitor.Spec) *story {
	t.Helper()
	st := &story{t: t, m: &monitor.Monitor{Spec: spec, ID: uuid.New(), State: monitor.State{Status: "new"}}, runs: map[int64]monitor.Record{}}
	var err error
	if st.machine, err = st.m.Machine(); err != nil {
		t.Fatal(err)
	}
	return st
}

// step does one line: a time and a ping ("start", "ok", "3", "log", each with an id after a
// slash), "look" for what watch does, or "lost" with a time up to which pings were lost.
func (st *story) step(line string) {
	st.t.Helper()
	fields := strings.Fields(line)
	now := at(fields[0])
	what, run, _ := strings.Cut(fields[1], "/")
	switch what {
	case "look":
		st.machine.Due(now, st.gaps)
	case "lost":
		st.gaps = append(st.gaps, monitor.Gap{From: now, To: at(fields[2])})
	case "pause", "resume":
		st.m.Paused = what == "pause"
		st.machine.Restart(now)
	default:
		signal, exit, ok := monitor.ReadSignal(strings.TrimPrefix(what, "ok"))
		if !ok {
			st.t.Fatalf("%s is no signal", what)
		}
		p := monitor.Ping{At: now, Signal: signal, Exit: exit, RunID: run, Log: "x"}
		var open *monitor.Open
		if st.m.Elsewhere(p) {
			for _, r := range st.runs {
				if r.RunID == run && r.EndedAt.IsZero() {
					open = &monitor.Open{N: r.N, StartedAt: r.StartedAt}
				}
			}
		}
		st.machine.Ping(p, open)
	}
	out := st.machine.Take()
	for _, e := range out.Events {
		st.events = append(st.events, strings.TrimPrefix(e.Type, "monitor.")+":"+e.Reason)
	}
	for _, r := range out.Records {
		st.runs[r.N] = r
	}
}

func (st *story) outcomes() string {
	var all []string
	for n := int64(1); n <= int64(len(st.runs)); n++ {
		all = append(all, strings.TrimSuffix(st.runs[n].Outcome+":"+st.runs[n].Reason, ":"))
	}
	return strings.Join(all, " ")
}

func TestStories(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		spec     monitor.Spec
		steps    string
		events   string
		runs     string
		deadline string // empty: none
	}{
		{"as it should be", hourly(), "1:00:02 start; 1:03:00 ok; 2:00:03 start; 2:01:00 0", "", "completed completed", "3:05:00"},
		{"before its first ping", hourly(), "9:00:00 look", "", "", ""},
		{"only successes", hourly(), "1:00:02 ok; 2:00:04 ok", "", "completed completed", "3:05:00"},
		{"not started", hourly(), "1:00:02 ok; 2:05:01 look; 2:05:02 look; 3:00:01 ok", "down:not_started recovered:not_started", "completed missed:not_started completed", "4:05:00"},
		{"within its grace", hourly(), "1:00:02 ok; 2:04:59 look; 2:04:59 ok; 3:00:00 ok", "", "completed completed completed", "4:05:00"},
		{"late after the alert, and then in time", hourly(), "1:00:02 ok; 2:05:01 look; 2:58:00 ok; 3:00:00 ok", "down:not_started recovered:not_started", "completed missed:not_started completed completed", "4:05:00"},
		{"a little early", hourly(), "1:00:02 ok; 1:58:00 ok; 3:00:00 ok", "", "completed completed completed", "4:05:00"},
		{"too often", hourly(), "1:00:02 ok; 1:30:00 ok", "down:too_often", "completed completed:too_often", "2:05:00"},
		{"too often, not asked for", with(hourly(), func(s *monitor.Spec) { s.AlertTooOften = false }), "1:00:02 ok; 1:30:00 ok", "", "completed completed", "2:05:00"},
		{"too slow, and ends", hourly(), "1:00:00 start; 1:09:59 look; 1:10:01 look; 1:30:00 ok", "down:too_slow recovered:too_slow", "completed:too_slow", "2:05:00"},
		{"too slow, and never ends", hourly(), "1:00:00 start; 1:10:01 look; 2:05:01 look; 3:00:00 start", "down:too_slow", "abandoned:too_slow missed:not_started running", "3:10:00"},
		{"longer where that is usual", with(hourly(), func(s *monitor.Spec) { s.MaxRuntime = time.Hour }), "1:00:00 start; 2:09:00 look", "", "running", "2:10:00"},
		{"a log does not extend", hourly(), "1:00:00 start; 1:09:00 log; 1:10:01 look", "down:too_slow", "running:too_slow", "2:05:00"},
		{"a log extends", with(hourly(), func(s *monitor.Spec) { s.ExtendOnLog = true }), "1:00:00 start; 1:09:00 log; 1:10:01 look; 1:18:00 log; 1:19:30 look", "", "running", "1:28:00"},
		{"too fast", with(hourly(), func(s *monitor.Spec) { s.MinRuntime = time.Minute }), "1:00:00 start; 1:00:59 ok", "down:too_fast", "failed:too_fast", "2:05:00"},
		{"fails", hourly(), "1:00:00 start; 1:01:00 3; 2:00:00 fail; 3:00:00 ok", "down:failed recovered:failed", "failed:failed failed:failed completed", "4:05:00"},
		{"thresholds", with(hourly(), func(s *monitor.Spec) { s.FailureThreshold, s.RecoveryThreshold = 2, 2 }), "1:00:00 fail; 2:00:00 ok; 3:00:00 fail; 4:00:00 fail; 5:00:00 ok; 6:00:00 fail; 7:00:00 ok; 8:00:00 ok", "down:failed recovered:failed", "failed:failed completed failed:failed failed:failed completed failed:failed completed completed", "9:05:00"},
		{"a start twice", hourly(), "1:00:00 start; 1:00:09 start; 1:05:00 ok", "", "completed", "2:05:00"},
		{"two starts", hourly(), "1:00:00 start; 1:05:00 start; 1:06:00 ok", "down:too_often", "abandoned completed:too_often", "2:05:00"},
		{"two starts, which may be", with(hourly(), func(s *monitor.Spec) { s.AlertTooOften = false }), "1:00:00 start; 1:05:00 start; 1:06:00 ok", "", "abandoned completed", "2:05:00"},
		{"two starts of a run", hourly(), "1:00:00 start/a; 1:00:01 start/a; 1:05:00 ok/a; 1:05:01 ok/a", "", "completed", "2:05:00"},
		{"its start after its end", hourly(), "1:00:00 ok/a; 1:00:01 start/a", "", "completed", "2:05:00"},
		{"overlapping runs", with(hourly(), func(s *monitor.Spec) { s.AlertTooOften = false }), "1:00:00 start/a; 1:02:00 start/b; 1:05:00 ok/b; 1:06:00 1/a", "down:failed", "failed:failed completed", "2:05:00"},
		{"the end of another run ends none", hourly(), "1:00:00 start/a; 1:01:00 ok/z; 1:10:01 look", "down:too_slow", "running:too_slow completed", "2:05:00"},
		{"a success twice", hourly(), "1:00:00 ok; 1:00:03 ok", "", "completed", "2:05:00"},
		{"a loop", hourly(), "1:00:00 ok; 1:00:05 ok; 1:00:11 ok", "down:too_often", "completed completed:too_often", "2:05:00"},
		{"a log alone", hourly(), "1:00:00 log", "", "logged", ""},
		{"a clock that was set back", hourly(), "1:00:00 start; 0:30:00 ok", "", "completed", "2:05:00"},
		{"a pause", hourly(), "1:00:00 start; 1:01:00 pause; 1:02:00 fail; 3:00:00 look; 3:30:00 resume; 4:00:00 ok", "", "running failed:failed completed", "5:05:00"},
		{"longer than its period", hourly(), "1:00:00 start; 1:05:00 log; 1:08:00 ok; 2:00:00 ok", "", "completed completed", "3:05:00"},

		{"a start was lost", hourly(), "1:00:00 ok; 1:59:00 lost 2:09:00; 2:09:01 look; 3:00:00 ok; 4:05:01 look", "down:not_started", "completed unknown:outage completed missed:not_started", "5:05:00"},
		{"an end was lost", hourly(), "1:00:00 start; 1:05:00 lost 1:15:00; 1:15:01 look; 2:00:00 start; 2:10:01 look", "down:too_slow", "unknown:outage running:too_slow", "3:05:00"},
		{"the alert of a gap before is told", hourly(), "1:00:00 ok; 1:10:00 lost 1:20:00; 2:05:01 look", "down:not_started", "completed missed:not_started", "3:05:00"},
		{"the end of a run whose start was lost", hourly(), "1:00:00 ok; 1:59:00 lost 2:09:00; 2:09:01 look; 2:20:00 ok", "", "completed unknown:outage completed", "3:05:00"},
		{"a whole night was lost", hourly(), "1:00:00 ok; 1:30:00 lost 9:30:00; 9:30:01 look", "", "completed unknown:outage", "10:05:00"},

		{"an interval", tenMinutes(), "1:00:00 start; 1:02:00 ok; 1:10:00 start; 1:12:00 ok; 1:24:00 start", "", "completed completed running", "1:34:00"},
		{"an interval, counted from the end", tenMinutes(), "1:00:00 start; 1:02:00 ok; 1:12:00 start; 1:14:00 ok; 1:24:59 look", "", "completed completed", "1:25:00"},
		{"an interval that ends", tenMinutes(), "1:00:00 ok; 1:11:01 look; 1:22:02 look", "down:not_started", "completed missed:not_started missed:not_started", "1:31:00"},
		{"an interval too often", tenMinutes(), "1:00:00 ok; 1:08:59 ok", "down:too_often", "completed completed:too_often", "1:19:59"},
		{"a ping of an interval was lost", tenMinutes(), "1:00:00 ok; 1:06:00 lost 1:16:00; 1:16:01 look; 1:20:00 ok", "", "completed unknown:outage completed", "1:31:00"},
		{"an interval that died in an outage", tenMinutes(), "1:00:00 ok; 1:06:00 lost 1:16:00; 1:16:01 look; 1:27:01 look", "down:not_started", "completed unknown:outage missed:not_started", "1:37:00"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			st := begin(t, test.spec)
			for line := range strings.SplitSeq(test.steps, ";") {
				st.step(line)
			}
			want := time.Time{}
			if test.deadline != "" {
				want = at(test.deadline)
			}
			if events := strings.Join(st.events, " "); events != test.events || st.outcomes() != test.runs || !st.machine.Deadline().Equal(want) {
				t.Errorf("told %q, want %q\nruns %q, want %q\ndeadline %v, want %v", events, test.events, st.outcomes(), test.runs, st.machine.Deadline(), want)
			}
		})
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	if got := monitor.Log([]byte("a\x00b\xffc")); got != "a\uFFFDb\uFFFDc" {
		t.Errorf("%q", got)
	}
	if got := monitor.Log([]byte(strings.Repeat("é", 20_000) + "end")); len([]rune(got)) != 10_000 || !strings.HasSuffix(got, "éend") {
		t.Errorf("%d characters", len([]rune(got)))
	}
}
