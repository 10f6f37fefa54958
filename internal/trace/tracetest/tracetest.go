// Package tracetest is a collector of spans for tests.
//
// It owns a server that takes what OTLP over HTTP sends, as an OpenTelemetry collector does,
// and decodes it by the published definition of the protocol (go.opentelemetry.io/proto/otlp).
// It refuses to be lenient: what is not valid OTLP fails the test. No production file calls it.
package tracetest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one that came. Ids are hexadecimal.
type Span struct {
	Trace, ID, Parent, Name string
	Service                 string // service.name of its process
	Kind                    string // as the protocol writes it, such as SPAN_KIND_CLIENT
	Start, End              time.Time
	Attributes              map[string]string
	Links                   []string // the ids of the spans, each after its trace's and a slash
	Failed                  bool
}

// Collector takes spans.
type Collector struct {
	URL string // as OTEL_EXPORTER_OTLP_ENDPOINT names it

	t      testing.TB
	mu     sync.Mutex
	spans  []Span
	header http.Header // of the last call
}

// New starts a collector, which ends with the test.
func New(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", c.take)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if media := r.Header.Get("Content-Type"); err != nil || media != "application/x-protobuf" {
		c.t.Errorf("what came is no OTLP (%s): %v", media, err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.header = r.Header
	for _, process := range sent.GetResourceSpans() {
		service := attributes(process.GetResource().GetAttributes())["service.name"]
		for _, scope := range process.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, read(s, service))
			}
		}
	}
	answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{}) // an empty message
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer)
}

func read(s *otlp.Span, service string) Span {
	out := Span{
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Name: s.GetName(), Service: service, Kind: s.GetKind().String(), Attributes: attributes(s.GetAttributes()),
		Start: time.Unix(0, int64(s.GetStartTimeUnixNano())).UTC(), End: time.Unix(0, int64(s.GetEndTimeUnixNano())).UTC(),
		Failed: s.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR,
	}
	for _, link := range s.GetLinks() {
		out.Links = append(out.Links, hex.EncodeToString(link.GetTraceId())+"/"+hex.EncodeToString(link.GetSpanId()))
	}
	return out
}

func attributes(from []*common.KeyValue) map[string]string {
	out := make(map[string]string, len(from))
	for _, a := range from {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_IntValue:
			out[a.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		case *common.AnyValue_DoubleValue:
			out[a.GetKey()] = strconv.FormatFloat(v.DoubleValue, 'f', -1, 64)
		case *common.AnyValue_BoolValue:
			out[a.GetKey()] = strconv.FormatBool(v.BoolValue)
		default:
			out[a.GetKey()] = a.GetValue().GetStringValue()
		}
	}
	return out
}

// Spans are those that came so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Header is the one of the last call.
func (c *Collector) Header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header.Clone()
}

// Find is the first span of a trace with a name, if it came.
func Find(spans []Span, trace, name string) (Span, bool) {
	at := slices.IndexFunc(spans, func(s Span) bool { return s.Trace == trace && s.Name == name })
	if at < 0 {
		return Span{}, false
	}
	return spans[at], true
}

// Comes waits up to a minute until something holds, and says whether it does. A tracer that is
// closed waits three seconds for its last spans to be taken: on a busy machine they may come later.
func Comes(t testing.TB, holds func() bool) bool {
	t.Helper()
	limit := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			return false
		}
	}
	return true
}
