package rest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/rest"
	"github.com/scheduler-service/scheduler/internal/schedctl"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// terminal is schedctl with an API behind it.
type terminal struct {
	b         *bundle
	url, home string
}

func (b *bundle) terminal(t *testing.T, between func(http.Handler) http.Handler) *terminal {
	t.Helper()
	server := httptest.NewServer(between(b.handler))
	t.Cleanup(server.Close)
	return &terminal{b: b, url: server.URL, home: t.TempDir()}
}

func directly(h http.Handler) http.Handler { return h }

// run runs a command line as a developer and expects its exit code.
func (term *terminal) run(t *testing.T, exit int, args ...string) (out, problems string) {
	t.Helper()
	got, out, problems := term.try(t, args...)
	if got != exit {
		t.Fatalf("schedctl %s: exit code %d, want %d\n%.2000s%.2000s", strings.Join(args, " "), got, exit, out, problems)
	}
	return out, problems
}

// try runs schedctl, however it ends.
func (term *terminal) try(t *testing.T, args ...string) (exit int, out, problems string) {
	t.Helper()
	token := term.b.token(t, term.b.ours, identity.Developer)
	var o, p bytes.Buffer
	exit = schedctl.Main(t.Context(), args, schedctl.Env{
		In: strings.NewReader(""), Out: &o, Err: &p, Home: term.home,
		Lookup: func(name string) (string, bool) {
			value, ok := map[string]string{"SCHEDULER_URL": term.url, "SCHEDULER_TOKEN": token}[name]
			return value, ok
		},
	})
	return exit, o.String(), p.String()
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// yamlJob is a job of a file.
func yamlJob(name, more string) string {
	return "name: " + name + "\ncronExpression: 0 0 9 * * 1-5\njobType: http\nconfig: {url: 'https://example.com/'}\n" + more
}

func says(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestSetFromATerminal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	term, dir := b.terminal(t, directly), t.TempDir()
	file := write(t, dir, "jobs.yaml", yamlJob("a", "")+"---\n"+yamlJob("b", ""))
	write(t, dir, "more.json", "{\n\t\"name\": \"c\", \"trigger\": \"manual\", \"jobType\": \"http\", \"config\": {\"url\": \"https://example.com/\"}}")
	write(t, dir, "notes.txt", "no job")
	on := func(verb string, more ...string) []string {
		return append([]string{verb, "-f", dir, "--set", "billing"}, more...)
	}
	out, _ := term.run(t, 2, on("plan")...)
	says(t, out, "+ create a\n+ create b\n+ create c\n3 to create, 0 to change, 0 to adopt, 0 to delete, 0 unchanged, 0 left, 0 conflicts\nplan ")
	hash := strings.TrimSpace(out[strings.LastIndex(out, " "):])
	term.run(t, 1, on("apply", "--plan", strings.Repeat("0", 64))...)
	b.has(t)
	_, problems := term.run(t, 0, on("apply", "--plan", hash)...)
	says(t, problems, "applied: 3 created, 0 changed, 0 adopted, 0 deleted")
	term.run(t, 0, on("plan")...)
	term.run(t, 0, on("diff")...)
	_, problems = term.run(t, 0, on("apply")...)
	says(t, problems, "applied: 0 created, 0 changed, 0 adopted, 0 deleted")

	// Somebody changes a job past the files, and the files lose one.
	list, err := b.jobs.List(t.Context(), b.ours, job.Filter{Text: "b", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.jobs.Update(t.Context(), tenant.Actor{TenantID: b.ours.TenantID, Subject: "grace"}, list.Jobs[0].ID, changed(list.Jobs[0].Spec), 0); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "jobs.yaml", yamlJob("b", ""))
	out, _ = term.run(t, 2, on("diff", "--drift", "--utc")...)
	says(t, out, "? leave a (changed by ada at 2", "~ change b (changed by grace at 2", "    timeout: 7 -> 300\n")
	out, _ = term.run(t, 2, on("plan", "--prune", "-o", "json")...)
	says(t, out, `"deleted": 1`, `"field": "timeout"`)
	term.run(t, 0, on("apply", "--prune")...)
	b.has(t, `b in "billing" v3 300s`, `c in "billing" v1 300s`)

	// A file with a job that is somebody's already.
	b.asDeveloper(t, "POST", "/jobs", wanted("d", ""))
	write(t, dir, "d.yaml", yamlJob("d", ""))
	out, problems = term.run(t, 1, on("apply")...)
	says(t, out+problems, "! conflict d", "schedctl adopt")
	term.run(t, 0, on("adopt")...)
	b.has(t, `b in "billing" v3 300s`, `c in "billing" v1 300s`, `d in "billing" v1 300s`)
	term.run(t, 64, "plan", "-f", file)
	term.run(t, 64, "plan", "--set", "billing", "-f", filepath.Join(dir, "none.yaml"))
}

// changed is a definition with another time limit.
func changed(spec job.Spec) job.Spec {
	spec.Timeout = 7
	return spec
}

func TestSetFaultsHaveFileAndLine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	term, dir := b.terminal(t, directly), t.TempDir()
	var texts []string
	for i := range 998 {
		texts = append(texts, yamlJob(fmt.Sprintf("job %03d", i), "timezone: Mars/Olympus\n")) // six lines with the divider
	}
	write(t, dir, "a.yaml", strings.Join(texts, "---\n"))
	write(t, dir, "b.yaml", yamlJob("job 007", "")+"---\njobType: http\n")
	_, problems := term.run(t, 1, "apply", "-f", dir, "--set", "billing")
	says(t, problems, "a.yaml:5: timezone: ", "a.yaml:11: timezone: ", "a.yaml:5987: timezone: ", "b.yaml:1: name: is \"job 007\" a second time, after "+filepath.Join(dir, "a.yaml")+":43", "b.yaml:6: the job has no name", "1000 faults; nothing was changed")
	if got := strings.Count(problems, "\n"); got != 1001 {
		t.Errorf("%d lines", got)
	}
	b.has(t)
}

// An apply that is cut off, before or after the service did a section, is finished by the
// same command, and comes to the same as one that was not.
func TestInterruptedApplyIsFinished(t *testing.T) {
	t.Parallel()
	for cut := range 3 {
		t.Run(fmt.Sprintf("at section %d", cut+1), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var calls, broken atomic.Int64
			broken.Store(-1)
			term := b.terminal(t, func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !strings.HasSuffix(r.URL.Path, "/apply") || calls.Add(1) != broken.Load() {
						h.ServeHTTP(w, r)
						return
					}
					if cut%2 == 0 { // it is done, and nobody hears of it
						h.ServeHTTP(httptest.NewRecorder(), r)
					}
					panic(http.ErrAbortHandler)
				})
			})
			dir := t.TempDir()
			var first, second, want []string
			for i := range 1100 {
				name := fmt.Sprintf("job %04d", i)
				first = append(first, yamlJob(name, ""))
				switch i % 11 {
				case 0: // goes
				case 1:
					second, want = append(second, yamlJob(name, "timeout: 7\n")), append(want, fmt.Sprintf("%s in \"billing\" v2 7s", name))
				default:
					second, want = append(second, yamlJob(name, "")), append(want, fmt.Sprintf("%s in \"billing\" v1 300s", name))
				}
			}
			write(t, dir, "jobs.yaml", strings.Join(first, "---\n"))
			term.run(t, 0, "apply", "-f", dir, "--set", "billing")
			write(t, dir, "jobs.yaml", strings.Join(second, "---\n"))
			broken.Store(calls.Load() + int64(cut) + 1)
			if cut == 2 {
				broken.Store(calls.Load() + 2) // there are two sections by now
			}
			_, problems := term.run(t, 1, "apply", "-f", dir, "--set", "billing", "--prune")
			says(t, problems, "the same command again does the rest")
			// The service may still be doing what was broken off: then the plan is out of date.
			exit := -1
			for exit != 0 {
				if exit, _, problems = term.try(t, "apply", "-f", dir, "--set", "billing", "--prune"); exit != 0 && !strings.Contains(problems, "PLAN_OUTDATED") {
					t.Fatalf("exit code %d: %.2000s", exit, problems)
				}
			}
			b.has(t, want...)
			_, problems = term.run(t, 0, "apply", "-f", dir, "--set", "billing", "--prune")
			says(t, problems, "applied: 0 created, 0 changed, 0 adopted, 0 deleted")
		})
	}
}

