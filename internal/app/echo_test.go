package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestEchoKeepsItsAddress starts the echo endpoint again with the same folder: it
// listens where it did, so that jobs made before still find it. Another program may
// take the port between two lines of the test, so it has ten tries.
func TestEchoKeepsItsAddress(t *testing.T) {
	t.Parallel()
	for range 10 {
		dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
		first, err := listenEcho("", dir, log)
		if err != nil {
			t.Fatal(err)
		}
		address := first.listener.Addr().String()
		_ = first.listener.Close()
		again, err := listenEcho("", dir, log)
		if err != nil {
			t.Fatal(err)
		}
		kept := again.listener.Addr().String() == address
		_ = again.listener.Close()
		if kept {
			return
		}
	}
	t.Error("it listened elsewhere each time")
}

// TestEchoWarnsWhereItsAddressIsTaken starts a second endpoint with the folder of
// one that still listens.
func TestEchoWarnsWhereItsAddressIsTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := listenEcho("", dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.listener.Close() }()
	var lines bytes.Buffer
	second, err := listenEcho("", dir, slog.New(slog.NewTextHandler(&lines, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.listener.Close() }()
	if address := first.listener.Addr().String(); second.listener.Addr().String() == address || !strings.Contains(lines.String(), address) {
		t.Errorf("it listens at %v, and logs %q", second.listener.Addr(), lines.String())
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
