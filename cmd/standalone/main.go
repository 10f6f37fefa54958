// Command standalone is the whole service in one process.
// Its configuration is in the environment: `standalone --help` lists it.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/scheduler-service/scheduler/cmd/internal/program"
	"github.com/scheduler-service/scheduler/internal/app"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
	"github.com/scheduler-service/scheduler/internal/rest"
)

func main() {
	if code, done := sandbox.Main(os.Args, app.Entries()); done {
		os.Exit(code)
	}
	os.Exit(program.Program[config.Standalone]{
		Name: "standalone", About: "is the whole service in one process",
		Load: config.Load[config.Standalone], Dump: config.Dump[config.Standalone],
		Run: func(ctx context.Context, c config.Standalone, log *slog.Logger, _ []string) error {
			return app.Standalone(ctx, c, log, rest.Front(), os.Stdout)
		},
	}.Main(os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv))
}
