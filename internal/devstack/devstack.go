// Package devstack starts a private PostgreSQL and a private Redis as child
// processes, so that the program and its tests run on a machine where nobody
// set up either.
//
// It owns finding their programs (and installing them where that is allowed),
// the account they run as when we are root, their settings, where their data
// and sockets lie, and their end: they stop when we stop, also when we are
// killed. It refuses what makes a server anyone else's: they listen on a unix
// socket in a directory that only we may enter, never on the network, which is
// also why they trust every connection. (A Redis inside this process, where no
// other is to be had, takes a loopback port and a password.) It never removes
// data that it was asked to keep, and it is not how production is run.
//
// The standalone program calls it, and the test packages pgtest and redistest.
package devstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// Options say where and how a server runs.
type Options struct {
	// Dir is the directory below which the server keeps its files. It is made
	// when it is not there. PostgreSQL and Redis may share one, two PostgreSQLs
	// may not. A throwaway server may leave it empty, which means the system's
	// temporary directory.
	Dir string
	// Log is told what is started, installed and noticed. Nil means silence.
	Log *slog.Logger
	// Durable keeps the data for the next start, and on disk as a database
	// should. Otherwise the server is a throwaway: it writes without waiting for
	// the disk and its data is removed by Stop.
	Durable bool
	// Confirm is asked before the system's package manager installs a missing
	// program. The sentence says what is missing and what is going to run. Nil
	// means yes.
	Confirm func(ctx context.Context, sentence string) bool
	// Stock gives a PostgreSQL its own defaults and nothing else but where it
	// listens, as a server has them that nobody has tuned.
	Stock bool
	// Settings of the server beside our own and stronger than they are, as
	// "name=value".
	Settings []string
	// Env is added to the environment of a PostgreSQL, as "NAME=value".
	Env []string

	on *machine // nil means this one
}

func (o Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

// Say is a Confirm for a program that nobody answers: it writes the sentence and
// goes on.
func Say(out io.Writer) func(ctx context.Context, sentence string) bool {
	return func(_ context.Context, sentence string) bool {
		_, err := fmt.Fprintln(out, sentence)
		return err == nil
	}
}

func (o Options) machine() *machine {
	if o.on == nil {
		return ours()
	}
	return o.on
}

// pollEvery is how often a condition is looked at that nothing announces: a
// server that gets ready, a lock that gets free.
const pollEvery = 5 * time.Millisecond

// errTooLong is what until returns when its limit has passed.
var errTooLong = errors.New("it took too long")

// errEnded is why a server is not ready and never will be.
var errEnded = errors.New("the server ended")

// until looks at a condition until it holds or fails, up to limit.
func until(ctx context.Context, limit time.Duration, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// hash is a short name for a text.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// lastLines is the end of what a program said, on one line.
func lastLines(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) > 5 {
		lines = lines[len(lines)-5:]
	}
	return strings.Join(lines, " | ")
}
