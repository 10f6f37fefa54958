// Command migrate brings the schema of the database up to date and ends. Named after it, another task does its work instead:
// rotate-secrets puts what is sealed under the first of SECRETS_KEYS, verify-audit follows the audit log. Its configuration is in
// the environment; see the table in the README.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/scheduler-service/scheduler/internal/app"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := config.Load[config.Migrate](os.LookupEnv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	log := telemetry.NewLogger(os.Stderr, c.LogLevel)
	log.LogAttrs(ctx, slog.LevelInfo, "configuration", config.Dump(c)...)
	task := func(ctx context.Context, o app.Order) error { return app.Migrate(ctx, o.Config, o.Log) }
	order := app.Order{Config: c, Out: os.Stdout, Log: log}
	if len(os.Args) > 1 {
		var known bool
		if task, known = app.Tasks()[os.Args[1]]; !known {
			fmt.Fprintf(os.Stderr, "migrate: there is no task %q; without one the schema is brought up to date\n", os.Args[1])
			os.Exit(2)
		}
		order.Args = os.Args[2:]
	}
	if err := task(ctx, order); err != nil {
		log.ErrorContext(ctx, "migrate stopped", "error", err)
		os.Exit(1)
	}
}
