package httpcall_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/httpcall"
)

// A call to a target on this host, both sides counted.
func BenchmarkCall(b *testing.B) {
	client, err := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"ok":true}`)) }))
	defer server.Close()
	registry := executor.NewRegistry(map[string]executor.Executor{"http": httpcall.New(client, clock.Now)})
	run := executor.Run{
		ExecutionID: uuid.New(), JobID: uuid.New(), Attempt: 1,
		Config: json.RawMessage(`{"url":"` + server.URL + `/hook","method":"POST","body":{"a":1},"headers":{"X-Api-Key":"k"}}`),
	}
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if out := registry.Execute(b.Context(), "http", run); out.Err != nil {
				b.Error(out.Err)
				return
			}
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	client, err := egress.New(egress.Config{})
	if err != nil {
		b.Fatal(err)
	}
	e := httpcall.New(client, clock.Now)
	config := json.RawMessage(`{"url":"https://example.com/hook","method":"POST","body":{"a":1},"headers":{"X-Api-Key":"k"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if faults := e.Validate(config); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}
