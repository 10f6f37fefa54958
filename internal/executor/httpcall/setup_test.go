package httpcall_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/httpcall"
	"github.com/scheduler-service/scheduler/internal/fault"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// now is when the tests take place.
var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// newExecutor makes an executor that may call this host where it is told so.
func newExecutor(t *testing.T, allow ...string) *httpcall.Executor {
	t.Helper()
	config := egress.Config{DialTimeout: time.Minute} // a busy machine may stand still for a while
	for _, network := range allow {
		config.Allow = append(config.Allow, netip.MustParsePrefix(network))
	}
	client, err := egress.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return httpcall.New(client, func() time.Time { return now })
}

func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

// run is an attempt with a configuration; $URL in it is the server's.
func run(server *httptest.Server, config string) executor.Run {
	return executor.Run{
		ExecutionID: uuid.MustParse("00000000-0000-8000-8000-00000000000e"),
		JobID:       uuid.MustParse("00000000-0000-4000-8000-00000000000a"),
		Attempt:     3,
		ScheduledAt: time.Date(2026, 3, 4, 9, 0, 0, 123456000, time.FixedZone("CST", 8*3600)),
		Config:      json.RawMessage(strings.ReplaceAll(config, "$URL", server.URL)),
		Timeout:     time.Minute,
	}
}

// call runs a job against a server as a worker does, through the registry.
func call(t *testing.T, ctx context.Context, r executor.Run) executor.Outcome {
	t.Helper()
	registry := executor.NewRegistry(map[string]executor.Executor{"http": newExecutor(t, "127.0.0.0/8")})
	return registry.Execute(ctx, "http", r)
}

// kept is a result as its readers see it.
type kept struct {
	StatusCode       int               `json:"statusCode"`
	Headers          map[string]string `json:"headers"`
	HeadersTruncated bool              `json:"headersTruncated"`
	Body             string            `json:"body"`
	BodyEncoding     string            `json:"bodyEncoding"`
	Truncated        bool              `json:"truncated"`
	BodyBytes        int64             `json:"bodyBytes"`
}

func result(t *testing.T, out executor.Outcome) kept {
	t.Helper()
	var k kept
	if err := json.Unmarshal(out.Result, &k); err != nil {
		t.Fatalf("result %.100q: %v", out.Result, err)
	}
	return k
}

// rules shortens faults to "path rule".
func rules(faults []fault.Field) []string {
	var short []string
	for _, f := range faults {
		short = append(short, f.Path+" "+f.Rule)
	}
	return short
}
