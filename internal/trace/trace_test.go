package trace_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
	"github.com/scheduler-service/scheduler/internal/trace"
	"github.com/scheduler-service/scheduler/internal/trace/tracetest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// execution has an id of the form that executions have.
func execution(n byte) uuid.UUID {
	id := uuid.UUID{0x01, 0x9a, 0, 0, 0, n}
	for i := 6; i < 16; i++ {
		id[i] = byte(i)*37 + n*101
	}
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return id
}

func open(t *testing.T, c trace.Config) *trace.Tracer {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	traces, err := trace.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return traces
}

func find(t *testing.T, c *tracetest.Collector, id, name string) (span tracetest.Span) {
	t.Helper()
	if !tracetest.Comes(t, func() (ok bool) { span, ok = tracetest.Find(c.Spans(), id, name); return ok }) {
		t.Fatalf("no span %s of the trace %s among %+v", name, id, c.Spans())
	}
	return span
}

// A caller's trace goes on in the request's; the request and what it made know each other,
// and everything about an execution is in the trace of its id, from any process.
func TestOneTraceFromRequestToCall(t *testing.T) {
	t.Parallel()
	c := tracetest.New(t)
	api := open(t, trace.Config{URL: c.URL, Service: "api", Share: 1, Headers: map[string]string{"X-Key": "k"}, Resource: map[string]string{"a": "b"}})
	id := execution(1)
	const caller, above = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	ctx, request := api.Request(t.Context(), http.Header{"Traceparent": {"00-" + caller + "-" + above + "-01"}})
	if got := trace.ID(ctx); got != caller {
		t.Errorf("trace %q", got)
	}
	api.Made(ctx, id)
	request.Rename("triggerJob")
	request.Answered(202)
	request.End()
	api.Close()

	worker := open(t, trace.Config{URL: c.URL, Service: "worker", Share: 1})
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ctx, attempt := worker.Execution(t.Context(), id, "attempt", at.Add(time.Second), slog.Int("scheduler.attempt", 1))
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://example.com:8080/hook?token=x", nil)
	if err != nil {
		t.Fatal(err)
	}
	outgoing := trace.Outgoing(call)
	outgoing.Answered(503)
	outgoing.End()
	attempt.End()
	_, whole := worker.Whole(t.Context(), id, at, execution(2))
	whole.EndAt(at.Add(2 * time.Second))
	worker.Close()

	own := trace.IDOf(id)
	if own != strings.ReplaceAll(id.String(), "-", "") {
		t.Errorf("the trace of %s is %s", id, own)
	}
	root, tried, sent := find(t, c, own, "execution"), find(t, c, own, "attempt"), find(t, c, own, "POST")
	asked, triggered := find(t, c, caller, "triggerJob"), find(t, c, own, "trigger")
	if asked.Parent != above || asked.Kind != "SPAN_KIND_SERVER" || asked.Service != "api" || asked.Attributes["http.response.status_code"] != "202" {
		t.Errorf("the request: %+v", asked)
	}
	if root.Parent != "" || tried.Parent != root.ID || triggered.Parent != root.ID || sent.Parent != tried.ID {
		t.Errorf("parents: %+v %+v %+v %+v", root, tried, triggered, sent)
	}
	if len(asked.Links) != 1 || asked.Links[0] != own+"/"+root.ID || len(triggered.Links) != 1 || triggered.Links[0] != caller+"/"+asked.ID {
		t.Errorf("links: %v %v", asked.Links, triggered.Links)
	}
	if len(root.Links) != 1 || !strings.HasPrefix(root.Links[0], trace.IDOf(execution(2))) {
		t.Errorf("it continues %v", root.Links)
	}
	if !root.Start.Equal(at) || !root.End.Equal(at.Add(2*time.Second)) || !tried.Start.Equal(at.Add(time.Second)) {
		t.Errorf("times: %+v %+v", root, tried)
	}
	if !sent.Failed || sent.Attributes["server.address"] != "example.com" || sent.Attributes["server.port"] != "8080" {
		t.Errorf("the call: %+v", sent)
	}
	for _, s := range c.Spans() {
		for key, value := range s.Attributes {
			if strings.Contains(value, "token") {
				t.Errorf("%s of %s shows %q", key, s.Name, value)
			}
		}
	}
	if got := call.Header.Get("traceparent"); got != "00-"+own+"-"+sent.ID+"-01" {
		t.Errorf("the target was sent %q", got)
	}
}

func TestHeadersReachTheCollector(t *testing.T) {
	t.Parallel()
	c := tracetest.New(t)
	traces := open(t, trace.Config{URL: c.URL, Service: "x", Share: 1, Headers: map[string]string{"Authorization": "Bearer 1"}})
	_, span := traces.Whole(t.Context(), execution(1), time.Unix(1, 0))
	span.End()
	traces.Close()
	if !tracetest.Comes(t, func() bool { return c.Header() != nil }) || c.Header().Get("Authorization") != "Bearer 1" {
		t.Errorf("authorization %q", c.Header().Get("Authorization"))
	}
}

