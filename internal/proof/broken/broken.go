// Package broken makes a PostgreSQL wait for its disk, or fail with it, and a clock wrong,
// while it runs and as a harness orders.
//
// It owns a library that the server loads before all others, and the file by which the harness
// tells it. It refuses to decide when anything breaks. The library takes a C compiler, and
// Linux.
package broken

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

// source is the library that a PostgreSQL loads before all others.
//
//go:embed library/broken.c
var source []byte

// Orders tell the library of one PostgreSQL, or the clock of one of our
// processes, how to misbehave. They lie in a file, so that they hold at once
// and for all of its processes.
type Orders struct{ file *os.File }

// mark is the fourth number of the file, by which a process knows it.
const mark = 0x63684f53

// NewOrders makes the file, in which nothing is ordered yet.
func NewOrders(path string) (*Orders, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644) // the server's account reads it
	if err != nil {
		return nil, err
	}
	o := &Orders{file: file}
	return o, o.Set(0, false, 0)
}

// Env is the environment of a server that loads the library and obeys.
func (o *Orders) Env(library string) []string {
	return []string{"LD_PRELOAD=" + library, "CHAOS_ORDERS=" + o.file.Name()}
}

// File is the file, for a process that inherits it.
func (o *Orders) File() *os.File { return o.file }

// Set makes every fsync take longer, or fail, and moves the wall clock. A nil
// Orders has nobody to obey it.
func (o *Orders) Set(syncs time.Duration, failing bool, skew time.Duration) error {
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
	text = binary.NativeEndian.AppendUint64(text, mark)
	_, err := o.file.WriteAt(text, 0)
	return err
}

// Skewed says whether a clock is moved.
func (o *Orders) Skewed() bool {
	var skew [8]byte
	if o == nil {
		return false
	}
	_, err := o.file.ReadAt(skew[:], 16)
	return err == nil && skew != [8]byte{}
}

// Close closes the file; orders that were given stay.
func (o *Orders) Close() {
	if o != nil {
		_ = o.file.Close()
	}
}

// Compile makes the library in a directory, with the machine's C compiler.
func Compile(ctx context.Context, dir string) (library string, err error) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return "", fmt.Errorf("no C compiler for the library that makes fsync slow: %w", err)
	}
	text, library := filepath.Join(dir, "broken.c"), filepath.Join(dir, "broken.so")
	if err := os.WriteFile(text, source, 0o600); err != nil {
		return "", err
	}
	said, err := exec.CommandContext(ctx, compiler, "-O2", "-shared", "-fPIC", "-o", library, text, "-ldl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cc: %w: %s", err, said)
	}
	return library, os.Chmod(library, 0o755) // the server's account loads it
}