// Jobs with each setting that there is are written, and adopted without a change.
func TestExportedJobsApplyWithoutAChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	term, dir := b.terminal(t, directly), filepath.Join(t.TempDir(), "jobs")
	b.asDeveloper(t, "GET", "/jobs", "") // the tenant is there
	count := 0
	spec := reflect.TypeFor[api.JobSpec]()
	for name, value := range settings(b.makeCalendar(t, b.ours).ID.String()) {
		body := map[string]json.RawMessage{"name": []byte(`"Job: ` + name + `"`), "jobType": []byte(`"http"`), "config": []byte(`{"url":"https://example.com/?token=0123456789"}`), "interval": []byte(`"PT1H"`)}
		if name == "cronExpression" || name == "runAt" || name == "trigger" {
			delete(body, "interval")
		}
		if name == "jobType" {
			body["config"] = []byte(`{"modulePath":"builtin","functionName":"yes","parameters":{"n":12345678901234567890,"t":"2026-01-02","u":"1e3"}}`)
		}
		body[name] = json.RawMessage(value)
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		b.asDeveloper(t, "POST", "/jobs", string(raw))
		count++
	}
	if count != spec.NumField() {
		t.Fatalf("%d jobs for %d settings", count, spec.NumField())
	}
	before := b.jobsOf(t, b.ours, job.Filter{})
	_, problems := term.run(t, 0, "export", "--dir", dir)
	says(t, problems, fmt.Sprintf("%d jobs written", count), "hold ***")
	out, _ := term.run(t, 0, "adopt", "-f", dir, "--set", "billing")
	says(t, out, fmt.Sprintf("0 to create, 0 to change, %d to adopt, 0 to delete", count))
	if strings.Contains(out, "->") {
		t.Errorf("adopting changes something:\n%s", out)
	}
	for i, line := range before {
		before[i] = strings.Replace(line, `in ""`, `in "billing"`, 1)
	}
	b.has(t, before...)
	term.run(t, 64, "export", "--set", "billing", "--dir", dir)
	text, _ := term.run(t, 0, "export", "--set", "billing")
	out, _ = term.run(t, 0, "plan", "-f", write(t, t.TempDir(), "all.yaml", text), "--set", "billing", "--prune")
	says(t, out, fmt.Sprintf("%d unchanged", count))
}

