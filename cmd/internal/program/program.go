// Package program is what the mains have in common.
//
// It owns the command line of a process (--help, version, and nothing that it
// does not know), the order of configuration, log and run, and how signals end
// it: the first asks it to stop, the second ends it at once.
package program

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/version"
)

// The exit codes of every program.
const (
	done   = 0
	failed = 1
	misuse = 2 // wrong arguments, or a configuration that does not hold
)

// Program is one process; T is its configuration.
type Program[T interface {
	Level() slog.Level
	Format() string
}] struct {
	Name  string // as it is called
	About string // what it does, one sentence that begins with a verb
	Load  func(lookup func(name string) (string, bool)) (T, error)
	Dump  func(T) []slog.Attr // for the log; secrets are set or unset
	// Run does the work until ctx ends, and returns nil when it stopped as asked.
	// args are what follows the program's name, one of Tasks first.
	Run func(ctx context.Context, c T, log *slog.Logger, args []string) error
	// Tasks are what may follow the program's name; none for most programs.
	Tasks []Task
}

// Task is something that a program does instead of its ordinary work.
type Task struct{ Name, Args, About string }

// sampleNothing has the runtime note no allocation. It would note where one in 512 kB was made, because
// the router's middleware links net/http/pprof, and nobody can ask for that here. Tests call Main side
// by side.
var sampleNothing = sync.OnceFunc(func() { runtime.MemProfileRate = 0 })

// Main is the whole of a program; it answers its exit code.
func (p Program[T]) Main(args []string, out, problems io.Writer, lookup func(string) (string, bool)) int {
	sampleNothing()
	if code, answered := p.answer(args, out, problems); answered {
		return code
	}
	c, err := p.Load(lookup)
	if err != nil {
		fmt.Fprintln(problems, err)
		fmt.Fprintf(problems, "%s --help lists every variable.\n", p.Name)
		return misuse
	}
	level := new(slog.LevelVar) // LOG_LEVEL may change while the program runs
	level.Set(c.Level())
	log := telemetry.NewLogger(problems, level, forPeople(c.Format(), problems))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	said := make(chan struct{})
	unheard := context.AfterFunc(ctx, func() {
		stop() // from now on a signal has its usual effect: the end
		log.Info("stopping; a second signal ends "+p.Name+" at once", "process", p.Name)
		close(said)
	})
	defer unheard() // before stop, which ends ctx too: nobody asked to stop then
	defer profiled(p.Name)()
	log.Info("starting", "process", p.Name, "version", version.String())
	log.LogAttrs(ctx, slog.LevelDebug, "configuration", p.Dump(c)...)
	if err := p.Run(ctx, c, log, args); err != nil {
		log.Error(p.Name+" failed", "error", err)
		return failed
	}
	if ctx.Err() != nil {
		<-said
		log.Info("stopped", "process", p.Name)
	}
	return done
}

// forPeople reports whether log lines are text.
func forPeople(format string, w io.Writer) bool {
	if format != "auto" {
		return format == "text"
	}
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	about, err := file.Stat()
	return err == nil && about.Mode()&os.ModeCharDevice != 0
}

// answer is for arguments that need no configuration: questions, and mistakes.
func (p Program[T]) answer(args []string, out, problems io.Writer) (code int, answered bool) {
	if len(args) == 0 {
		return done, false
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		p.help(out)
		return done, true
	case "version", "-version", "--version":
		fmt.Fprintln(out, p.Name, version.String())
		return done, true
	}
	for _, t := range p.Tasks {
		if t.Name == args[0] {
			return done, false
		}
	}
	fmt.Fprintf(problems, "%s: unknown argument %q; %s --help says what it takes.\n", p.Name, args[0], p.Name)
	return misuse, true
}

func (p Program[T]) help(out io.Writer) {
	fmt.Fprintf(out, "%s %s.\n\nUsage:\n  %s\n", p.Name, p.About, p.Name)
	for _, t := range p.Tasks {
		fmt.Fprintf(out, "  %-44s %s\n", strings.TrimSpace(p.Name+" "+t.Name+" "+t.Args), t.About)
	}
	fmt.Fprintf(out, "  %s version\n\nVariables of the environment:\n", p.Name)
	for _, v := range config.Variables() {
		if v.ReadBy(p.Name) {
			fmt.Fprintf(out, "  %s (%s; default: %s)\n      %s\n", v.Name, v.Bounds, v.Default, v.Meaning)
		}
	}
}
