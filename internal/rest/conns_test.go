package rest_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/rest"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
)

// Beyond the bound, a connection waits until another ends, and a server that
// waits for one can be stopped.
func TestConnectionsAreCapped(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	go func() {
		done <- rest.Serve(ctx, parts.Server{Listener: listener, Handler: answers, Log: discard(), Drain: time.Second, MaxConns: 2})
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	answered := func(conn net.Conn, within time.Duration) bool {
		if err := conn.SetReadDeadline(clock.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(make([]byte, 12))
		return err == nil && n > 0
	}
	first, second := dial(), dial()
	if !answered(first, time.Minute) || !answered(second, time.Minute) {
		t.Fatal("two connections were not served")
	}
	third := dial()
	if answered(third, 200*time.Millisecond) {
		t.Error("a third connection was served beside two open ones")
	}
	_ = first.Close()
	if !answered(third, time.Minute) {
		t.Error("the third connection was not served after the first ended")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
