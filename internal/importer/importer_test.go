package importer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/importer"
)

func read(t *testing.T, format, text, zone string) (entries []importer.Entry, notes []string) {
	t.Helper()
	entries, all, err := importer.Read(format, text, zone)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		notes = append(notes, n.String())
	}
	return entries, notes
}

func TestCrontab(t *testing.T) {
	t.Parallel()
	entries, notes := read(t, "crontab", `# nightly
PATH="/usr/bin:/bin"
MAILTO=ops@example.com
CRON_TZ=Europe/Berlin
15 2 * * mon-fri  backup --to \%home
@daily rotate
@reboot warm-up
0 0 1 */2 5 never  # both
0 9 * * 1 mail % Hello
61 * * * * wrong
5/15 * * * * which
five fields only here
`, "UTC")
	env := map[string]string{"PATH": "/usr/bin:/bin"}
	want := []importer.Entry{
		{Line: 5, Name: "backup --to %home", Cron: "0 15 2 * * 1-5", Zone: "Europe/Berlin", Args: []string{"/bin/sh", "-c", "backup --to %home"}, Env: env, Retries: -1},
		{Line: 6, Name: "rotate", Cron: "0 0 0 * * *", Zone: "Europe/Berlin", Args: []string{"/bin/sh", "-c", "rotate"}, Env: env, Retries: -1},
		{Line: 8, Name: "never # both", Cron: "0 0 0 1 */2 5", Zone: "Europe/Berlin", Args: []string{"/bin/sh", "-c", "never  # both"}, Env: env, Retries: -1},
	}
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	for i, part := range []string{"line 3: MAILTO", "line 7: not imported: @reboot", "line 9: not imported: its command has a %", "line 10: not imported: minute: \"61\" is out of range 0-59", "line 11: not imported: minute: \"5/15\"", "line 12: not imported"} {
		if i >= len(notes) || !strings.HasPrefix(notes[i], part) {
			t.Errorf("note %d does not begin with %q: %q", i, part, notes)
			break
		}
	}
	if entries, notes = read(t, "system-crontab", "17 * * * * root cd / && run-parts /etc/cron.hourly\n", "UTC"); len(entries) != 1 ||
		entries[0].Args[2] != "cd / && run-parts /etc/cron.hourly" || !strings.Contains(notes[0], `"root"`) {
		t.Errorf("%+v, %q", entries, notes)
	}
	if entries, notes = read(t, "crontab", "0 0 13 * */2 both\n0 0 */2 * 5 both\n", "UTC"); len(entries) != 0 || len(notes) != 2 {
		t.Errorf("days that have to fit both fields: %+v, %q", entries, notes)
	}
}

func TestCronJob(t *testing.T) {
	t.Parallel()
	entries, notes := read(t, "kubernetes", `kind: ConfigMap
---
kind: CronJob
metadata: { name: report, namespace: shop }
spec:
  schedule: "*/5 9-17 * * MON-FRI"
  timeZone: Europe/Berlin
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 120
  suspend: true
  jobTemplate:
    spec:
      activeDeadlineSeconds: 600
      backoffLimit: 2
      template:
        spec:
          containers:
          - { image: "report:1", command: [report], args: ["--all"], env: [{ name: A, value: b }, { name: C, valueFrom: { secretKeyRef: { name: s, key: k } } }] }
          - { image: sidecar }
---
kind: CronJob
metadata: { name: every }
spec: { schedule: "@every 90s", concurrencyPolicy: Sometimes }
---
kind: CronJob
metadata: { name: zone }
spec: { schedule: "TZ=UTC 0 0 * * *" }
`, "UTC")
	want := []importer.Entry{{
		Line: 3, Name: "shop/report", Cron: "0 */5 9-17 * * 1-5", Zone: "Europe/Berlin", Overlap: "skip", Grace: 2 * time.Minute, Timeout: 10 * time.Minute,
		Retries: 2, Suspended: true, Args: []string{"report", "--all"}, Env: map[string]string{"A": "b"},
	}}
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	for _, part := range []string{"of 2 containers", "report:1 is left out", "variable C", "Sometimes", "use timeZone"} {
		if !strings.Contains(strings.Join(notes, "\n"), part) {
			t.Errorf("no note of %q: %q", part, notes)
		}
	}
}

