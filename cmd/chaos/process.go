package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/scheduler-service/scheduler/cmd/internal/program"
	"github.com/scheduler-service/scheduler/internal/app"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/proof/chaos"
	"github.com/scheduler-service/scheduler/internal/rest"
)

// process runs the API or a worker where the first argument names one: the
// harness starts itself so, because its processes know functions that the
// product's do not.
func process(args []string) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case "api":
		return program.Program[config.API]{
			Name: "api", About: "serves the REST API", Load: config.Load[config.API], Dump: config.Dump[config.API],
			Run: func(ctx context.Context, c config.API, log *slog.Logger, _ []string) error {
				return app.API(ctx, c, log, rest.Front(), chaos.Modules())
			},
		}.Main(args[1:], os.Stdout, os.Stderr, os.LookupEnv), true
	case "worker":
		return program.Program[config.Worker]{
			Name: "worker", About: "runs executions", Load: config.Load[config.Worker], Dump: config.Dump[config.Worker],
			Run: func(ctx context.Context, c config.Worker, log *slog.Logger, _ []string) error {
				return app.Worker(ctx, c, log, chaos.Modules())
			},
		}.Main(args[1:], os.Stdout, os.Stderr, os.LookupEnv), true
	}
	return 0, false
}
