// Package bench measures the product beside the limits of the machine that it
// runs on, in one run, because figures of two machines, or of two moments of
// one, do not compare; ratios do.
//
// It owns a private PostgreSQL that keeps what it commits and a private Redis,
// the load, the reading of what happened from the database, from /metrics and
// from /proc, and one table. It starts the real processes as an operator would
// and changes nothing in them. It refuses to be a test with a threshold in
// seconds, and to hide anything: an execution that is lost, repeated or not
// completed, or that the roll-ups count otherwise, is an error of the whole run.
//
// One file per measurement; each is a function from a stack to rows. Beside
// them, and instead of them with -bounded, adversaries take what they can while
// a quiet tenant is measured against limits.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/proof/figures"
)

// measurement is one part of the run.
type measurement struct {
	name    string
	measure func(ctx context.Context, s *stack) ([]row, error)
	always  bool // also where -only names others
}

// measurements are in the order in which they run.
func measurements() []measurement {
	return []measurement{
		{name: "queue", measure: queueLimits},
		{name: "sql", measure: sqlLimits},
		{name: "river", measure: besideRiver},
		{name: "steady", measure: steady},
		{name: "http", measure: callTarget},
		{name: "polled", measure: polled},
		{name: "burst", measure: burst},
		{name: "drain", measure: drain},
		{name: "fleet", measure: drainByFleets},
		{name: "limited", measure: drainAtLimit},
		{name: "promotion", measure: promotion},
		{name: "promoters", measure: byPromoters},
		{name: "neighbour", measure: besideBacklogs},
		{name: "rollups", measure: verifyRollUps, always: true},
		{name: "idle", measure: idle},
		{name: "api", measure: measureAPI},
		{name: "apiload", measure: measureAPILoad},
	}
}

// Run measures, and prints one Markdown table to out and what it is doing to
// progress. The error is the first measurement that failed, or what was lost,
// repeated or not completed; the rows measured until then are printed all the
// same. Everything it started has ended when it returns, also when ctx is
// cancelled.
func Run(ctx context.Context, c Config, out, progress io.Writer) (err error) {
	took := clock.Start()
	s, err := open(ctx, c, progress)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	if c.Bounded {
		return write(c, out, part{"bounded", func(to io.Writer) error { return bounded(ctx, s, to) }})
	}
	var rows []row
	for _, m := range measurements() {
		if len(c.Only) > 0 && !slices.Contains(c.Only, m.name) && !m.always {
			continue
		}
		var found []row
		found, err = m.measure(ctx, s)
		rows = append(rows, found...)
		if err != nil {
			err = fmt.Errorf("%s: %w", m.name, err)
			break
		}
	}
	err = errors.Join(err, write(c, out, parts(c, rows)...))
	_, said := fmt.Fprintf(out, "\nMeasured in %.0f s.\n", took.Elapsed().Seconds())
	return errors.Join(err, said)
}

// part is one table, with the name that its marks have in a page.
type part struct {
	name  string
	print func(to io.Writer) error
}

// parts are the tables of what was measured.
func parts(c Config, rows []row) (all []part) {
	if slices.ContainsFunc(rows, row.ofLoad) {
		all = append(all, part{"bench", func(to io.Writer) error { printTable(to, thisMachine(), c, rows); return nil }})
	}
	if slices.ContainsFunc(rows, func(r row) bool { return r.answers != nil && !r.load }) {
		all = append(all, part{"api", func(to io.Writer) error { printAnswers(to, c, rows); return nil }})
	}
	if slices.ContainsFunc(rows, func(r row) bool { return r.idle != nil }) {
		all = append(all, part{"idle", func(to io.Writer) error { printIdle(to, thisMachine(), c, rows); return nil }})
	}
	if slices.ContainsFunc(rows, func(r row) bool { return r.load }) {
		all = append(all, part{"apiload", func(to io.Writer) error { printLoad(to, c, rows); return nil }})
	}
	return all
}

// write prints to out, and into the file that -out names.
func write(c Config, out io.Writer, all ...part) (err error) {
	var tables []figures.Table
	for _, one := range all {
		var text strings.Builder
		err = errors.Join(err, one.print(io.MultiWriter(out, &text)))
		tables = append(tables, figures.Table{Name: one.name, Text: text.String()})
	}
	if c.Out == "" {
		return err
	}
	return errors.Join(err, figures.Write(c.Out, tables...))
}
