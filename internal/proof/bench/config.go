package bench

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Config says what to measure and how long.
type Config struct {
	Rates   []int // jobs due each second, together
	Spread  []int // jobs due each second, spread over it
	Seconds int   // of measured load at each rate
	Slots   int   // of each worker
	Workers int   // worker processes
	Fleets  []int // sizes of the fleets that drain a backlog
	// PromoterFleets are sizes of the fleets that promote one load; all other loads have
	// the first of them, which is Promoters.
	PromoterFleets []int
	Promoters      int

	Burst      int      // jobs due at one time, and half of what is drained
	History    int      // executions stored while the API is measured
	Jobs       int      // jobs stored meanwhile
	Before     string   // directory with an API program of another build, measured in turn with this one; empty: none
	Repeats    int      // of what is repeated; the median counts
	Only       []string // the measurements to make; empty means all
	Bounded    bool     // instead of all that: what a quiet tenant gets beside each adversary
	Against    []string // the adversaries of that; empty means all
	Backend    string   // QUEUE_BACKEND of that
	Stock      bool     // PostgreSQL has its own defaults
	Tenants    int      // of whom the jobs are that are due
	Commits    int      // ms that each commit waits
	Profiles   string   // directory for a profile of each process, which is built to write one; empty: none
	Statements bool     // count what each statement costs
	Out        string   // file for the table beside the output; empty means none
	HTTP       bool     // jobs that are due call a target; otherwise they are no-op functions
	Takes      int      // ms that the target takes
	Idle       int      // seconds in which nothing is due
}

// Parse reads the flags. It prints what is wrong with them to output.
func Parse(args []string, output io.Writer) (Config, error) {
	var c Config
	var l lists
	var quick bool
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(output)
	set.StringVar(&l.rates, "rates", "100,500,1000,2000,4000,8000", "jobs due each second, all at its beginning, one run for each")
	set.StringVar(&l.spread, "spread", "500,10,1000,4000,5000", "jobs due each second, spread over it, one run for each; the first of them also without Redis")
	set.IntVar(&c.Seconds, "seconds", 8, "seconds of load measured at each rate")
	set.IntVar(&c.Slots, "slots", 1000, "executions that each worker runs at once")
	set.IntVar(&c.Workers, "workers", 1, "worker processes")
	set.StringVar(&l.promoters, "promoters", "1,4", fmt.Sprintf("promoters of the fleets that promote %d due each second, one run for each; the first of them also everywhere else", promotedRate))
	set.StringVar(&l.fleets, "fleets", "1,4,16", "workers of the fleets that drain a backlog, one run for each")
	set.IntVar(&c.Burst, "burst", 10_000, "jobs due at one time; twice as many executions are drained")
	set.IntVar(&c.History, "history", 5_000_000, "executions stored while the API is measured")
	set.IntVar(&c.Idle, "idle", 60, "seconds that an idle installation is measured, and as long again for its statements")
	set.IntVar(&c.Jobs, "jobs", 100_000, "jobs stored while the API is measured")
	set.StringVar(&c.Before, "before", "", "directory with the API program of another build, which apiload measures in turn with this one")
	set.IntVar(&c.Repeats, "repeats", 3, "how often limits and drain are measured; the median counts")
	set.StringVar(&l.only, "only", "", "measure only these, of "+strings.Join(names(), ","))
	set.BoolVar(&c.Bounded, "bounded", false, "instead of all that: what a quiet tenant gets beside each adversary, for -seconds; exceeding a limit is an error")
	set.StringVar(&l.against, "against", "", "with -bounded, only these, of "+strings.Join(adversaryNames(), ","))
	set.StringVar(&c.Backend, "backend", withRedis, "with -bounded, QUEUE_BACKEND of all processes")
	set.BoolVar(&c.Stock, "stock", false, "leave PostgreSQL with its own defaults, as a server that nobody has tuned")
	set.IntVar(&c.Tenants, "tenants", tenants, "tenants of whom the jobs are that are due each second, at one time, or waiting")
	set.IntVar(&c.Commits, "commits", 0, fmt.Sprintf("milliseconds that each commit waits, as on a slow disk or for a standby: up to %d by PostgreSQL's commit_delay; from there to %d each fsync waits, by a library that takes a C compiler", maxDelay, maxCommits))
	set.BoolVar(&c.Statements, "statements", false, "also say what each statement of PostgreSQL costs for each execution, where loads are steady, due at one time, or drained")
	set.BoolVar(&c.HTTP, "http", false, "jobs that are due each second, or at one time, are of type http and call a target; otherwise they are no-op functions")
	set.IntVar(&c.Takes, "takes", 0, "milliseconds until the target of jobs of type http answers")
	set.StringVar(&c.Profiles, "profiles", "", "directory into which each process writes where it spent its processor time; see make profile")
	set.StringVar(&c.Out, "out", "", "write the tables to this file too, between their marks where it has some, such as docs/reference/figures.md")
	set.BoolVar(&quick, "quick", false, "a look in half a minute: fewer rates, shorter, once")
	if err := set.Parse(args); err != nil {
		return Config{}, err
	}
	if quick {
		given := map[string]bool{}
		set.Visit(func(f *flag.Flag) { given[f.Name] = true })
		c, l = c.quick(given), l.quick(given)
	}
	if err := c.read(l); err != nil {
		fmt.Fprintln(output, err)
		return Config{}, err
	}
	return c, nil
}

