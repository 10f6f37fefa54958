package chaos

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// Config says how long to disturb what.
type Config struct {
	Seed        uint64        // of the faults and the load
	Duration    time.Duration // of the load
	Quiet       time.Duration // of it, before the first fault
	Calm        time.Duration // of it, after the last one
	Drain       time.Duration // within which everything must be finished after the load
	APIs        int           // processes of each kind
	Promoters   int
	Workers     int
	Jobs        int           // with a schedule, from the start
	Backend     string        // QUEUE_BACKEND of all processes; without Redis for "postgres"
	Tenants     int           // 2 and more; the last one has a burst
	Burst       int           // executions that the last tenant asks for at once
	Slots       int           // of each worker
	Storm       int           // jobs of the last tenant that a misfire storm is made of
	Backlog     int           // executions of the last tenant that wait when their job is stopped
	Readers     int           // clients of the last tenant that read what matches nothing
	Short       bool          // shorter leases and faults, for a test; and none that need more than the servers' programs
	InNamespace bool          // we are in a mount namespace of our own, so disks may be mounted
	JSON        string        // file for the report, for tools; empty: none
	Out         string        // page for the table of Reports, or of the upgrade; empty: none
	Reports     []string      // reports of earlier runs: merge them, and break nothing
	Faults      bool          // false: the same load undisturbed
	Only        []string      // kinds of faults; empty: all
	First       []string      // kinds of faults that come once at the beginning, whatever is drawn
	Apart       time.Duration // between the end of a fault and the next one; zero: several at once
	Earlier     string        // commit whose processes are replaced under load, instead of faults; empty: none
	Back        bool          // and are put back in the same run, while the schema stays
	Stock       bool          // PostgreSQL has its own defaults
	Drops       bool          // some targets break the connection off instead of answering
}

// Parse reads the flags. It prints what is wrong with them to output.
func Parse(args []string, output io.Writer) (Config, error) {
	c := Config{APIs: 2, Slots: 25}
	set := flag.NewFlagSet("chaos", flag.ContinueOnError)
	set.SetOutput(output)
	set.Uint64Var(&c.Seed, "seed", uint64(clock.Now().UnixNano()%1_000_000), "seed of faults and load")
	set.DurationVar(&c.Duration, "duration", time.Minute, "how long there is load")
	set.DurationVar(&c.Drain, "drain", 3*time.Minute, "within which everything must be finished after the load; a call that a circuit breaker holds back follows within three minutes")
	set.IntVar(&c.Jobs, "jobs", 40, "jobs with a schedule at the start")
	set.BoolVar(&c.Faults, "faults", true, "disturb it; without, the same load in peace")
	set.StringVar(&c.Backend, "backend", "auto", "QUEUE_BACKEND of all processes: auto, redis, or postgres, which starts no Redis")
	set.IntVar(&c.Tenants, "tenants", 3, "tenants; the last one has a burst")
	set.IntVar(&c.Burst, "burst", 500, "executions that the last tenant asks for at once")
	set.IntVar(&c.Workers, "workers", 4, "worker processes")
	set.IntVar(&c.Promoters, "promoters", 3, "promoter processes")
	set.IntVar(&c.Storm, "storm", 40, "per-second fire_all jobs that a misfire storm resumes")
	set.IntVar(&c.Backlog, "backlog", 10_000, "executions that wait when their job is stopped or deleted")
	set.IntVar(&c.Readers, "readers", 40, "clients that read what matches nothing")
	set.StringVar(&c.JSON, "json", "", "write the report to this file too, for tools")
	set.StringVar(&c.Out, "out", "", "write the figures into this page, between their marks: those of an upgrade, or of the reports that are given as arguments")
	set.BoolVar(&c.InNamespace, "secluded", false, "set by the program itself as root: it has a mount namespace of its own")
	only := set.String("only", "", "only these kinds of faults, such as \"kill worker,backlog\"")
	set.DurationVar(&c.Apart, "apart", 0, "one fault at a time, every kind in turn, so long apart; 0: several at once")
	set.BoolVar(&c.Drops, "drops", false, "some targets break the connection off instead of answering")
	set.BoolVar(&c.Stock, "stock", false, "leave PostgreSQL with its own defaults, as a server that nobody has tuned")
	set.StringVar(&c.Earlier, "upgrade-from", "", "instead of faults: begin with the processes of this commit, migrate, and replace them one by one; needs git")
	set.BoolVar(&c.Back, "back", false, "with -upgrade-from: then put the processes of that commit back, one by one, on the schema as it is")
	if err := set.Parse(args); err != nil {
		return Config{}, err
	}
	c.Reports = set.Args()
	if *only != "" {
		c.Only = strings.Split(*only, ",")
	}
	c.Quiet, c.Calm = 5*time.Second, 6*time.Second
	c.Faults = c.Faults && c.Earlier == ""
	err := c.check()
	if err != nil {
		fmt.Fprintln(output, err)
	}
	return c, err
}

func (c Config) check() error {
	known := kinds()
	names := make([]string, 0, len(known))
	for _, k := range known {
		names = append(names, k.name)
	}
	for _, name := range c.Only {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-only: there is no fault %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	if !slices.Contains([]string{"auto", "redis", "postgres"}, c.Backend) {
		return fmt.Errorf("-backend is %q, not auto, redis or postgres", c.Backend)
	}
	if c.Workers < 1 || c.Promoters < 1 || c.Storm < 0 || c.Backlog < 0 || c.Readers < 0 {
		return errors.New("-workers and -promoters must be 1 or more, -storm, -backlog and -readers 0 or more")
	}
	if c.Duration < 20*time.Second || c.Jobs < 1 || c.Tenants < 2 || c.Burst < 0 || c.Apart < 0 {
		return errors.New("-duration must be 20s or more, -jobs 1, -tenants 2, and -burst and -apart 0 or more")
	}
	if c.Back && c.Earlier == "" {
		return errors.New("-back needs -upgrade-from: it goes back to the processes of that commit")
	}
	return nil
}

// greedy says whether the jobs are made that greedy kinds of faults are about.
func (c Config) greedy() bool {
	if len(c.Only) == 0 {
		return c.Faults
	}
	return slices.ContainsFunc(greedyKinds(), func(k kind) bool { return slices.Contains(c.Only, k.name) })
}
