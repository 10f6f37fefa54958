package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// certify writes a certificate for 127.0.0.1 with a serial number, and its key.
func certify(t *testing.T, dir string, serial int64) (chain, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: clock.Now().Add(-time.Hour), NotAfter: clock.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	written, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	chain, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, block := range map[string]*pem.Block{chain: {Type: "CERTIFICATE", Bytes: raw}, key: {Type: "PRIVATE KEY", Bytes: written}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return chain, key
}

// speaking is a client that speaks the versions of TLS up to one, on a new
// connection each time.
func speaking(newest uint16) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: newest},
	}}
}

// Both addresses of an API with a certificate speak TLS 1.3 and nothing else,
// and show the certificate that stands in the files.
func TestTLSWithoutAProxy(t *testing.T) {
	t.Parallel()
	s, dir := stores(t, polled), t.TempDir()
	s.process("migrate", "DATABASE_OWNER_URL="+s.database.OwnerURL).wait()
	chain, private := certify(t, dir, 1)
	public, internal := freeAddr(t), freeAddr(t)
	s.process("api", "HTTP_ADDR="+public, "INTERNAL_ADDR="+internal, "JWT_SECRET="+key, "TLS_CERT_FILE="+chain, "TLS_KEY_FILE="+private)

	serial := func(url string) int64 {
		answer, err := speaking(tls.VersionTLS13).Get(url)
		if err != nil {
			return 0
		}
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode != http.StatusOK || answer.Header.Get("Strict-Transport-Security") == "" {
			t.Errorf("%s: %s, %v", url, answer.Status, answer.Header)
		}
		return answer.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	for addr, path := range map[string]string{public: "/health/live", internal: "/internal/health"} {
		s.eventually("the API serves with its certificate", func() bool { return serial("https://"+addr+path) == 1 })
		if _, err := speaking(tls.VersionTLS12).Get("https://" + addr + path); err == nil {
			t.Errorf("%s speaks TLS 1.2", addr)
		}
		if answer, err := http.Get("http://" + addr + path); err == nil {
			if answer.StatusCode == http.StatusOK {
				t.Errorf("%s answers without TLS", addr)
			}
			_ = answer.Body.Close()
		}
	}
	certify(t, dir, 2)
	s.eventually("the new certificate is shown", func() bool {
		return serial("https://"+public+"/health/live") == 2 && serial("https://"+internal+"/internal/health") == 2
	})
}