// A set is taken from one tenant to another, with calendars of the same names.
func TestPromoteASet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	term := b.terminal(t, directly)
	holidays := b.makeCalendar(t, b.ours, calendar.Day{Start: "2026-12-25"})
	b.applied(t, section("", wanted("a", `,"calendars":[{"calendarId":"`+holidays.ID.String()+`","mode":"exclude"}]`), wanted("b", "")))
	for name, who := range map[string]tenant.Actor{"dev": b.ours, "prod": b.theirs} {
		term.run(t, 0, "profile", "set", name, "--url", term.url, "--token", b.token(t, who, identity.Developer))
	}
	promote := []string{"promote", "--from", "dev", "--to", "prod", "--set", "billing"}
	_, problems := term.run(t, 1, promote...)
	says(t, problems, fmt.Sprintf("prod: there is no calendar %q", holidays.Name))
	got := b.do(t, request{method: "POST", path: base + "/calendars", token: b.token(t, b.theirs, identity.Developer), body: `{"name":"` + holidays.Name + `","days":[{"start":"2026-12-24"}]}`})
	if got.status != http.StatusCreated {
		t.Fatal(got.body)
	}
	out, _ := term.run(t, 2, append(promote, "--dry-run")...)
	says(t, out, "+ create a\n+ create b\n")
	term.run(t, 0, promote...)
	if diff := cmp.Diff([]string{`a in "billing" v1 300s`, `b in "billing" v1 300s`}, b.jobsOf(t, b.theirs, job.Filter{})); diff != "" {
		t.Errorf("the other tenant's jobs differ (-want +got):\n%s", diff)
	}
	_, problems = term.run(t, 0, promote...)
	says(t, problems, "applied: 0 created, 0 changed, 0 adopted, 0 deleted")
	term.run(t, 4, "promote", "--from", "dev", "--to", "prod", "--set", "none")
	term.run(t, 64, "promote", "--from", "dev", "--to", "nobody", "--set", "billing")
}

// A set that has more jobs than the tenant may have changes nothing.
func TestSetBeyondTheBoundChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.jobs = job.NewStore(b.db, job.Config{Keys: b.keys, MaxJobs: func() int { return 600 }, Changed: rest.ChangedFields})
	b.deps.Jobs = b.jobs
	b.handler = newHandler(t, b.deps)
	term := b.terminal(t, directly)
	var texts []string
	for i := range 601 {
		texts = append(texts, yamlJob(fmt.Sprintf("job %03d", i), ""))
	}
	file := write(t, t.TempDir(), "jobs.yaml", strings.Join(texts, "---\n"))
	_, problems := term.run(t, 6, "apply", "-f", file, "--set", "billing")
	says(t, problems, "this tenant may have 600 jobs and has 0, and the set makes 601 more; nothing was changed")
	b.has(t)
}
