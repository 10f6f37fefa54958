package certificate_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/certificate"
	"github.com/scheduler-service/scheduler/internal/clock"
)

// made is a certificate for localhost and its key, in PEM.
func made(t *testing.T, serial int64) (chain, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: clock.Now().Add(-time.Hour), NotAfter: clock.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	written, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: written})
}

// bundle is a pair of files, and what is logged about them.
type bundle struct {
	files certificate.Files
	log   *bytes.Buffer
}

func setup(t *testing.T) bundle {
	t.Helper()
	dir, log := t.TempDir(), &bytes.Buffer{}
	b := bundle{log: log, files: certificate.Files{
		Chain: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), Log: slog.New(slog.NewTextHandler(log, nil)),
	}}
	chain, key := made(t, 1)
	write(t, b.files.Chain, chain)
	write(t, b.files.Key, key)
	return b
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// shown is the serial number of the certificate that a client is shown, which
// speaks the versions up to one.
func shown(t *testing.T, p *certificate.Pair, newest uint16) (int64, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	server := tls.Server(theirs, p.Config())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.HandshakeContext(context.Background())
		_ = theirs.Close()
	}()
	client := tls.Client(ours, &tls.Config{ServerName: "localhost", InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: newest})
	err := client.HandshakeContext(t.Context())
	_ = ours.Close()
	<-ended
	if err != nil {
		return 0, err
	}
	return client.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

func TestOnlyTLS13IsSpoken(t *testing.T) {
	t.Parallel()
	pair, err := certificate.Open(setup(t).files)
	if err != nil {
		t.Fatal(err)
	}
	if serial, err := shown(t, pair, tls.VersionTLS13); err != nil || serial != 1 {
		t.Errorf("TLS 1.3: %d, %v", serial, err)
	}
	for _, older := range []uint16{tls.VersionTLS12, tls.VersionTLS11, tls.VersionTLS10} {
		if _, err := shown(t, pair, older); err == nil {
			t.Errorf("%s is spoken", tls.VersionName(older))
		}
	}
}

func TestCertificateFollowsItsFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pair, err := certificate.Open(b.files)
	if err != nil {
		t.Fatal(err)
	}
	want := func(serial int64, lines int) {
		t.Helper()
		pair.Refresh(t.Context())
		pair.Refresh(t.Context()) // the same find is not news
		if got, err := shown(t, pair, tls.VersionTLS13); err != nil || got != serial {
			t.Errorf("shows %d, %v, want %d", got, err, serial)
		}
		if got := strings.Count(b.log.String(), "\n"); got != lines {
			t.Errorf("%d lines, want %d: %s", got, lines, b.log)
		}
	}
	want(1, 0)
	chain, key := made(t, 2)
	write(t, b.files.Chain, chain)
	want(1, 1) // half of the new pair
	write(t, b.files.Key, key)
	want(2, 2)
	if err := os.Remove(b.files.Key); err != nil {
		t.Fatal(err)
	}
	want(2, 3)
	write(t, b.files.Key, key)
	want(2, 4)
	if strings.Contains(b.log.String(), strings.Split(string(key), "\n")[1]) {
		t.Error("the log holds the key")
	}
}

func TestPairsThatAreRefused(t *testing.T) {
	t.Parallel()
	other, _ := made(t, 3)
	for name, test := range map[string]struct {
		spoil func(t *testing.T, f certificate.Files) error
		says  string
	}{
		"no certificate":     {func(_ *testing.T, f certificate.Files) error { return os.Remove(f.Chain) }, "TLS_CERT_FILE"},
		"no key":             {func(_ *testing.T, f certificate.Files) error { return os.Remove(f.Key) }, "TLS_KEY_FILE"},
		"of another key":     {func(_ *testing.T, f certificate.Files) error { return os.WriteFile(f.Chain, other, 0o600) }, "no pair"},
		"no PEM":             {func(_ *testing.T, f certificate.Files) error { return os.WriteFile(f.Key, []byte("canary"), 0o600) }, "no pair"},
		"everybody's to see": {func(_ *testing.T, f certificate.Files) error { return os.Chmod(f.Key, 0o644) }, "chmod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "everybody's to see" && runtime.GOOS == "windows" {
				t.Skip("modes say nothing there")
			}
			b := setup(t)
			if err := test.spoil(t, b.files); err != nil {
				t.Fatal(err)
			}
			_, err := certificate.Open(b.files)
			if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "canary") {
				t.Errorf("Open = %v, want an error about %s", err, test.says)
			}
		})
	}
}
