package chaos

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// Config says how long to disturb what.
type Config struct {
	Seed      uint64        // of the faults and the load
	Duration  time.Duration // of the load
	Quiet     time.Duration // of it, before the first fault
	Calm      time.Duration // of it, after the last one
	Drain     time.Duration // within which everything must be over after the load
	APIs      int           // processes of each kind
	Promoters int
	Workers   int
	Jobs      int    // with a schedule, from the start
	Short     bool   // shorter leases and faults, for a test
	Faults    bool   // false: the same load undisturbed
	Only      string // kind of fault, the only one; empty: all
	Drops     bool   // some targets break the connection off instead of answering
}

// Parse reads the flags. What is wrong with them it says on output.
func Parse(args []string, output io.Writer) (Config, error) {
	c := Config{APIs: 2, Promoters: 3, Workers: 4}
	set := flag.NewFlagSet("chaos", flag.ContinueOnError)
	set.SetOutput(output)
	set.Uint64Var(&c.Seed, "seed", uint64(clock.Now().UnixNano()%1_000_000), "seed of faults and load")
	set.DurationVar(&c.Duration, "duration", time.Minute, "how long there is load")
	set.DurationVar(&c.Drain, "drain", time.Minute, "within which everything must be over after the load")
	set.IntVar(&c.Jobs, "jobs", 40, "jobs with a schedule at the start")
	set.BoolVar(&c.Faults, "faults", true, "disturb it; without, the same load in peace")
	set.StringVar(&c.Only, "only", "", "only this kind of fault, such as \"kill worker\"")
	set.BoolVar(&c.Drops, "drops", false, "some targets break the connection off instead of answering")
	if err := set.Parse(args); err != nil {
		return Config{}, err
	}
	c.Quiet, c.Calm = 5*time.Second, 6*time.Second
	if c.Only != "" && !slices.ContainsFunc(kinds(), func(k kind) bool { return k.name == c.Only }) {
		err := fmt.Errorf("-only: there is no fault %q", c.Only)
		fmt.Fprintln(output, err)
		return Config{}, err
	}
	if c.Duration < 20*time.Second || c.Jobs < 1 {
		err := fmt.Errorf("-duration must be 20s or more and -jobs 1 or more")
		fmt.Fprintln(output, err)
		return Config{}, err
	}
	return c, nil
}