// quick shortens the lists that were not given.
func (c Config) quick(given map[string]bool) Config {
	short := func(name string, value *int, to int) {
		if !given[name] {
			*value = to
		}
	}
	short("seconds", &c.Seconds, 3)
	short("burst", &c.Burst, 3000)
	short("history", &c.History, 100_000)
	short("idle", &c.Idle, 5)
	short("jobs", &c.Jobs, 10_000)
	short("repeats", &c.Repeats, 1)
	return c
}

// lists are flags that hold several values, as they were given.
type lists struct{ rates, spread, fleets, promoters, only, against string }

// quick shortens whatever was not given.
func (l lists) quick(given map[string]bool) lists {
	short := func(name string, value *string, to string) {
		if !given[name] {
			*value = to
		}
	}
	short("rates", &l.rates, "1000")
	short("spread", &l.spread, "1000")
	short("fleets", &l.fleets, "1,4")
	short("promoters", &l.promoters, "1")
	return l
}

func (c *Config) read(l lists) (err error) {
	for _, one := range []struct {
		flag, list string
		into       *[]int
	}{
		{"-rates", l.rates, &c.Rates},
		{"-spread", l.spread, &c.Spread},
		{"-fleets", l.fleets, &c.Fleets},
		{"-promoters", l.promoters, &c.PromoterFleets},
	} {
		if *one.into, err = numbers(one.list); err != nil {
			return fmt.Errorf("%s: %w", one.flag, err)
		}
	}
	if len(c.PromoterFleets) == 0 {
		return errors.New("-promoters must name one fleet or more")
	}
	c.Promoters = c.PromoterFleets[0]
	if l.only != "" {
		c.Only = strings.Split(l.only, ",")
	}
	if l.against != "" {
		c.Against = strings.Split(l.against, ",")
	}
	for _, name := range c.Only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("-only: there is no measurement %q; choose of %s", name, strings.Join(names(), ","))
		}
	}
	for _, name := range c.Against {
		if !slices.Contains(adversaryNames(), name) {
			return fmt.Errorf("-against: there is no adversary %q; choose of %s", name, strings.Join(adversaryNames(), ","))
		}
	}
	if c.Seconds < 1 || c.Slots < 1 || c.Workers < 1 || c.Burst < 1 || c.History < 1 || c.Jobs < tenants || c.Idle < 1 || c.Repeats < 1 ||
		c.Tenants < 1 || c.Tenants > tenants || c.Commits < 0 || c.Commits > maxCommits {
		return fmt.Errorf("-seconds, -slots, -workers, -burst, -history, -idle and -repeats must be 1 or more, -jobs %d, -tenants 1 to %d and -commits 0 to %d", tenants, tenants, maxCommits)
	}
	return nil
}

// numbers reads a list of rates, which may be empty.
func numbers(list string) ([]int, error) {
	var all []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		switch {
		case list == "":
			return nil, nil
		case err != nil || n < 1 || n > 100_000:
			return nil, fmt.Errorf("%q is not a whole number from 1 to 100000", text)
		}
		all = append(all, n)
	}
	return all, nil
}

func names() []string {
	var all []string
	for _, m := range measurements() {
		if !m.always {
			all = append(all, m.name)
		}
	}
	return all
}
