// Command api serves the REST API.
// Its configuration is in the environment: `api --help` lists it.
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
	os.Exit(program.Program[config.API]{
		Name: "api", About: "serves the REST API",
		Load: config.Load[config.API], Dump: config.Dump[config.API],
		Run: func(ctx context.Context, c config.API, log *slog.Logger, _ []string) error {
			return app.API(ctx, c, log, rest.Front(), nil)
		},
	}.Main(os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv))
}