// The ids of executions have bits that never change, and those of a second have many in
// common: a share is nevertheless kept of them.
func TestAShareIsKept(t *testing.T) {
	t.Parallel()
	c := tracetest.New(t)
	traces := open(t, trace.Config{URL: c.URL, Share: 0.25})
	defer traces.Close()
	const of = 10_000
	kept := 0
	for range of {
		id := uuid.New() // version and variant stand where those of executions do
		copy(id[:6], []byte{1, 2, 3, 4, 5, 6})
		id[6] = id[6]&0x0f | 0x80
		ctx, span := traces.Execution(t.Context(), id, "attempt", time.Unix(1, 0))
		if (span != nil) != traces.Keeps(id) || (trace.ID(ctx) != "") != traces.Keeps(id) {
			t.Fatalf("%s is kept by some", id)
		}
		if traces.Keeps(id) {
			kept++
		}
	}
	if kept < of/5 || kept > of*3/10 { // 12 standard deviations
		t.Errorf("kept %d of %d", kept, of)
	}
}

// A target is told of the trace that is not kept, so that it does not keep it either.
func TestWhatIsNotKeptIsNamed(t *testing.T) {
	t.Parallel()
	traces := open(t, trace.Config{URL: tracetest.New(t).URL, Share: 0})
	defer traces.Close()
	ctx, span := traces.Execution(t.Context(), execution(1), "attempt", time.Unix(1, 0))
	call, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://example.com", nil)
	if trace.Outgoing(call) != nil || span != nil {
		t.Error("a span of a trace that is not kept")
	}
	if got := call.Header.Get("traceparent"); !strings.HasPrefix(got, "00-"+trace.IDOf(execution(1))) || !strings.HasSuffix(got, "-00") {
		t.Errorf("traceparent %q", got)
	}
	call.Header.Set("traceparent", "mine")
	trace.Outgoing(call)
	if got := call.Header.Get("traceparent"); got != "mine" {
		t.Errorf("the job's own header became %q", got)
	}
}

func TestWhoSaysWhetherARequestIsKept(t *testing.T) {
	t.Parallel()
	const yes, no = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for _, test := range []struct {
		name   string
		c      trace.Config
		header string
		kept   bool
	}{
		{"nobody asks", trace.Config{Share: 1}, "", true},
		{"nobody asks, none", trace.Config{Share: 0, Trusting: true}, "", false},
		{"trusted caller", trace.Config{Share: 0, Trusting: true}, yes, true},
		{"trusted caller says no", trace.Config{Share: 1, Trusting: true}, no, false},
		{"caller", trace.Config{Share: 0}, yes, false},
		{"caller says no", trace.Config{Share: 1}, no, true},
		{"another version", trace.Config{Share: 0, Trusting: true}, strings.Replace(yes, "00", "01", 1) + "-more", true},
		{"no header of the standard", trace.Config{Share: 0, Trusting: true}, "ff" + yes[2:], false},
		{"too long", trace.Config{Share: 0, Trusting: true}, yes + "-more", false},
		{"no hexadecimal", trace.Config{Share: 0, Trusting: true}, strings.Replace(yes, "0af7", "zzzz", 1), false},
		{"zero", trace.Config{Share: 0, Trusting: true}, "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01", false},
		{"upper case", trace.Config{Share: 0, Trusting: true}, strings.ToUpper(yes), false},
		{"rubbish", trace.Config{Share: 0, Trusting: true}, strings.Repeat("-", 1000), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.c.URL = tracetest.New(t).URL
			traces := open(t, test.c)
			defer traces.Close()
			if _, span := traces.Request(t.Context(), http.Header{"Traceparent": {test.header}}); (span != nil) != test.kept {
				t.Errorf("kept: %v", span != nil)
			}
		})
	}
}

// Without a tracer nothing happens, and nothing is allocated.
func TestOffCostsNothing(t *testing.T) {
	var traces *trace.Tracer
	ctx, id := context.WithValue(t.Context(), new(int), 1), execution(1)
	header := http.Header{}
	call, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://example.com", nil)
	allocated := testing.AllocsPerRun(100, func() {
		_, span := traces.Request(ctx, header)
		span.Rename("x")
		span.End()
		traces.Made(ctx, id)
		_, span = traces.Execution(ctx, id, "attempt", time.Time{})
		span.Fail("x")
		_, span = trace.Start(ctx, "x")
		span.End()
		if traces.Keeps(id) || trace.Outgoing(call) != nil {
			t.Error("kept")
		}
	})
	if allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
	if span := trace.Outgoing(call); span != nil || len(call.Header) > 0 || trace.ID(ctx) != "" || trace.Parent(ctx) != "" {
		t.Errorf("a header %v", call.Header)
	}
	traces.Close()
}

// lines are those of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// A collector that takes nothing costs spans, one line of the log, and no more.
func TestACollectorThatRefuses(t *testing.T) {
	t.Parallel()
	log := make(lines, 100)
	c := tracetest.New(t)
	traces := open(t, trace.Config{URL: c.URL + "/elsewhere", Share: 1, Log: slog.New(slog.NewTextHandler(log, nil))})
	_, span := traces.Execution(t.Context(), execution(1), "attempt", time.Unix(1, 0))
	span.End()
	traces.Close()
	if !tracetest.Comes(t, func() bool { return len(log) > 0 }) {
		t.Fatal("nothing is said")
	}
	if got := <-log; !strings.Contains(got, "they are lost") || len(log) > 0 {
		t.Errorf("the first of %d lines: %s", 1+len(log), got)
	}
}
