package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// The command line against running processes: a job from a file, a run that is waited
// for, a backfill, and exit codes for scripts.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	s := start(t, hinted, 1)
	token, err := identity.Mint([]byte(key), identity.Claims{Subject: "ada", Tenant: s.tenant, Roles: []identity.Role{identity.Admin}}, clock.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	run := func(exit int, in string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		c := command(ctx, program(t, "schedctl"), "SCHEDULER_URL="+s.url, "SCHEDULER_TOKEN="+token, "HOME="+t.TempDir())
		c.Args = append(c.Args, args...)
		c.Stdin = strings.NewReader(in)
		var problems bytes.Buffer
		c.Stderr = &problems
		out, err := c.Output()
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			t.Fatal(err)
		}
		if got := c.ProcessState.ExitCode(); got != exit {
			t.Fatalf("schedctl %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, exit, out, problems.String())
		}
		return strings.TrimSpace(string(out))
	}
	noop := "jobType: function\nconfig: { modulePath: builtin, functionName: noop }\n"
	id := run(0, "name: hourly\ncronExpression: 0 0 * * * *\n"+noop, "jobs", "create", "-f", "-", "-o", "jsonpath=$.id")
	if got := run(0, "", "jobs", "trigger", id, "--wait", "-o", "jsonpath=$.status"); got != "completed" {
		t.Errorf("the run is %s", got)
	}
	if got := run(0, "", "executions", "list", "--job-id", id, "-o", "jsonpath=$.items[*].triggerType"); got != "manual" {
		t.Errorf("the executions are %s", got)
	}
	from, to := s.now().Add(-2*time.Hour).Truncate(time.Hour), s.now()
	run(0, "", "backfills", "create", id, "--from", from.Format(time.RFC3339), "--to", to.Format(time.RFC3339), "--rate-per-minute", "6000", "--wait")
	if got := run(0, "", "jobs", "list", "--q", "hourly"); !strings.Contains(got, "0 0 * * * *") {
		t.Errorf("the list is\n%s", got)
	}
	broken := run(0, "name: broken\ntrigger: manual\nretryConfig: { maxRetries: 0 }\njobType: http\nconfig: { url: \"http://"+freeAddr(t)+"/\" }\n", "jobs", "create", "-f", "-", "-o", "jsonpath=$.id")
	run(3, "", "jobs", "trigger", broken, "--wait")
	run(1, "", "doctor", broken)
	run(1, "name: wrong\ncronExpression: 0 0 31 2 *\n"+noop, "jobs", "create", "-f", "-")
	run(0, "", "jobs", "delete", broken)
	run(4, "", "jobs", "get", broken)
	run(64, "", "jobs", "get")
	if got := run(0, "", "audit", "list", "-o", "jsonpath=$.items[*].actor"); !strings.Contains(got, "ada") {
		t.Errorf("the audit log names %s", got)
	}
}
