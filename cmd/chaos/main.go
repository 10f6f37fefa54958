// Command chaos breaks a private installation on purpose and checks that what
// the product promises held. `go run ./cmd/chaos -help` lists its flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/scheduler-service/scheduler/internal/app"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
	"github.com/scheduler-service/scheduler/internal/proof/chaos"
)

func main() {
	// A worker starts itself anew to run scripts and commands.
	if code, done := sandbox.Main(os.Args, app.Entries()); done {
		os.Exit(code)
	}
	if code, ok := process(os.Args[1:]); ok {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := chaos.Parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		os.Exit(2) // the flags have said why
	}
	if code, done := chaos.EnterNamespace(ctx, c, os.Args[1:]); done {
		stop()
		os.Exit(code) // stop was called
	}
	if err := chaos.Run(ctx, c, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}
