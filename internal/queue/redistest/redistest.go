// Package redistest gives each test a Redis of its own.
//
// It owns starting and stopping that server, which takes some 30 ms: asynq's
// keys have a fixed prefix and tests of its loss empty the whole server, so
// there is nothing that parallel tests could share. It refuses to skip and to
// stand in a fake: without a real server a test fails. No production file
// calls it.
package redistest

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
)

// Server is one test's own Redis, empty at first. It listens on a unix socket
// and keeps nothing on disk.
type Server struct {
	// URL is its address as asynq.ParseRedisURI reads it: redis-socket:///path.
	URL string
	// ClientURL is its address as redis.ParseURL of go-redis reads it:
	// unix:///path.
	ClientURL string

	redis *devstack.Redis
}

// New starts a Redis, which is stopped when the test ends. The settings, as
// "name=value", come after its own.
func New(t testing.TB, settings ...string) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // it may have to be installed
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r, err := devstack.StartRedis(ctx, devstack.Options{Settings: settings, Log: log})
	if err != nil {
		t.Fatalf("no Redis for the test: %v", err)
	}
	s := &Server{URL: r.URL, ClientURL: r.ClientURL, redis: r}
	t.Cleanup(s.Stop)
	if r.Kind == devstack.KindMiniredis {
		t.Fatal("no Redis for the test: install redis-server or valkey-server")
	}
	return s
}

// Stop ends the server before the test does, as a crash would: for a test of
// what happens then.
func (s *Server) Stop() {
	// Its data is gone with it, so there is nothing that a failure would spoil.
	_ = s.redis.Stop()
}

// Halt takes the server away until Restart, as a crash does.
func (s *Server) Halt(t testing.TB) {
	t.Helper()
	if err := s.redis.Halt(); err != nil {
		t.Fatalf("halt Redis: %v", err)
	}
}

// Freeze has the server take connections and answer nothing, until Thaw, Halt
// or the end of the test.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	if err := s.redis.Freeze(); err != nil {
		t.Fatalf("freeze Redis: %v", err)
	}
}

// Thaw has a frozen server go on.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	if err := s.redis.Thaw(); err != nil {
		t.Fatalf("thaw Redis: %v", err)
	}
}

// Restart brings the server back on the same address, empty, as after a crash
// that lost everything.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.redis.Restart(t.Context()); err != nil {
		t.Fatalf("restart Redis: %v", err)
	}
}

// FlushAll empties the server, as an operator's slip would.
func (s *Server) FlushAll(t testing.TB) {
	t.Helper()
	conn, err := net.Dial("unix", strings.TrimPrefix(s.ClientURL, "unix://"))
	if err != nil {
		t.Fatalf("flush Redis: %v", err)
	}
	defer conn.Close()
	answer := make([]byte, 5)
	_, err = io.WriteString(conn, "FLUSHALL\r\n")
	if err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err != nil || string(answer) != "+OK\r\n" {
		t.Fatalf("flush Redis: %q, %v", answer, err)
	}
}

// Main runs a package's tests and looks for goroutines left behind. It returns
// the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
func Main(m *testing.M) int { return leaktest.Main(m) }
