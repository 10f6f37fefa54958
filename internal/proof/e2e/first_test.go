package e2e_test

import (
	"net/http"
	"os/exec"
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
	cmd.Env = []string{"DATABASE_URL=" + s.database.URL, "DATABASE_OWNER_URL=" + s.database.OwnerURL, "JWT_SECRET=" + key}
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