func TestEventBridge(t *testing.T) {
	t.Parallel()
	entries, notes := read(t, "eventbridge", `{"Schedules":[
		{"Name":"rate","GroupName":"g","ScheduleExpression":"rate(5 minutes)","FlexibleTimeWindow":{"Mode":"FLEXIBLE","MaximumWindowInMinutes":3},"Target":{"Arn":"arn:aws:lambda:x","Input":"{}","RetryPolicy":{"MaximumRetryAttempts":7}}},
		{"Name":"at","ScheduleExpression":"at(2027-03-01T09:00:00)","ScheduleExpressionTimezone":"Asia/Tokyo","State":"DISABLED"},
		{"Name":"cron","ScheduleExpression":"cron(0 12 ? * 2-6 2026-2030)","StartDate":"2026-12-01T00:00:00+01:00"},
		{"Name":"both","ScheduleExpression":"cron(0 12 1 * 2 *)"},
		{"Name":"odd","ScheduleExpression":"rate(5 weeks)"},
		{"Name":"last","ScheduleExpression":"cron(0 12 LW * ? *)"}]}`, "UTC")
	if len(entries) != 3 {
		t.Fatalf("%+v, %q", entries, notes)
	}
	if e := entries[0]; e.Name != "g/rate" || e.Interval != 5*time.Minute || e.Jitter != 3*time.Minute || e.Retries != 7 || e.Input != "{}" {
		t.Errorf("%+v", e)
	}
	if e := entries[1]; !e.RunAt.Equal(time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)) || !e.Suspended {
		t.Errorf("%+v", e)
	}
	if e := entries[2]; e.Cron != "0 0 12 * * 1-5 2026-2030" || !e.Start.Equal(time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", e)
	}
	for _, part := range []string{"one of day of month and day of week has to be ?", "rate(5 weeks) cannot be read", "LW has no counterpart"} {
		if !strings.Contains(strings.Join(notes, "\n"), part) {
			t.Errorf("no note of %q: %q", part, notes)
		}
	}
}

func TestTimer(t *testing.T) {
	t.Parallel()
	entries, notes := read(t, "systemd", `[Unit]
Description=Rotate
[Timer]
OnCalendar=weekly
OnCalendar=Mon *-*-8..14 09:30 Europe/Berlin
OnCalendar=*-*~01 00:00
OnCalendar=Fri *-*-13 00:00
OnCalendar=*-*~03 00:00
OnBootSec=15min
OnUnitActiveSec=1h 30min
RandomizedDelaySec=5min
Persistent=true
`, "UTC")
	var got []string
	for _, e := range entries {
		got = append(got, strings.TrimSpace(e.Cron+" "+e.Interval.String()+" "+e.Zone+" "+e.Misfire))
		if e.Jitter != 5*time.Minute || e.Name != "Rotate" {
			t.Errorf("%+v", e)
		}
	}
	want := []string{"0 0 0 * * 1 0s UTC fire_once", "0 30 9 * * 1#2 0s Europe/Berlin fire_once", "0 0 0 L * * 0s UTC fire_once", "1h30m0s UTC"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if len(notes) != 3 || !strings.HasPrefix(notes[0], "line 7: not imported") || !strings.HasPrefix(notes[2], "line 9: not imported: OnBootSec") {
		t.Errorf("%q", notes)
	}
}

func TestWorkflowAndQuartz(t *testing.T) {
	t.Parallel()
	entries, notes := read(t, "github", "name: ci\non:\n  schedule:\n  - cron: '30 5 * * 1,3'\n  - cron: '@weird'\n", "Asia/Tokyo")
	if len(entries) != 1 || entries[0].Cron != "0 30 5 * * 1,3" || entries[0].Zone != "UTC" || len(notes) != 1 {
		t.Errorf("%+v, %q", entries, notes)
	}
	entries, notes = read(t, "quartz", `<job-scheduling-data><schedule>
		<trigger><cron><name>a</name><group>g</group><cron-expression>0 0 22-2 ? * FRI-MON</cron-expression><time-zone>America/New_York</time-zone><misfire-instruction>MISFIRE_INSTRUCTION_DO_NOTHING</misfire-instruction></cron></trigger>
		<trigger><simple><name>b</name><repeat-interval>10000</repeat-interval></simple></trigger>
		<trigger><simple><name>c</name><repeat-count>5</repeat-count><repeat-interval>10000</repeat-interval></simple></trigger>
		</schedule></job-scheduling-data>`, "UTC")
	if len(entries) != 2 || entries[0].Cron != "0 0 0-2,22,23 * * 0,1,5,6" || entries[0].Misfire != "skip" || entries[1].Interval != 10*time.Second || len(notes) != 1 {
		t.Errorf("%+v, %q", entries, notes)
	}
}

func TestFilesThatAreNone(t *testing.T) {
	t.Parallel()
	for format, text := range map[string]string{"eventbridge": "{}", "quartz": "<a/>", "github": "name: x", "nonsense": ""} {
		if _, _, err := importer.Read(format, text, ""); err == nil {
			t.Errorf("%s: %q is taken", format, text)
		}
	}
	if entries, notes := read(t, "kubernetes", "a: [\n", ""); len(entries) != 0 || len(notes) != 1 {
		t.Errorf("broken YAML: %+v, %q", entries, notes)
	}
	if entries, notes := read(t, "crontab", "CRON_TZ=Nowhere/Land\n0 0 * * * x\n", ""); len(entries) != 0 || len(notes) != 1 {
		t.Errorf("a zone that is none: %+v, %q", entries, notes)
	}
}

// The reader answers to any file.
func FuzzRead(f *testing.F) {
	for _, format := range importer.Formats() {
		f.Add(format, "0 0 1-5/2,L * ?\n@daily x\nOnCalendar=Mon..Fri *-*-1/2 0/5:00\n")
	}
	f.Fuzz(func(t *testing.T, format, text string) {
		entries, _, err := importer.Read(format, text, "UTC")
		if err != nil && len(entries) > 0 {
			t.Error("entries beside an error")
		}
	})
}
