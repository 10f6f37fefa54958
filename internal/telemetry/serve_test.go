package telemetry

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestServeAnswersUntilCancelled(t *testing.T) {
	t.Parallel()
	reg := NewRegistry()
	NewMetrics(reg).SetRunning(3)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serveOn(ctx, listener, reg, func() error { return errors.New("the worker holds no lease") })
	}()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]string{
		"/metrics": "scheduler_running_executions 3", "/": "404 page not found",
		"/health/live": "alive", "/health/ready": "the worker holds no lease",
	} {
		if body := get(t, client, "http://"+listener.Addr().String()+path); !strings.Contains(body, want) {
			t.Errorf("%s: %q is not in %.200s", path, want, body)
		}
	}
	body := get(t, client, "http://"+listener.Addr().String()+"/metrics")
	for _, want := range []string{"go_goroutines", "process_resident_memory_bytes", "scheduler_memory_usage_bytes"} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing", want)
		}
	}

	cancel()
	if err := <-done; err != nil {
		t.Errorf("cancelled: %v", err)
	}
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestServeWithoutAddressWaits(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, "", NewRegistry(), func() error { return nil }) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestServeSaysThatThePortIsTaken(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if err := Serve(t.Context(), listener.Addr().String(), NewRegistry(), func() error { return nil }); err == nil {
		t.Error("no error for a port that is taken")
	}
}

// TestServeStartsAndStopsUnderStress cancels at once, again and again; goleak
// in TestMain sees what stayed behind.
func TestServeStartsAndStopsUnderStress(t *testing.T) {
	t.Parallel()
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, "127.0.0.1:0", NewRegistry(), func() error { return nil }) }()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}
