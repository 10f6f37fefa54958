package app

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
)

// TestEchoKeepsItsAddress starts the echo endpoint again and again with the same
// folder: it listens where it did, so that jobs made before still find it.
func TestEchoKeepsItsAddress(t *testing.T) {
	t.Parallel()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	first, err := listenEcho("", dir, log)
	if err != nil {
		t.Fatal(err)
	}
	address := first.listener.Addr().String()
	_ = first.listener.Close()
	again, err := listenEcho("", dir, log)
	if err != nil || again.listener.Addr().String() != address {
		t.Fatalf("listens at %v, want %s: %v", again, address, err)
	}
	_ = again.listener.Close()

	other, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("another program was quicker: %v", err)
	}
	var lines bytes.Buffer
	elsewhere, err := listenEcho("", dir, slog.New(slog.NewTextHandler(&lines, nil)))
	if err != nil || elsewhere.listener.Addr().String() == address || !strings.Contains(lines.String(), address) {
		t.Errorf("with the address taken: %v, %v, log %q", elsewhere, err, lines.String())
	}
	_ = elsewhere.listener.Close()
	_ = other.Close()
	if back, err := listenEcho("", dir, log); err != nil || back.listener.Addr().String() != address {
		t.Errorf("it did not come back to %s: %v, %v", address, back, err)
	} else {
		_ = back.listener.Close()
	}
}

func TestEchoListensOnLoopbackAlone(t *testing.T) {
	t.Parallel()
	if e, err := listenEcho("0.0.0.0:0", t.TempDir(), slog.New(slog.DiscardHandler)); err == nil {
		_ = e.listener.Close()
		t.Error("everybody can reach it")
	}
	e, err := listenEcho("127.0.0.1:0", t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_ = e.listener.Close()
}
