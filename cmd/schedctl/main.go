// Command schedctl works with jobs and their executions from a terminal.
// `schedctl --help` lists what it can do.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/schedctl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	config, err := os.UserConfigDir()
	if err != nil { // without a home there are no profiles
		config = "."
	}
	info, err := os.Stderr.Stat()
	exit := schedctl.Main(ctx, os.Args[1:], schedctl.Env{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Lookup: os.LookupEnv,
		Home: filepath.Join(config, "schedctl"), Zone: time.Local,
		Terminal: err == nil && info.Mode()&os.ModeCharDevice != 0,
	})
	stop()
	os.Exit(exit)
}
