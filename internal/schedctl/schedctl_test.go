package schedctl_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/schedctl"
)

// terminal is the program with a service that answers what the test says.
type terminal struct {
	t    *testing.T
	url  string
	home string
	asks []string // what was asked, in order
}

func newTerminal(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *terminal {
	t.Helper()
	term := &terminal{t: t, home: t.TempDir()}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		term.asks = append(term.asks, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
		w.Header().Set("Content-Type", "application/json")
		answer(w, r)
	}))
	t.Cleanup(service.Close)
	term.url = service.URL
	return term
}

// run runs a command line and expects its exit code; it answers both outputs.
func (term *terminal) run(exit int, in string, args ...string) (out, problems string) {
	term.t.Helper()
	var o, p bytes.Buffer
	got := schedctl.Main(term.t.Context(), args, schedctl.Env{
		In: strings.NewReader(in), Out: &o, Err: &p, Home: term.home, Zone: time.FixedZone("CET", 3600),
		Lookup: func(name string) (string, bool) {
			value, ok := map[string]string{"SCHEDULER_URL": term.url, "SCHEDULER_TOKEN": "token"}[name]
			return value, ok && term.url != ""
		},
	})
	if got != exit {
		term.t.Errorf("schedctl %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, exit, o.String(), p.String())
	}
	return o.String(), p.String()
}

func say(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func TestListReadsPageByPage(t *testing.T) {
	t.Parallel()
	term := newTerminal(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("cursor") == "" {
			say(`{"items":[{"id":"1","name":"a","status":"active","cronExpression":"0 0 9 * * *","nextExecutionAt":"2026-11-22T09:00:00Z"}],"nextCursor":"c"}`)(w, r)
			return
		}
		say(`{"items":[{"id":"2","name":"b\u001b[31m\u202e","interval":"PT5S"}],"nextCursor":null}`)(w, r)
	})
	out, _ := term.run(0, "", "jobs", "list", "--limit", "0", "--status", "active", "--created-from", "2026-01-01T00:00:00Z")
	for _, want := range []string{"ID  NAME", "2026-11-22 10:00:00 CET", "0 0 9 * * *", "PT5S", "b\uFFFD[31m\uFFFD"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table has no %q:\n%s", want, out)
		}
	}
	want := []string{
		"GET /api/v1/scheduler/jobs?createdFrom=2026-01-01T00%3A00%3A00Z&limit=100&status=active",
		"GET /api/v1/scheduler/jobs?createdFrom=2026-01-01T00%3A00%3A00Z&cursor=c&limit=100&status=active",
	}
	if diff := cmp.Diff(want, term.asks); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if out, _ = term.run(0, "", "jobs", "list", "--limit", "1"); !strings.Contains(out, "--limit 0 shows all") {
		t.Errorf("a cut list does not say so:\n%s", out)
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	term := newTerminal(t, say(`{"id":"1","name":"a <b>","n":12345678901234567890,"tags":["x","y"]}`))
	for output, want := range map[string]string{
		"json":               "{\n  \"id\": \"1\",\n  \"n\": 12345678901234567890,\n  \"name\": \"a <b>\",\n  \"tags\": [\n    \"x\",\n    \"y\"\n  ]\n}\n",
		"jsonpath=$.name":    "a <b>\n",
		"jsonpath=$.tags":    "[\"x\",\"y\"]\n",
		"jsonpath=$.none":    "",
		"jsonpath=$.tags[*]": "x\ny\n",
	} {
		if got, _ := term.run(0, "", "jobs", "get", "1", "-o", output); got != want {
			t.Errorf("-o %s: %q, want %q", output, got, want)
		}
	}
	if got, _ := term.run(0, "", "jobs", "get", "1", "-o", "yaml"); !strings.Contains(got, "name: a <b>\n") {
		t.Errorf("yaml: %s", got)
	}
	if got, _ := term.run(0, "", "jobs", "get", "1"); !strings.HasPrefix(got, "id: 1\nname: a <b>\n") {
		t.Errorf("table: %s", got)
	}
	term.run(64, "", "jobs", "get", "1", "-o", "xml")
	term.run(64, "", "jobs", "get", "1", "-o", "jsonpath=$[")
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{404: 4, 401: 5, 403: 5, 422: 1, 500: 1} {
		term := newTerminal(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error":{"code":"SOME_CODE","message":"it is so","details":[{"field":"name","message":"is empty"}]},"timestamp":"2026-11-22T00:00:00Z","path":"/"}`)
		})
		_, problems := term.run(want, "", "jobs", "get", "1")
		for _, part := range []string{"it is so", "SOME_CODE", "name: is empty"} {
			if !strings.Contains(problems, part) {
				t.Errorf("%d: no %q in %s", status, part, problems)
			}
		}
	}
	term := newTerminal(t, say(`{}`))
	for _, wrong := range [][]string{{"jobs", "get"}, {"jobs", "make"}, {"jobs", "list", "--colour"}, {"jobs", "create"}, {"doctor", "1", "2"}, {"frobnicate"}} {
		term.run(64, "", wrong...)
	}
	if len(term.asks) > 0 {
		t.Errorf("asked %v", term.asks)
	}
	term.url = ""
	if _, problems := term.run(64, "", "jobs", "list"); !strings.Contains(problems, "SCHEDULER_URL") {
		t.Errorf("without an address: %s", problems)
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	term := newTerminal(t, say(`{"id":"1"}`))
	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, []byte("name: a\nconfig:\n  url: https://example.com/\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	term.run(0, "", "jobs", "create", "-f", file)
	term.run(0, `{"name":"b"}`, "jobs", "create", "-f", "-")
	term.run(0, "", "jobs", "pause", "1", "--reason", "a \"quoted\" one")
	term.run(0, "", "jobs", "pause", "1")
	term.run(0, "", "jobs", "trigger", "1", "--parameters", `{"a":1}`)
	want := []string{
		`POST /api/v1/scheduler/jobs {"config":{"url":"https://example.com/"},"name":"a"}`,
		`POST /api/v1/scheduler/jobs {"name":"b"}`,
		`POST /api/v1/scheduler/jobs/1/pause {"reason":"a \"quoted\" one"}`,
		`POST /api/v1/scheduler/jobs/1/pause`,
		`POST /api/v1/scheduler/jobs/1/trigger {"parameters":{"a":1}}`,
	}
	if diff := cmp.Diff(want, term.asks); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	term.run(64, "name: a\nname: b\n", "jobs", "create", "-f", "-")
	term.run(64, "", "jobs", "trigger", "1", "--parameters", `{`)
	term.run(0, "", "jobs", "get", "../tenants")
	if last := term.asks[len(term.asks)-1]; last != "GET /api/v1/scheduler/jobs/..%2Ftenants" {
		t.Errorf("an id that climbs: %s", last)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	for status, exit := range map[string]int{"completed": 0, "failed": 3, "cancelled": 3} {
		looks := 0
		term := newTerminal(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				say(`{"id":"7","status":"pending","completedAt":null}`)(w, r)
				return
			}
			if looks++; looks < 2 {
				say(`{"id":"7","status":"running","progress":40,"completedAt":null}`)(w, r)
				return
			}
			say(`{"id":"7","status":"`+status+`","progress":100,"completedAt":"2026-11-22T09:00:00Z"}`)(w, r)
		})
		out, _ := term.run(exit, "", "jobs", "trigger", "1", "--wait", "-o", "jsonpath=$.status")
		if out != status+"\n" || looks != 2 {
			t.Errorf("after %d looks: %s", looks, out)
		}
	}
	term := newTerminal(t, say(`{"id":"7","status":"running","completedAt":null}`))
	if _, problems := term.run(1, "", "executions", "wait", "7", "--wait-timeout", "1ms"); !strings.Contains(problems, "not ended within 1ms") {
		t.Errorf("a wait that is too long: %s", problems)
	}
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	term := newTerminal(t, say(`{"items":[],"nextCursor":null}`))
	url := term.url
	term.url = "" // nothing in the environment
	term.run(0, "", "profile", "set", "dev", "--url", url, "--token", "one")
	term.run(0, "", "profile", "set", "prod", "--url", "http://127.0.0.1:1", "--token", "two")
	term.run(0, "", "profile", "use", "dev")
	term.run(0, "", "jobs", "list")
	term.run(1, "", "jobs", "list", "--profile", "prod")
	term.run(64, "", "jobs", "list", "--profile", "none")
	if out, _ := term.run(0, "", "profile", "list"); !strings.Contains(out, "* dev") || strings.Contains(out, "one") {
		t.Errorf("the list shows %s", out)
	}
	info, err := os.Stat(filepath.Join(term.home, "profiles.yaml"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	term.run(0, "", "profile", "delete", "dev")
	term.run(64, "", "profile", "delete", "dev")
	term.run(64, "", "jobs", "list")
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"/health":                  `{"status":"healthy","dependencies":{}}`,
		"/api/v1/scheduler/status": `{"time":"NOW","version":"1","promotionLagSeconds":0.01,"activeWorkers":1}`,
	}
	term := newTerminal(t, func(w http.ResponseWriter, r *http.Request) {
		// The clocks may be five seconds apart. This one is ahead, as a busy machine takes its time.
		ahead := clock.Now().Add(4 * time.Second).UTC().Format(time.RFC3339Nano)
		say(strings.ReplaceAll(answers[r.URL.Path], "NOW", ahead))(w, r)
	})
	if out, _ := term.run(0, "", "doctor"); strings.Contains(out, "FIX") {
		t.Errorf("all is well, and it says\n%s", out)
	}
	answers["/api/v1/scheduler/status"] = `{"time":"2020-01-01T00:00:00Z","version":"1","promotionLagSeconds":90,"activeWorkers":0}`
	out, _ := term.run(1, "", "doctor")
	if n := strings.Count(out, "FIX"); n != 3 {
		t.Errorf("%d findings, want 3:\n%s", n, out)
	}
	answers["/api/v1/scheduler/jobs/1"] = `{"name":"a","status":"inactive","statusReason":"failed 3 times","nextExecutionAt":null,"trigger":null}`
	answers["/api/v1/scheduler/jobs/1/executions"] = `{"items":[{"id":"7","status":"failed","errorType":"USER_ERROR","errorMessage":"404"}]}`
	out, _ = term.run(1, "", "doctor", "1", "-o", "json")
	var found struct {
		Items []struct {
			Well     bool
			What, Do string
		}
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil || len(found.Items) != 3 || found.Items[0].Well || !strings.Contains(found.Items[2].What, "USER_ERROR: 404") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestImport(t *testing.T) {
	t.Parallel()
	term := newTerminal(t, say(`{"id":"7","name":"backup"}`))
	crontab := "15 2 * * 1-5 backup\n@reboot warm-up\n"
	out, problems := term.run(2, crontab, "import", "crontab", "-", "--timezone", "Europe/Berlin", "--tag", "night")
	want := "config:\n  args:\n  - -c\n  - backup\n  command: /bin/sh\ncronExpression: 0 15 2 * * 1-5\njobType: command\nname: backup\ntags:\n- night\ntimezone: Europe/Berlin\n"
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if !strings.Contains(problems, "line 2: not imported: @reboot") || !strings.Contains(problems, "1 imported, 1 left out") {
		t.Errorf("said: %s", problems)
	}
	if out, _ = term.run(0, "0 0 * * * backup\n", "import", "crontab", "-", "--as", "http", "--target", "https://example.com/run", "--create"); out != "7  backup\n" {
		t.Errorf("made: %s", out)
	}
	last := term.asks[len(term.asks)-1]
	if want := `POST /api/v1/scheduler/jobs {"config":{"body":{"args":["/bin/sh","-c","backup"],"name":"backup"},"method":"POST","url":"https://example.com/run"},"cronExpression":"0 0 0 * * *","jobType":"http","name":"backup","timezone":"UTC"}`; last != want {
		t.Errorf("asked %s", last)
	}
	term.run(2, `{"Name":"x","ScheduleExpression":"rate(5 minutes)"}`, "import", "eventbridge", "-")
	term.run(64, "", "import", "nonsense", "-")
	term.run(64, "", "import", "crontab", "-", "--as", "http")
	term.run(64, "", "import", "crontab")
}

func TestLogs(t *testing.T) {
	t.Parallel()
	asked := 0
	term := newTerminal(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		switch {
		case r.URL.Query().Get("follow") == "" && r.URL.Query().Get("cursor") == "":
			say(`{"items":[{"at":"2026-11-22T09:00:00Z","stream":"stdout","text":"one\u001b[2J"}],"nextCursor":"c","hasMore":true}`)(w, r)
		case r.URL.Query().Get("follow") == "":
			say(`{"items":[{"stream":"stderr","text":"two"},{"dropped":{"lines":7,"bytes":70}}],"nextCursor":null,"hasMore":false}`)(w, r)
		case r.Header.Get("Last-Event-ID") == "": // breaks off within the second line
			w.Header().Set("Content-Type", "text/event-stream")
			say(": hello\n\nevent: line\nid: 1.1\ndata: {\"stream\":\"stdout\",\"text\":\"one\"}\n\nevent: line\nid: 1.2")(w, r)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			say("event: line\nid: 1.2\ndata: {\"stream\":\"stdout\",\"text\":\"two\"}\n\nevent: end\ndata: {}\n\n")(w, r)
			if id := r.Header.Get("Last-Event-ID"); id != "1.1" {
				t.Errorf("it goes on after %s", id)
			}
		}
	})
	out, problems := term.run(0, "", "executions", "logs", "7", "--attempt", "1")
	if out != "one\uFFFD[2J\n(7 lines, 70 bytes were not kept)\n" || problems != "two\n" {
		t.Errorf("the output is %q, %q", out, problems)
	}
	if out, _ = term.run(0, "", "executions", "logs", "7", "--follow"); out != "one\ntwo\n" || asked != 4 {
		t.Errorf("after %d requests the output is %q", asked, out)
	}
}
