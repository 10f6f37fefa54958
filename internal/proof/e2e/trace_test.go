package e2e_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/trace/tracetest"
)

// One trace tells of a run from the API call through the claim to the call to the target,
// with the numbers of its timeline, out of processes that share nothing but its id.
func TestTraceOfARun(t *testing.T) {
	t.Parallel()
	collector := tracetest.New(t)
	s := stores(t, hinted)
	s.env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + through(t, collector.URL), "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test"}
	s.up(1)
	target, calls := sink(t)
	job := s.create(api.JobSpec{Name: "traced", JobType: api.JobTypeHTTP, Config: config(t, map[string]any{"url": target, "method": "POST"})})
	const caller, above = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	answer, err := s.client.TriggerJobWithResponse(t.Context(), job.ID, nil, api.TriggerRequest{}, func(_ context.Context, r *http.Request) error {
		r.Header.Set("traceparent", "00-"+caller+"-"+above+"-01")
		return nil
	})
	if err != nil || answer.JSON202 == nil {
		t.Fatalf("trigger: %v %s", err, answer.Body)
	}
	made := *answer.JSON202
	own := strings.ReplaceAll(made.ID.String(), "-", "")
	sent := (<-calls).header.Get("traceparent")
	var spans []tracetest.Span
	has := func(trace, name string) (found tracetest.Span) {
		found, _ = tracetest.Find(spans, trace, name)
		return found
	}
	s.eventually("the spans are there", func() bool {
		spans = collector.Spans()
		for _, name := range []string{"execution", "attempt", "claim", "POST", "write outcome", "trigger"} {
			if has(own, name).ID == "" {
				return false
			}
		}
		return has(caller, "triggerJob").ID != "" && has(caller, "redis publish").ID != "" // the hint
	})
	root, attempt, call, request := has(own, "execution"), has(own, "attempt"), has(own, "POST"), has(caller, "triggerJob")
	if want := "00-" + own + "-" + call.ID + "-01"; sent != want {
		t.Errorf("the target was sent %q, want %q", sent, want)
	}
	if root.Parent != "" || attempt.Parent != root.ID || call.Parent != attempt.ID || has(own, "claim").Parent != attempt.ID || has(own, "write outcome").Parent != attempt.ID {
		t.Errorf("parents: %+v", spans)
	}
	if request.Parent != above || len(request.Links) != 1 || request.Links[0] != own+"/"+root.ID {
		t.Errorf("the request: %+v", request)
	}
	if root.Service != "scheduler-worker" || request.Service != "scheduler-api" {
		t.Errorf("services %s, %s", root.Service, request.Service)
	}
	database := 0
	for _, span := range spans {
		if span.Name == "request" {
			t.Errorf("a probe has a span: %+v", span)
		}
		if span.Trace == caller && span.Attributes["db.system.name"] == "postgresql" {
			database++
		}
	}
	if database == 0 {
		t.Error("no span of the database")
	}
	s.sameAsTimeline(made, root)

	spec := sleepJob(t, "one at a time", time.Minute)
	one := 1
	spec.MaxConcurrent = &one
	slow := s.create(spec)
	first := s.trigger(slow.ID)
	s.eventually("the first runs", func() bool { return s.execution(first.ID).Status == api.ExecutionStatusRunning })
	second := s.trigger(slow.ID)
	for _, e := range []api.Execution{second, first} {
		if _, err := s.client.CancelExecutionWithResponse(t.Context(), e.ID, api.CancelExecutionJSONRequestBody{}); err != nil {
			t.Fatal(err)
		}
	}
	own = strings.ReplaceAll(second.ID.String(), "-", "")
	s.eventually("the execution that did not run has a trace", func() bool {
		spans = collector.Spans()
		return has(own, "execution").Attributes["scheduler.status"] == "cancelled"
	})
	s.sameAsTimeline(second, has(own, "execution"))

	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	away := s.trigger(s.create(api.JobSpec{Name: "away", JobType: api.JobTypeHTTP, Config: config(t, map[string]any{"url": gone.URL})}).ID)
	s.eventually("the log names the trace of an attempt that failed", func() bool {
		return slices.ContainsFunc(s.started, func(p *process) bool {
			return p.name == "worker" && strings.Contains(p.log.String(), `"trace_id":"`+strings.ReplaceAll(away.ID.String(), "-", "")+`"`)
		})
	})
}

// through is the address of a real collector that hands on what it takes, where the
// environment names the program that tools/collector is; and otherwise the address itself.
func through(t *testing.T, url string) string {
	t.Helper()
	path := os.Getenv("OTEL_COLLECTOR")
	if path == "" {
		return url
	}
	addr := freeAddr(t)
	cmd := exec.Command(path, addr, url)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it ends then
		if err := cmd.Wait(); err != nil {
			t.Errorf("the collector: %v", err)
		}
	})
	return "http://" + addr
}

// sameAsTimeline compares the numbers of a trace with those of the API.
func (s *installation) sameAsTimeline(made api.Execution, root tracetest.Span) {
	s.t.Helper()
	answer, err := s.client.GetExecutionTimelineWithResponse(s.t.Context(), made.ID)
	if err != nil || answer.JSON200 == nil {
		s.t.Fatalf("timeline: %v %s", err, answer.Body)
	}
	timeline := *answer.JSON200
	for name, want := range map[string]float64{"promotion": timeline.SpentMs.Promotion, "limit": timeline.SpentMs.Limit, "backlog": timeline.SpentMs.Backlog, "queue": timeline.SpentMs.Queue, "retry": timeline.SpentMs.Retry} {
		got, err := strconv.ParseFloat(root.Attributes["scheduler."+name+"_ms"], 64)
		if err != nil || got-want > 1 || want-got > 1 {
			s.t.Errorf("%s: %v ms in the trace (%v), %v by the API", name, got, err, want)
		}
	}
	if root.Attributes["scheduler.timeline"] != timeline.Summary {
		s.t.Errorf("%q in the trace, %q by the API", root.Attributes["scheduler.timeline"], timeline.Summary)
	}
}
