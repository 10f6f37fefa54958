package e2e_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands of docs/run/install.md, on separate processes with the default
// configuration: a tenant, a token, a job of one's own, and its first run.
func TestFromMigrateToTheFirstRun(t *testing.T) {
	t.Parallel()
	s := stores(t, polled)
	s.process("migrate", "DATABASE_OWNER_URL="+s.database.OwnerURL).wait()
	addr := freeAddr(t)
	s.url = "http://" + addr
	s.process("api", "HTTP_ADDR="+addr, "JWT_SECRET="+key)
	s.process("promoter")
	s.process("worker")
	tenant := s.printed("create-tenant", "Example Ltd")
	token := s.printed("mint-token", "admin", tenant)
	administrator := s.printed("mint-token", "platform-admin", "00000000-0000-4000-8000-0000000000ff")
	s.eventually("the API is ready", func() bool { return s.call(t, "GET", "/health/ready", "", "") == http.StatusOK })
	if got := s.call(t, "POST", "/api/v1/scheduler/tenants", administrator, `{"name":"the second"}`); got != http.StatusCreated {
		t.Errorf("a platform administrator without a tenant creates one: %d", got)
	}
	job := `{"name":"first","jobType":"function","config":{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":1}},"interval":"1s"}`
	if got := s.call(t, "POST", "/api/v1/scheduler/jobs", token, job); got != http.StatusCreated {
		t.Fatalf("the job is answered %d", got)
	}
	s.eventually("a run completed", func() bool {
		var completed int
		s.query(&completed, "SELECT count(*) FROM job_executions WHERE status = 'completed'")
		return completed > 0
	})
}

// A process on a schema of an older version says so and ends; it does not answer
// requests with errors.
func TestEveryProcessNeedsTheSchema(t *testing.T) {
	t.Parallel()
	s := stores(t, polled)
	s.process("migrate", "DATABASE_OWNER_URL="+s.database.OwnerURL).wait()
	var removed int64
	s.query(&removed, "DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version) RETURNING version_id")
	for _, name := range []string{"api", "promoter", "worker"} {
		p := s.process(name, "HTTP_ADDR=127.0.0.1:0", "JWT_SECRET="+key)
		<-p.done
		if p.err == nil || !strings.Contains(p.log.String(), "run the migrations") {
			t.Errorf("%s on an older schema: %v\n%s", name, p.err, p.log)
		}
	}
}

// printed is what a task of migrate prints.
func (s *installation) printed(args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), program(s.t, "migrate"), args...)
	cmd.Env = []string{"DATABASE_URL=" + s.database.URL, "JWT_SECRET=" + key}
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("migrate %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// call answers the status of one request.
func (s *installation) call(t *testing.T, method, path, token, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// The commands of the README's first job and of pages of docs/use, run by a shell as
// they stand, against the program that `make run` starts.
func TestUsePages(t *testing.T) {
	t.Parallel()
	s := stores(t, polled)
	addr, home := freeAddr(t), t.TempDir()
	s.url = "http://" + addr
	p := s.process("standalone", lasting("HTTP_ADDR="+addr, "JWT_SECRET="+key, "DATABASE_OWNER_URL="+s.database.OwnerURL, "DATA_DIR="+filepath.Join(home, ".data"))...)
	s.eventually("it says what to do", func() bool { return strings.Contains(p.log.String(), "Ctrl-C stops it") })
	guided(t, p.log.String())
	pasted(t, home, "README.md")
	if shown := pasted(t, home, filepath.Join("docs", "use", "first-job.md")); !strings.Contains(shown, `"status":"completed"`) || !strings.Contains(shown, `"scopes"`) {
		t.Errorf("the page shows\n%s", shown)
	}
	for page, want := range map[string]string{
		"calendars.md": `"scheduledAt":"2027-03-30T09:00:00+02:00"`, "change.md": `"restoredFrom":null`, "stop.md": `"retriedAs":"`,
		"notifications.md": `"status":"delivered"`, "secrets.md": `Bearer ***`, "backfill.md": `"triggerType":"backfill"`,
		"targets.md": `X-Scheduled-At`, "scripts.md": `"sent":"POST"`, "functions.md": `"width":640`, "retries.md": `"retryCount":2`,
		"dead-letters.md": `"discardedCount":0`,
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			if shown := pasted(t, home, filepath.Join("docs", "use", page)); !strings.Contains(shown, want) {
				t.Errorf("the page shows\n%s", shown)
			}
		})
	}
}

// guided runs the commands that the program prints when it is ready, at once, and
// expects what the echo endpoint answered to be seen.
func guided(t *testing.T, printed string) {
	t.Helper()
	script := "set -euo pipefail\n"
	for line := range strings.Lines(printed) {
		if command, ok := strings.CutPrefix(line, "  "); ok {
			script += command
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	refused := `api /jobs -d '{"name":"mine","interval":"5s","jobType":"http","config":{"url":"http://localhost:8080/"}}'` + "\n"
	shell := exec.CommandContext(ctx, "bash", "-c", script+refused)
	shell.WaitDelay = limit
	shown, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("the commands that are printed: %v\n%s\n%s", err, script, shown)
	}
	for _, want := range []string{`"status":"completed"`, `\"path\":\"/echo\"`, "EGRESS_ALLOW"} {
		if !strings.Contains(string(shown), want) {
			t.Errorf("the commands that are printed show no %s:\n%s", want, shown)
		}
	}
}

// pasted runs the commands of a page that talk to the service, in one shell.
func pasted(t *testing.T, home, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", page))
	if err != nil {
		t.Fatal(err)
	}
	script := "set -euo pipefail\n"
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(block[1], "make ") {
			script += block[1]
		}
	}
	if !strings.Contains(script, ". .data/tokens") || !strings.Contains(script, "curl") {
		t.Fatalf("%s has no commands:\n%s", page, script)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", script)
	shell.Dir, shell.WaitDelay = home, limit
	shown, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("the commands of %s: %v\n%s", page, err, shown)
	}
	return string(shown)
}
