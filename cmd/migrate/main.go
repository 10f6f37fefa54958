// Command migrate brings the schema of the database up to date and ends, or does the task that follows its name.
// Its configuration is in the environment: `migrate --help` lists it.
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
	os.Exit(program.Program[config.Migrate]{
		Name: "migrate", About: "brings the schema of the database up to date and ends",
		Tasks: tasks(),
		Load:  config.Load[config.Migrate], Dump: config.Dump[config.Migrate],
		Run: func(ctx context.Context, c config.Migrate, log *slog.Logger, args []string) error {
			return app.Administer(ctx, app.Order{Config: c, Out: os.Stdout, Log: log}, args)
		},
	}.Main(os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv))
}

func tasks() (all []program.Task) {
	for _, t := range app.Tasks() {
		all = append(all, program.Task{Name: t.Name, Args: t.Args, About: t.About})
	}
	return all
}
