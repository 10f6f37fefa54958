package e2e_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// status is what an address answers, 0 where it does not.
func status(url string) int {
	// A connection of its own for each, as a load balancer's probe has.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

func (p *process) terminate() clock.Mark {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	return clock.Start()
}

// observed are the variables that put the metrics on a port of their own, and where
// readiness is asked for there.
func observed(t *testing.T) (env []string, ready string) {
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	return []string{"METRICS_ENABLED=true", "PROMETHEUS_PORT=" + port}, "http://" + addr + "/health/ready"
}

// An API that is told to stop says so first, goes on answering for the notice, and
// closes then.
func TestAPISaysThatItStopsBeforeItDoes(t *testing.T) {
	t.Parallel()
	s := stores(t, polled)
	s.process("migrate", "DATABASE_OWNER_URL="+s.database.OwnerURL).wait()
	addr := freeAddr(t)
	s.url = "http://" + addr
	env, ready := observed(t)
	const notice = 30 * time.Second // which a busy machine needs to be asked thrice
	p := s.process("api", append(env, "HTTP_ADDR="+addr, "JWT_SECRET="+key, "TENANT_AUTO_CREATE=true", "SHUTDOWN_NOTICE_MS=30000")...)
	s.client = s.clientOf(s.tenant, identity.Admin)
	s.eventually("it is ready on both ports", func() bool { return status(s.url+"/health/ready") == 200 && status(ready) == 200 })
	stopped := p.terminate()
	s.eventually("it is not ready", func() bool { return status(s.url+"/health/ready") == 503 })
	s.eventually("nor on the other port", func() bool { return status(ready) == 503 })
	answer, err := s.client.ListJobsWithResponse(t.Context(), &api.ListJobsParams{})
	if err != nil || answer.JSON200 == nil {
		t.Fatalf("a request during the notice, %v after it began: %v, %+v", stopped.Elapsed(), err, answer)
	}
	p.wait()
	if took := stopped.Elapsed(); took < notice || took > notice+limit {
		t.Errorf("it ended after %v, with a notice of %v", took, notice)
	}
	if got := status(s.url + "/health/live"); got != 0 {
		t.Errorf("the port is open afterwards: %d", got)
	}
}

// A worker that is told to stop is not ready while it lets a run finish.
func TestWorkerIsNotReadyWhileItDrains(t *testing.T) {
	t.Parallel()
	s := start(t, polled, 0)
	env, ready := observed(t)
	p := s.process("worker", lasting(append(env, "EGRESS_ALLOW=127.0.0.0/8", "SCHEDULER_DRAIN_TIMEOUT_MS=60000")...)...)
	s.eventually("it is ready", func() bool { return status(ready) == 200 })
	begun, release := make(chan struct{}, 1), make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case begun <- struct{}{}:
		default:
		}
		<-release
	}))
	t.Cleanup(target.Close)
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let)
	run := s.trigger(s.create(api.JobSpec{Name: "as long as it takes", JobType: api.JobTypeHTTP, Config: config(t, map[string]any{"url": target.URL})}).ID)
	<-begun
	p.terminate()
	s.eventually("it is not ready", func() bool { return status(ready) == 503 })
	if got := s.execution(run.ID).Status; got != api.ExecutionStatusRunning {
		t.Errorf("the run is %s while it drains", got)
	}
	let()
	p.wait()
	if got := s.execution(run.ID).Status; got != api.ExecutionStatusCompleted {
		t.Errorf("the run is %s", got)
	}
}

// Ctrl-C ends the program that is all of them at once, for a person's patience.
func TestStandaloneStopsPromptly(t *testing.T) {
	t.Parallel()
	s := stores(t, polled)
	addr := freeAddr(t)
	s.url = "http://" + addr
	env, ready := observed(t)
	p := s.process("standalone", append(env, "HTTP_ADDR="+addr, "JWT_SECRET="+key, "DATABASE_OWNER_URL="+s.database.OwnerURL,
		"DATA_DIR="+t.TempDir(), "SHUTDOWN_NOTICE_MS=")...)
	s.eventually("it is ready", func() bool { return status(s.url+"/health/ready") == 200 && status(ready) == 200 })
	// Retention and metrics run in it, too.
	s.eventually("the numbers are taken", func() bool {
		var n int
		s.query(&n, "SELECT count(*) FROM metric_history")
		return n > 0
	})
	stopped := p.terminate()
	p.wait()
	if took := stopped.Elapsed(); took < 200*time.Millisecond || took > noise {
		t.Errorf("it ended after %v", took)
	}
}
