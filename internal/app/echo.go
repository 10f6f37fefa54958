package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// echo answers each call with what it was sent: something for a first http job
// to call on a machine without a network. It listens on loopback alone, and it
// is the one private endpoint that jobs of the standalone program may reach.
type echo struct{ listener net.Listener }

// maxEcho bounds the body that is read and sent back, in bytes.
const maxEcho = 16 << 10

// echoAddr is the same at each start where it can be, so that a job of the last
// one still finds it.
const echoAddr = "127.0.0.1:3010"

func listenEcho() (echo, error) {
	listener, err := net.Listen("tcp", echoAddr)
	if err != nil { // somebody else's: any port will do
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return echo{}, fmt.Errorf("listen for the echo endpoint: %w", err)
	}
	return echo{listener}, nil
}

func (e echo) endpoint() netip.AddrPort {
	return netip.MustParseAddrPort(e.listener.Addr().String())
}

func (e echo) url() string { return "http://" + e.listener.Addr().String() + "/echo" }

// serve answers until ctx is cancelled.
func (e echo) serve(ctx context.Context) error {
	server := &http.Server{
		Handler: http.HandlerFunc(answer), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(e.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the echo endpoint: %w", err)
	}
	return nil
}

func answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxEcho))
	if err != nil {
		return // the caller is gone
	}
	w.Header().Set("Content-Type", "application/json")
	// A broken connection is the caller's to notice.
	_ = json.NewEncoder(w).Encode(map[string]any{
		"method": r.Method, "path": r.URL.Path, "headers": r.Header, "body": string(body),
	})
}
