// Package seed fills a development installation that runs with jobs and finished
// executions, so that the API and the console can be tried and measured as they are after
// months of use. One job of each kind comes through the API, which checks it; the others
// are copies of it, and the database itself writes the history.
package seed

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Config says what to make, and where.
type Config struct {
	Data       string // DATA_DIR of the installation
	Jobs       int
	Executions int
	Days       int  // over which the executions are spread, up to now
	Hostile    bool // some names, tags, errors and outputs are those of an attacker
}

const maxDays = 360 // executions older than retention keeps would be removed at once

// Parse reads the flags. It prints what is wrong with them to output.
func Parse(args []string, output io.Writer) (Config, error) {
	var c Config
	set := flag.NewFlagSet("seed", flag.ContinueOnError)
	set.SetOutput(output)
	set.StringVar(&c.Data, "data", ".data", "DATA_DIR of the installation, which `make run` has started")
	set.IntVar(&c.Jobs, "jobs", 100_000, "jobs to make")
	set.IntVar(&c.Executions, "executions", 5_000_000, "finished executions to make")
	set.IntVar(&c.Days, "days", 90, "days up to now over which the executions are spread")
	set.BoolVar(&c.Hostile, "hostile", false, "give one job in fifty a name, tags, errors and output that an attacker would choose")
	if err := set.Parse(args); err != nil {
		return Config{}, err
	}
	if c.Jobs < len(kinds) || c.Executions < 0 || c.Days < 1 || c.Days > maxDays {
		err := fmt.Errorf("-jobs is at least %d, -executions at least 0, and -days between 1 and %d", len(kinds), maxDays)
		fmt.Fprintln(output, err)
		return Config{}, err
	}
	return c, nil
}

// Run makes them, and says on out how far it is.
func Run(ctx context.Context, c Config, out io.Writer) error {
	took := clock.Start()
	say := func(format string, args ...any) {
		fmt.Fprintf(out, "%6.1f s  "+format+"\n", append([]any{took.Elapsed().Seconds()}, args...)...)
	}
	i, err := readInstallation(c.Data)
	if err != nil {
		return err
	}
	s, engine, err := openStores(ctx, c.Data, say)
	if err != nil {
		return err
	}
	defer s.close()
	defer engine.Close()
	templates, err := i.createTemplates(ctx)
	if err != nil {
		return err
	}
	now := clock.Now()
	if err := s.copyJobs(ctx, newJobs(templates, c, now), c.Jobs-len(templates)); err != nil {
		return err
	}
	if c.Executions == 0 {
		say("%d jobs are there", c.Jobs)
		return nil
	}
	if err := s.writeHistory(ctx, history{templates: templates, from: now.AddDate(0, 0, -c.Days), to: now.Add(-time.Minute), n: c.Executions, hostile: c.Hostile}); err != nil {
		return err
	}
	say("counting them for the statistics")
	if err := s.rollUp(ctx, engine); err != nil {
		return err
	}
	say("%d jobs and %d executions are there; statistics know them", c.Jobs, c.Executions)
	return nil
}

// openStores opens the installation's database twice: as the superuser, and as the engine.
func openStores(ctx context.Context, dir string, say func(format string, args ...any)) (*store, *postgres.DB, error) {
	admin, err := devstack.RunningPostgres(dir)
	if err != nil {
		return nil, nil, err
	}
	database, err := url.Parse(admin)
	if err != nil {
		return nil, nil, fmt.Errorf("the address of the database: %w", err)
	}
	database.Path = "/scheduler" // this and the login are named so by the standalone program
	s, err := openStore(ctx, database.String(), say)
	if err != nil {
		return nil, nil, err
	}
	database.User = url.User("scheduler")
	engine, err := postgres.Open(ctx, postgres.Config{URL: database.String(), Role: postgres.Engine, Name: "scheduler-seed", MaxConns: 2})
	if err != nil {
		s.close()
	}
	return s, engine, err
}
