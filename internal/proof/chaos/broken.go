package chaos

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// brokenSource is a library that a PostgreSQL loads before all others.
//
//go:embed broken/broken.c
var brokenSource []byte

// orders tell the library of one PostgreSQL, or the clock of one of our
// processes, how to misbehave. They lie in a file, so that they hold at once
// and for all of its processes.
type orders struct{ file *os.File }

func newOrders(path string) (*orders, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644) // the server's account reads it
	if err != nil {
		return nil, err
	}
	o := &orders{file: file}
	return o, o.set(0, false, 0)
}

// set makes every fsync take longer, or fail, and moves the wall clock. A nil
// orders has nobody to obey it.
func (o *orders) set(syncs time.Duration, failing bool, skew time.Duration) error {
	if o == nil {
		return nil
	}
	text := binary.NativeEndian.AppendUint64(nil, uint64(syncs.Microseconds()))
	fails := uint64(0)
	if failing {
		fails = 1
	}
	text = binary.NativeEndian.AppendUint64(text, fails)
	text = binary.NativeEndian.AppendUint64(text, uint64(skew/time.Second))
	text = binary.NativeEndian.AppendUint64(text, ordersMark)
	_, err := o.file.WriteAt(text, 0)
	return err
}

// skewed says whether a clock is moved.
func (o *orders) skewed() bool {
	var skew [8]byte
	if o == nil {
		return false
	}
	_, err := o.file.ReadAt(skew[:], 16)
	return err == nil && skew != [8]byte{}
}

func (o *orders) close() {
	if o != nil {
		_ = o.file.Close()
	}
}

// compile makes the library with the machine's C compiler.
func compile(ctx context.Context, dir string) (library string, err error) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return "", fmt.Errorf("no C compiler for the library that makes fsync slow: %w", err)
	}
	source, library := filepath.Join(dir, "broken.c"), filepath.Join(dir, "broken.so")
	if err := os.WriteFile(source, brokenSource, 0o600); err != nil {
		return "", err
	}
	said, err := exec.CommandContext(ctx, compiler, "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cc: %w: %s", err, said)
	}
	return library, os.Chmod(library, 0o755) // the server's account loads it
}
