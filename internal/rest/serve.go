package rest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/scheduler-service/scheduler/internal/rest/parts"
)

// Time-outs of a connection, against senders and readers that take their time
// on purpose.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second // headers and body
	writeTimeout      = 30 * time.Second // from the end of the headers to the end of the answer
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
	// maxConns is how many connections are open at once; more wait in the
	// kernel's queue until one ends.
	maxConns = 10_000
)

// drainingKey is the key of the flag in every request's context.
type drainingKey struct{}

// draining reports whether the server that a request came through is stopping.
func draining(ctx context.Context) bool {
	flag, ok := ctx.Value(drainingKey{}).(*atomic.Bool)
	return ok && flag.Load()
}

// Serve answers requests until ctx ends, and returns nil once it has stopped:
// readiness turned off, listener closed, requests answered or, after Drain, cut
// off. It returns an error only if the listener fails.
func Serve(ctx context.Context, s parts.Server) error {
	var stopping atomic.Bool
	// Requests outlive ctx: that it ends is the beginning of their drain.
	requests := context.WithValue(context.WithoutCancel(ctx), drainingKey{}, &stopping)
	server := &http.Server{
		Handler:           closeAfterChunks(s.Handler),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
	listener := capped(s.Listener, cmp.Or(s.MaxConns, maxConns))
	if s.TLS != nil { // a handshake has the time of the headers
		listener = tls.NewListener(listener, s.TLS)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("rest: serve: %w", err)
	case <-ctx.Done():
	}
	stopping.Store(true)
	s.Log.InfoContext(requests, "stopping: the port closes after the notice, then requests may finish", "notice", s.Notice.String(), "at_most", s.Drain.String())
	server.SetKeepAlivesEnabled(false)
	if err := notice(s.Notice, ended); err != nil {
		return err
	}
	return stop(server, s.Drain, ended)
}

// closeAfterChunks ends the connection of a request whose body comes in chunks. A
// proxy in front may have read a Content-Length beside them, which net/http drops
// before anybody sees it, and take what follows for another request's body: it
// must not be served as a request of its own (RFC 9112, section 6.1).
func closeAfterChunks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// notice goes on serving for a while.
func notice(d time.Duration, ended <-chan error) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case err := <-ended:
		return fmt.Errorf("rest: serve: %w", err)
	case <-timer.C:
		return nil
	}
}

// stop closes the listener and waits for the requests, up to a bound.
func stop(server *http.Server, drain time.Duration, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close() // cuts off what is left
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("rest: serve: %w", err)
	}
	return nil
}
