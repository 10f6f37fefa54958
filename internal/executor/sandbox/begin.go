package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// begun is what this process was told when it started, if it is a restricted one.
var begun *beginning

// A process that becomes a program does so here, before most other packages of this binary begin: Go
// begins a package as soon as all that it imports has begun, the first by its path first, and this one
// imports little. The others took a worker 7 ms, and one that has the API, too, 21 ms, for each
// program that it ran.
func init() {
	if !isMarked(os.Args) {
		return
	}
	var err error
	if begun, err = hear(os.Args[2]); err == nil {
		if begun.policy.Entry != "" {
			return // main calls the entry
		}
		err = begun.become()
	}
	os.Exit(begun.fail(err))
}

// isMarked says whether these are the arguments of a restricted process.
func isMarked(args []string) bool { return len(args) == 3 && args[1] == mark }

// beginning is a restricted process that knows what it is for.
type beginning struct {
	line   *os.File // to the starter
	policy policy
}

// hear reads the policy from a descriptor. It returns a beginning with an error, too, to fail with.
func hear(descriptor string) (*beginning, error) {
	fd, err := strconv.Atoi(descriptor)
	if err != nil {
		fd = -1 // a person typed it
	}
	b := &beginning{line: os.NewFile(uintptr(fd), "starter")}
	if err := json.NewDecoder(b.line).Decode(&b.policy); err != nil {
		return b, fmt.Errorf("read the policy: %w", err)
	}
	return b, nil
}

// fail tells the starter why the process could not begin, and returns its exit code.
func (b *beginning) fail(err error) int {
	_ = json.NewEncoder(b.line).Encode(answer{Problem: err.Error()})
	return failedInside
}

// become turns the process into the program, restricted. It returns only an error.
func (b *beginning) become() error {
	if err := restrict(b.policy); err != nil {
		return err
	}
	return become(b.policy, b.line.Fd())
}

// enter calls the entry, and says before when the restrictions are in force.
func (b *beginning) enter(entries map[string]Entry) (int, error) {
	entry, known := entries[b.policy.Entry]
	if !known {
		return 0, fmt.Errorf("this program has no entry %q", b.policy.Entry)
	}
	if err := restrict(b.policy); err != nil {
		return 0, err
	}
	if err := enter(b.policy); err != nil {
		return 0, err
	}
	err := json.NewEncoder(b.line).Encode(answer{})
	if err = errors.Join(err, b.line.Close()); err != nil {
		return 0, fmt.Errorf("say that the process began: %w", err)
	}
	extra := make([]*os.File, b.policy.Files)
	for i := range extra {
		extra[i] = os.NewFile(uintptr(firstFile+i), "extra "+strconv.Itoa(i))
	}
	return entry(extra), nil
}

// answer is what the starter hears. A process that becomes a program says nothing:
// the kernel closes the line.
type answer struct{ Problem string }

// failedInside is the exit code of a process that could not begin. Start returns
// the error; nobody sees the code.
const failedInside = 125
