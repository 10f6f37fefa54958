// Command standalone is the whole service in one process. Its configuration is in the environment; see the
// table in the README.
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
	c, err := config.Load[config.Standalone](os.LookupEnv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	log := telemetry.NewLogger(os.Stderr, c.API.LogLevel)
	log.LogAttrs(ctx, slog.LevelInfo, "configuration", config.Dump(c)...)
	if err := app.Standalone(ctx, c, log, os.Stdout); err != nil {
		log.ErrorContext(ctx, "standalone stopped", "error", err)
		os.Exit(1)
	}
}
