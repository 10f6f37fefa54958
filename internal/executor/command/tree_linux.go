package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
)

// tree is a program and all that it started.
type tree struct {
	keeper *sandbox.Process
	line   *os.File
	hear   *json.Decoder
	group  *cgroup
	root   string // to be removed; empty is none
	ended  bool   // by us
	lost   bool   // the keeper was killed, or died, before it could end the tree
}

// start starts a program under a keeper. It returns a missingError where there is none.
func (b *box) start(ctx context.Context, o order, out *output) (_ *tree, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make a line to the keeper: %w", err)
	}
	if err := unix.SetNonblock(ends[1], false); err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "keeper"), os.NewFile(uintptr(ends[1]), "worker")
	t := &tree{line: ours, hear: json.NewDecoder(ours)}
	defer func() {
		if err != nil {
			t.release()
		}
	}()
	spec := sandbox.Spec{
		Entry: EntryName, Unfenced: true, Env: []string{"GOMAXPROCS=2", "GOMEMLIMIT=32MiB", "PATH=" + searchPath},
		Stdout: out.outEnd, Stderr: out.errEnd, Files: []*os.File{theirs},
	}
	if b.bwrap != "" {
		b.wrap(&spec, &o)
	} else if err := b.prepare(&spec, &o, t); err != nil {
		_ = theirs.Close()
		return nil, err
	}
	if err := b.launch(ctx, t, spec, o); err != nil {
		return nil, err
	}
	out.read()
	return t, nil
}

// launch starts the keeper, puts it into its cgroup and has it start the program. The
// keeper's end of the line is then the keeper's alone, so that its end is heard.
func (b *box) launch(ctx context.Context, t *tree, spec sandbox.Spec, o order) (err error) {
	theirs := spec.Files[0]
	about, infoEnd, err := os.Pipe()
	if err != nil {
		return errors.Join(fmt.Errorf("make a pipe: %w", err), theirs.Close())
	}
	defer about.Close()
	if b.bwrap != "" {
		spec.Wrap = append(spec.Wrap, "--info-fd", strconv.Itoa(firstExtra+len(spec.Files)), "--")
		spec.WrapFiles = []*os.File{infoEnd}
	}
	t.keeper, err = sandbox.Start(ctx, spec)
	_ = infoEnd.Close()
	_ = theirs.Close()
	if err != nil {
		return err
	}
	kill := context.AfterFunc(ctx, t.keeper.Kill)
	defer kill()
	if b.cgroups != nil {
		pid := t.keeper.PID()
		if b.bwrap != "" {
			if pid, err = childPID(about); err != nil {
				return err
			}
		}
		if t.group, err = b.cgroups.add(pid, o.Limits); err != nil {
			return err
		}
	}
	if !kill() { // it is dead, or dies now, and has no program yet
		return ctx.Err()
	}
	if err := json.NewEncoder(t.line).Encode(o); err != nil {
		return fmt.Errorf("tell the keeper its order: %w", err)
	}
	defer t.killStuck(ctx)()
	var first news
	if err := t.hear.Decode(&first); err != nil {
		return fmt.Errorf("hear from the keeper: %w", err)
	}
	switch {
	case first.Missing != "":
		return &missingError{first.Missing}
	case first.Problem != "":
		return errors.New(first.Problem)
	}
	return nil
}

// killStuck kills a keeper that was told its order and does not answer, once ctx has ended and
// the keeper had its time, until the returned function is called. It is not killed at once: the program
// may have begun, and only the keeper ends all of it.
func (t *tree) killStuck(ctx context.Context) (answered func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		if passes(politeness+haste, over) {
			t.keeper.Kill()
		}
	})
	return func() {
		stop()
		close(over)
	}
}

const firstExtra = 3

// childPID reads the id of the keeper from what bubblewrap writes about it.
func childPID(about io.Reader) (int, error) {
	var found struct {
		PID int `json:"child-pid"`
	}
	if err := json.NewDecoder(about).Decode(&found); err != nil {
		return 0, fmt.Errorf("read what bubblewrap started: %w", err)
	}
	return found.PID, nil
}

// wait waits for the end of the tree and of its keeper, and removes what was made for
// it. When ctx ends, it ends the tree.
func (t *tree) wait(ctx context.Context) ending {
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		t.stopWith(ctx, over)
	}()
	var last news
	err := t.hear.Decode(&last)
	<-t.keeper.Done()
	close(over)
	<-stopped
	end := ending{Problem: "the program was lost with its keeper"}
	t.lost = err != nil || last.Ended == nil
	if !t.lost {
		end = *last.Ended
	} else if t.group != nil {
		t.group.kill()
	}
	if t.group != nil {
		t.group.measure(&end)
	}
	if end.OutOfMemory && end.Problem != "" {
		end.Problem, end.Signal = "", "SIGKILL" // the keeper went with the program
	}
	end.Ended = t.ended
	t.release()
	return end
}

// stopWith ends the tree when ctx ends: politely, then by its keeper, then with its
// keeper. It returns when that is done, or when over is closed.
func (t *tree) stopWith(ctx context.Context, over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-ctx.Done():
	}
	t.ended = true
	say := json.NewEncoder(t.line)
	_ = say.Encode(stop{Signal: int(syscall.SIGTERM)})
	if passes(politeness, over) {
		_ = say.Encode(stop{Signal: int(syscall.SIGKILL)})
		if passes(haste, over) {
			t.keeper.Kill()
		}
	}
}

// passes waits, and tells whether the time passed before over was closed.
func passes(d time.Duration, over <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-over:
		return false
	case <-timer.C:
		return true
	}
}

// release removes what was made for the tree, which is gone or never began.
func (t *tree) release() {
	_ = t.line.Close()
	if t.keeper != nil {
		t.keeper.Kill()
		<-t.keeper.Done()
	}
	if t.group != nil {
		t.group.remove()
	}
	if t.root != "" {
		removeAll(t.root)
	}
}

// removeAll removes a directory, also one that holds directories which their owner
// closed to everybody.
func removeAll(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = os.Chmod(dir, 0o700)
	root, err := os.OpenRoot(dir) // no link that a program left leads out of it
	if err != nil {
		return
	}
	_ = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = root.Chmod(path, 0o700) // before it is read
		}
		return nil
	})
	_ = root.Close() // nothing was written by it
	_ = os.RemoveAll(dir)
}
