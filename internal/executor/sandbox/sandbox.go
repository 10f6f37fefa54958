// Package sandbox runs a program, or a Go function of this binary, in a process
// that may do little.
//
// It owns how such a process is started: this binary starts again
// (/proc/self/exe), restricts itself, and then becomes the program or calls the
// function. It owns the restrictions: limits of the kernel on memory, CPU time,
// processes, file size and open files; Landlock on files, the network and
// signals; no new privileges; a session of its own; no inherited environment and
// no inherited files; and an end with the process that started it. It refuses
// to know what runs and why.
//
// A process for a program becomes it before main. Main stands first in every main, and in
// TestMain of every package that starts processes for functions:
//
//	func main() {
//		if code, done := sandbox.Main(os.Args, entries); done {
//			os.Exit(code)
//		}
//		…
package sandbox

import (
	"os"
	"time"
)

// Entry is a Go function that runs in a restricted process and returns its exit
// code. It has os.Stdin, os.Stdout and os.Stderr; extra are the files of
// Spec.Files.
type Entry func(extra []*os.File) int

// Spec is a process to start.
type Spec struct {
	// Entry names a function of Main. Without it the process becomes the program
	// at Path (absolute) with Args after its name.
	Entry string
	Path  string
	Args  []string
	// Env is the whole environment.
	Env []string
	// Dir is the working directory; the root directory without it.
	Dir string
	// Stdin, Stdout and Stderr are the null device where they are nil. Files are
	// the descriptors from 3 on. They stay the caller's to close.
	Stdin, Stdout, Stderr *os.File
	Files                 []*os.File
	// Read and Write are the files and directories, with all below them, that the
	// process may read and execute, and may also change. Beside them it has the
	// devices null, zero and random. Where the kernel has Landlock there are no
	// others. Paths that do not exist are passed over.
	Read, Write []string
	// Network lets the process reach the network.
	Network bool
	// Unfenced is for an entry that starts other restricted processes: Landlock takes
	// nothing from it.
	Unfenced bool
	// Outlives is for an entry that notices itself when its starter is gone, and has
	// something to do then. Every other process is killed.
	Outlives bool
	Limits   Limits
	// Wrap is a program with arguments that starts this binary as its own last
	// arguments say, such as bubblewrap; only for an entry. WrapFiles are its own
	// descriptors, behind Files: the entry does not get them.
	Wrap      []string
	WrapFiles []*os.File
	// Account is the number of the user and the group that the process runs as; 0
	// is ours.
	Account int
}

// Limits bound each process, except where they say otherwise; zero is no limit.
type Limits struct {
	// Memory is in bytes: private memory that can be written. A Go program
	// reserves far more addresses than it uses, so addresses are bounded higher up.
	Memory uint64
	// CPU is rounded up to whole seconds.
	CPU time.Duration
	// Processes counts the threads of the account in its user namespace.
	Processes uint64
	FileSize  uint64 // bytes of one file
	OpenFiles uint64
}

// mark is the argument by which this binary knows that it starts inside. No
// program of ours has an argument of that name.
const mark = "--scheduler-sandbox"

// policy is what the process is told about itself.
type policy struct {
	Entry, Path string
	Args, Env   []string
	Read, Write []string
	Network     bool
	Unfenced    bool
	Limits      Limits
	Files       int
	// WithStarter says that a program ends with the thread that started this process. One that
	// is wrapped was started by what wraps it, which ends it.
	WithStarter bool
}

// Main calls the entry if this is a restricted process for one, and tells so by
// done. It returns at once in every other process. In a restricted process it
// returns when the entry has ended, with its exit code.
func Main(args []string, entries map[string]Entry) (code int, done bool) {
	if begun == nil || !isMarked(args) {
		return 0, false
	}
	code, err := begun.enter(entries)
	if err != nil {
		code = begun.fail(err)
	}
	return code, true
}

// firstFile is the descriptor of the first of Spec.Files.
const firstFile = 3
