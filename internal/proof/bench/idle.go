package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// idleJobs is how many active jobs an idle installation has, none of them due
// within the hour.
const idleJobs = 10_000

// calmDown is how long processes run before an idle installation is measured:
// connections, caches and the first turn of every pass are no part of it.
const calmDown = 15 * time.Second

// idleCost is what an installation takes in which nothing is due.
type idleCost struct {
	cores      map[string]float64            // processors, by program
	statements map[string]map[string]float64 // a second, by program and statement
}

// idle measures an installation in which nothing is due: the processors that each
// program takes, and the statements that the database gets.
func idle(ctx context.Context, s *stack) (rows []row, err error) {
	admin, err := newSetup(ctx, s.postgres.URL("product", "postgres"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, admin.close(context.WithoutCancel(ctx))) }()
	s.say("%d jobs that are not due", idleJobs)
	if err := s.idle(ctx, idleJobs); err != nil {
		return nil, err
	}
	if err := admin.settle(ctx); err != nil {
		return nil, err
	}
	for _, backend := range []string{withRedis, withoutRedis} {
		s.say("idle for %d s, QUEUE_BACKEND=%s", s.Idle, backend)
		one, err := s.idleWith(ctx, admin, backend)
		if err != nil {
			return rows, err
		}
		rows = append(rows, one)
	}
	return rows, nil
}

func (s *stack) idleWith(ctx context.Context, admin *setup, backend string) (r row, err error) {
	stop, err := s.startAll(ctx, backend)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return row{}, err
	}
	if _, _, err := s.startAPI(ctx, backend); err != nil {
		return row{}, err
	}
	from, err := s.readAt(ctx, clock.Now().Add(calmDown))
	if err != nil {
		return row{}, err
	}
	lasts := time.Duration(s.Idle) * time.Second
	to, err := s.readAt(ctx, from.at.Add(lasts))
	if err != nil {
		return row{}, err
	}
	cost := idleCost{cores: map[string]float64{}}
	for name, u := range to.usages {
		cost.cores[name] = (u.cpu - from.usages[name].cpu) / float64(to.at.Sub(from.at).Microseconds())
	}
	// Apart from that minute, because writing the log costs PostgreSQL something.
	cost.statements, err = s.countStatements(ctx, admin, lasts)
	return row{what: "QUEUE_BACKEND=" + backend, idle: &cost, others: others(from, to)}, err
}

// countStatements has PostgreSQL log every statement for so long, and counts them
// by program and name, a second.
func (s *stack) countStatements(ctx context.Context, admin *setup, lasts time.Duration) (found map[string]map[string]float64, err error) {
	path := filepath.Join(s.dir, "stores", "postgres.log")
	before, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find the log of PostgreSQL: %w", err)
	}
	defer func() { err = errors.Join(err, admin.logStatements(context.WithoutCancel(ctx), false)) }()
	if err := admin.logStatements(ctx, true); err != nil {
		return nil, err
	}
	mark := clock.Start()
	if err := until(ctx, clock.Now().Add(lasts)); err != nil {
		return nil, err
	}
	took := mark.Elapsed()
	log, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the log of PostgreSQL: %w", err)
	}
	found = statementsIn(log[min(before.Size(), int64(len(log))):])
	for _, names := range found {
		for name := range names {
			names[name] /= took.Seconds()
		}
	}
	return found, nil
}

// loggedStatement is how a statement stands in the log, with the prefix of
// logStatements: the program, and the statement.
var loggedStatement = regexp.MustCompile(`^scheduler-(\S+) LOG:  (?:execute [^:]*|statement): (.*)`)

// statementsIn counts the statements in a log, by program and name. One that has no
// name counts under the word that it begins with.
func statementsIn(log []byte) map[string]map[string]float64 {
	found := map[string]map[string]float64{}
	for line := range bytes.Lines(log) {
		parts := loggedStatement.FindSubmatch(line)
		if parts == nil || string(parts[1]) == "bench" {
			continue
		}
		program, text := string(parts[1]), string(parts[2])
		name, _, _ := strings.Cut(strings.TrimPrefix(text, "-- name: "), " ")
		if found[program] == nil {
			found[program] = map[string]float64{}
		}
		found[program][name]++
	}
	return found
}

// idlePrograms are the columns of the table.
func idlePrograms() []string { return slices.Concat(groups(), []string{apiName}) }

// printIdle writes the table of idle installations.
func printIdle(out io.Writer, machine string, c Config, rows []row) {
	defaults := "the settings of `make run`"
	if c.Stock {
		defaults = "its own defaults"
	}
	fmt.Fprintf(out, "%d jobs, none of them due within the hour, with one API process, %d promoter(s) and %d worker(s), for %d s; PostgreSQL with %s; %s.\n\n",
		idleJobs, c.Promoters, c.Workers, c.Idle, defaults, machine)
	fmt.Fprintln(out, "| what | CPU: PostgreSQL / Redis / promoter / worker / API (% of a core) | statements a second | others had |")
	fmt.Fprintln(out, "| --- | --- | --- | --- |")
	var most []string
	for _, r := range rows {
		if r.idle == nil {
			continue
		}
		var cells []string
		for _, name := range idlePrograms() {
			cells = append(cells, fmt.Sprintf("%.2f", 100*r.idle.cores[name]))
		}
		total, names := r.idle.total()
		fmt.Fprintf(out, "| %s | %s | %.1f | %s |\n", r.what, strings.Join(cells, " / "), total, optional("%.0f %%", 100*r.others))
		most = append(most, fmt.Sprintf("- %s, statements a second: %s", r.what, names))
	}
	fmt.Fprintf(out, "\n%s\n", strings.Join(most, "\n"))
}

// total is how many statements the database gets a second, and the names of most of
// them.
func (c idleCost) total() (all float64, most string) {
	rates := map[string]float64{}
	for program, names := range c.statements {
		for name, rate := range names {
			all += rate
			rates[program+" "+name] += rate
		}
	}
	names := slices.SortedFunc(maps.Keys(rates), func(a, b string) int { return cmp.Or(cmp.Compare(rates[b], rates[a]), strings.Compare(a, b)) })
	var parts []string
	for _, name := range names[:min(len(names), 16)] {
		parts = append(parts, fmt.Sprintf("%s %.2f", name, rates[name]))
	}
	return all, strings.Join(parts, ", ")
}
