package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Serve answers GET /metrics on an address until ctx ends, and then returns
// nil within five seconds. Beside it, for an orchestrator, GET /health/live is
// 200 while the process answers, and GET /health/ready while ready returns nil;
// otherwise 503 with the reason. An empty address, as config gives it when metrics
// are off, serves nothing and waits for ctx. An address that cannot be
// listened on is an error at once.
//
// The port is not for tenants: nothing on it asks who is there.
func Serve(ctx context.Context, addr string, from prometheus.Gatherer, ready func() error) error {
	if addr == "" {
		<-ctx.Done()
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if ctx.Err() != nil && err != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("telemetry: listen for metrics: %w", err)
	}
	return serveOn(ctx, listener, from, ready)
}

func serveOn(ctx context.Context, listener net.Listener, from prometheus.Gatherer, ready func() error) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{
		// Half an answer is better than none when one collector fails.
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	}))
	mux.HandleFunc("GET /health/live", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "alive") })
	mux.HandleFunc("GET /health/ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			say(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		say(w, http.StatusOK, "ready")
	})
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("telemetry: serve metrics: %w", err)
	case <-ctx.Done():
	}
	return stop(server, ended)
}

// say answers a line of text.
func say(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, line+"\n") // a broken connection is the caller's to notice
}

// stop lets a scrape that is being answered finish, up to a bound.
func stop(server *http.Server, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("telemetry: serve metrics: %w", err)
	}
	return nil
}
