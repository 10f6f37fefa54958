// Command worker runs executions.
// Its configuration is in the environment: `worker --help` lists it.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/scheduler-service/scheduler/cmd/internal/program"
	"github.com/scheduler-service/scheduler/internal/app"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
)

func main() {
	if code, done := sandbox.Main(os.Args, app.Entries()); done {
		os.Exit(code)
	}
	os.Exit(program.Program[config.Worker]{
		Name: "worker", About: "runs executions",
		Load: config.Load[config.Worker], Dump: config.Dump[config.Worker],
		Run: func(ctx context.Context, c config.Worker, log *slog.Logger, _ []string) error {
			return app.Worker(ctx, c, log, nil)
		},
	}.Main(os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv))
}
