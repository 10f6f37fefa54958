package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// echo answers each call with what it was sent: something for a first http job
// to call on a machine without a network. It listens on loopback alone, and it
// is the one private endpoint that jobs of the standalone program may reach.
type echo struct{ listener net.Listener }

// maxEcho bounds the body that is read and sent back, in bytes.
const maxEcho = 16 << 10

// echoAddr is where the echo endpoint listens at the first start, if it can.
const echoAddr = "127.0.0.1:3010"

// listenEcho listens at the configured address, or at the one of the first start,
// which a file below dir names, so that jobs made then still find it. At the first
// start any free port will do. Where another program has the port later, it warns
// and listens elsewhere.
func listenEcho(configured, dir string, log *slog.Logger) (echo, error) {
	if configured != "" {
		return listenAt(configured)
	}
	path := filepath.Join(dir, "echo-address")
	kept, err := os.ReadFile(path)
	switch {
	case err == nil:
		address := strings.TrimSpace(string(kept))
		e, err := listenAt(address)
		if err != nil {
			log.Warn("another program has the address of the echo endpoint, so jobs of earlier starts that call it fail: end that program, or set ECHO_ADDR", "address", address)
			return listenAt("127.0.0.1:0")
		}
		return e, nil
	case !errors.Is(err, os.ErrNotExist):
		return echo{}, fmt.Errorf("read the echo endpoint's address: %w", err)
	}
	e, err := listenAt(echoAddr)
	if err != nil {
		e, err = listenAt("127.0.0.1:0")
	}
	if err != nil {
		return echo{}, err
	}
	if err = os.MkdirAll(dir, 0o700); err == nil {
		err = os.WriteFile(path, []byte(e.endpoint().String()+"\n"), 0o600)
	}
	if err != nil {
		_ = e.listener.Close()
		return echo{}, fmt.Errorf("keep the echo endpoint's address: %w", err)
	}
	return e, nil
}

// listenAt listens at an address that only this machine reaches.
func listenAt(address string) (echo, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return echo{}, fmt.Errorf("listen for the echo endpoint: %w", err)
	}
	e := echo{listener}
	if !e.endpoint().Addr().IsLoopback() {
		_ = listener.Close()
		return echo{}, fmt.Errorf("ECHO_ADDR: %s is not a loopback address, and jobs of every tenant could call it", address)
	}
	return e, nil
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
