package simulation

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// The model and PostgreSQL answer every operation alike and hold the same
// state after it, whatever the sequence: only so does what the model proves
// say anything of the statements that production sends.
func TestSimulationAgreesWithPostgreSQL(t *testing.T) {
	t.Parallel()
	s := newReal(t)
	rapid.Check(t, func(rt *rapid.T) {
		d := newDraw(func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "n") })
		c := s.contract(t, noBug)
		for range 20 {
			if difference := c.step(d.op(c)); difference != "" {
				rt.Fatal(difference)
			}
		}
	})
}

// The same for the cases that chance seldom meets.
func TestSimulationAgreesInRareCases(t *testing.T) {
	t.Parallel()
	s := newReal(t)
	for _, one := range scripts() {
		if difference := s.contract(t, noBug).run(one); difference != "" {
			t.Errorf("%s: %s", one.name, difference)
		}
	}
}

// The contract is no better than what it notices: each rule that is broken in
// the model is found by comparing it with PostgreSQL.
func TestContractNoticesBrokenRules(t *testing.T) {
	t.Parallel()
	s := newReal(t)
	for _, broken := range bugs() {
		switch broken {
		case countsBeforeLock, noSkipLocked:
			continue // they show only where two act at once
		case givesBackClaims, countsFromAnswer:
			continue // they are the worker's
		}
		if !slices.ContainsFunc(scripts(), func(one script) bool { return s.contract(t, broken).run(one) != "" }) {
			t.Errorf("the contract does not notice that %s", broken)
		}
	}
}

// contract compares the model with PostgreSQL, operation by operation.
type contract struct {
	t       *testing.T
	real    *real
	model   *tables
	at      time.Time
	history strings.Builder
}

func (s *real) contract(t *testing.T, broken bug) *contract {
	t.Helper()
	if err := s.clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &contract{t: t, real: s, model: &tables{bug: broken, tenants: freshTenants()}, at: clock.Now().Truncate(time.Second)}
}

// step carries out one operation on both, after so long, and says how they
// differ.
func (c *contract) step(after time.Duration, o op) string {
	c.at = c.at.Add(after)
	fmt.Fprintf(&c.history, "%s %T%+v\n", c.at.Format("05.000000"), o, o)
	got, err := c.real.do(c.t.Context(), o, c.at)
	if err != nil {
		c.t.Fatalf("%v\n%s", err, c.history.String())
	}
	want := o.do(c.model, c.at)
	if diff := gocmp.Diff(want.sorted(), got.sorted(), cmpopts.IgnoreUnexported(answer{}), cmpopts.EquateEmpty()); diff != "" {
		return fmt.Sprintf("%sthe answers differ (-simulation +PostgreSQL):\n%s", c.history.String(), diff)
	}
	state, err := c.real.state(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	if diff := c.model.diff(state); diff != "" {
		return fmt.Sprintf("%sthe states differ (-simulation +PostgreSQL):\n%s", c.history.String(), diff)
	}
	return ""
}

func (c *contract) run(one script) string {
	for _, line := range one.lines {
		if difference := c.step(line.after, line.op(c.model)); difference != "" {
			return difference
		}
	}
	return ""
}

func (t *tables) diff(other *tables) string {
	over := slices.Clone(t.finished)
	slices.SortFunc(over, func(a, b finishedRow) int { return cmp.Or(compareIDs(a.ID, b.ID), a.At.Compare(b.At)) })
	keys := slices.Clone(t.keys)
	slices.SortFunc(keys, func(a, b keyRow) int {
		return cmp.Or(compareIDs(a.Of.Tenant, b.Of.Tenant), cmp.Compare(a.Of.Key, b.Of.Key))
	})
	plain := gocmp.Options{cmpopts.IgnoreUnexported(jobRow{}), cmpopts.EquateEmpty()}
	return gocmp.Diff(t.jobs, other.jobs, plain) + gocmp.Diff(t.active, other.active, plain) +
		gocmp.Diff(over, other.finished, plain) + gocmp.Diff(t.workers, other.workers, plain) +
		gocmp.Diff(t.tenants, other.tenants, plain) + gocmp.Diff(keys, other.keys, plain)
}

// freshTenants are two that have no limits and run nothing.
func freshTenants() []tenantRow {
	return []tenantRow{{ID: tenantID(0), Most: noLimit()}, {ID: tenantID(1), Most: noLimit()}}
}
