// Package certificate is the certificate that our own listeners show.
//
// It owns reading it from two files, following the files while the process
// runs, and the versions of TLS that are spoken. It refuses to make
// certificates, to verify those of clients, and everything about connections
// to others (packages egress, postgres and queue).
package certificate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// RefreshEvery is how often to call Refresh: how long the old certificate is shown
// after its files changed.
const RefreshEvery = 5 * time.Second

// Files says where a certificate stands, in PEM.
type Files struct {
	Chain string // the certificate, then those between it and the root
	Key   string // its private key, which others than its owner and group must not be able to read
	Log   *slog.Logger
}

// Pair is a certificate that follows its files. Any number of goroutines may
// use it.
type Pair struct {
	files   Files
	current atomic.Pointer[tls.Certificate]
	seen    [sha256.Size]byte // of the contents that were looked at last; of Refresh alone
}

// Open reads both files. The error says what is wrong with which, and repeats
// nothing of the key.
func Open(f Files) (*Pair, error) {
	p := &Pair{files: f}
	loaded, seen, err := f.load()
	if err != nil {
		return nil, err
	}
	p.seen = seen
	p.current.Store(loaded)
	return p, nil
}

// Config is how to serve with the certificate as it is at each handshake: TLS
// 1.3 and nothing older, and HTTP/1.1 in it.
func (p *Pair) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.current.Load(), nil },
	}
}

// Refresh reads the files once. New contents are shown from the next handshake
// on; what cannot be used (half of a pair replaced, say) is logged once, and
// the certificate stays what it was. One caller at a time.
func (p *Pair) Refresh(ctx context.Context) {
	loaded, seen, err := p.files.load()
	if seen == p.seen {
		return
	}
	p.seen = seen
	if err != nil {
		p.files.Log.ErrorContext(ctx, "new certificate cannot be used, the one before stays", "error", err)
		return
	}
	p.current.Store(loaded)
	p.files.Log.InfoContext(ctx, "certificate loaded", "not_after", loaded.Leaf.NotAfter)
}

// load reads the pair. The sum stands for what was found, errors included, so
// that the same find is the same sum.
func (f Files) load() (*tls.Certificate, [sha256.Size]byte, error) {
	chain, err := read("TLS_CERT_FILE", f.Chain)
	key, also := read("TLS_KEY_FILE", f.Key)
	if err := errors.Join(err, also, private(f.Key)); err != nil {
		return nil, sha256.Sum256([]byte(err.Error())), err
	}
	seen := sha256.Sum256(bytes.Join([][]byte{chain, key}, []byte{0}))
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil { // its texts hold nothing of the key
		return nil, seen, fmt.Errorf("TLS_CERT_FILE, TLS_KEY_FILE: they are no pair of certificate and key in PEM: %w", err)
	}
	return &pair, seen, nil
}

func read(variable, path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return text, nil
}

// private refuses a key that everybody on the machine can read.
func private(path string) error {
	found, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" { // whose modes say nothing
		return nil // that it cannot be read is said already
	}
	if found.Mode().Perm()&0o007 != 0 {
		return fmt.Errorf("TLS_KEY_FILE: everybody may read or write %s (mode %s): take that away, as with chmod o-rwx, or defaultMode 0440 of a volume",
			path, fs.FileMode(found.Mode().Perm()))
	}
	return nil
}
