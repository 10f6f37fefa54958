// Command promoter turns due jobs into executions and keeps the tables right.
// Its configuration is in the environment: `promoter --help` lists it.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/scheduler-service/scheduler/cmd/internal/program"
	"github.com/scheduler-service/scheduler/internal/app"
	"github.com/scheduler-service/scheduler/internal/config"
)

func main() {
	os.Exit(program.Program[config.Promoter]{
		Name: "promoter", About: "turns due jobs into executions and keeps the tables right",
		Load: config.Load[config.Promoter], Dump: config.Dump[config.Promoter],
		Run: func(ctx context.Context, c config.Promoter, log *slog.Logger, _ []string) error {
			return app.Promoter(ctx, c, log)
		},
	}.Main(os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv))
}
