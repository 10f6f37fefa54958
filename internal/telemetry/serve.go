package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Serve answers GET /metrics on an address until ctx ends, and then returns
// nil within five seconds. An empty address, as config gives it when metrics
// are off, serves nothing and waits for ctx. An address that cannot be
// listened on is an error at once.
//
// The port is not for tenants: nothing on it asks who is there.
func Serve(ctx context.Context, addr string, from prometheus.Gatherer) error {
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
	return serveOn(ctx, listener, from)
}

func serveOn(ctx context.Context, listener net.Listener, from prometheus.Gatherer) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{
		// Half an answer is better than none when one collector fails.
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	}))
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
