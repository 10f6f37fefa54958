package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

// riverRate is how many of River's jobs are due at one moment of each second.
const riverRate = 1000

// besideRiver drains as many no-op jobs as drain does, with River on a database of its own on
// the same server, and has some due each second, as steady does. River's jobs are inserted
// before they are due, where the product makes executions of schedules. It runs in one process,
// and is given as many slots as a worker and a poll of 20 ms.
func besideRiver(ctx context.Context, s *stack) (rows []row, err error) {
	program, err := s.buildRiver(ctx)
	if err != nil {
		return nil, err
	}
	for i := range s.Repeats {
		s.say("draining %d jobs with River (%d of %d)", 2*s.Burst, i+1, s.Repeats)
		one, err := s.river(ctx, program, fmt.Sprintf("river_%d", i), "-jobs", strconv.Itoa(2*s.Burst))
		if err != nil {
			return nil, err
		}
		one.key, one.what = riverKey, fmt.Sprintf(besideWord+"River, %d pending at once, drained", 2*s.Burst)
		rows = append(rows, one)
	}
	drained := median(rows, func(a, b row) int { return cmp.Compare(a.perSecond, b.perSecond) })
	s.say("%d due each second with River", riverRate)
	due, err := s.river(ctx, program, "river_due", "-jobs", strconv.Itoa(riverRate), "-seconds", strconv.Itoa(s.Seconds))
	due.key, due.what = riverDueKey, fmt.Sprintf(besideWord+"River, %d due each second, together, inserted before; to the start of its handler", riverRate)
	return []row{drained, due}, err
}

// river runs the program on a new database.
func (s *stack) river(ctx context.Context, program, name string, args ...string) (r row, err error) {
	if err := postgres.EnsureDatabase(ctx, s.postgres.AdminURL, name, schemaOwner); err != nil {
		return row{}, err
	}
	from, err := s.read(ctx)
	if err != nil {
		return row{}, err
	}
	args = append([]string{"-database", s.postgres.URL(name, schemaOwner), "-slots", strconv.Itoa(s.Slots)}, args...)
	said, err := exec.CommandContext(ctx, program, args...).Output() //nolint:gosec // we built it
	if err != nil {
		return row{}, fmt.Errorf("run River: %w", err)
	}
	if r, err = riverRow(string(said)); err != nil {
		return row{}, err
	}
	to, err := s.read(ctx)
	r.others = others(from, to)
	return r, err
}

// riverRow reads what the program said: how many a second, and where jobs were due, how late
// they started in µs: p50, p99 and max.
func riverRow(said string) (row, error) {
	cells := strings.Fields(said)
	numbers := make([]float64, len(cells))
	var err error
	for i, cell := range cells {
		var wrong error
		numbers[i], wrong = strconv.ParseFloat(cell, 64)
		err = errors.Join(err, wrong)
	}
	if err == nil && len(numbers) != 1 && len(numbers) != 4 {
		err = errors.New("want one number, or four")
	}
	if err != nil {
		return row{}, fmt.Errorf("read %q of River: %w", said, err)
	}
	r := row{perSecond: numbers[0], backlog: none}
	if len(numbers) == 4 {
		micros := func(i int) time.Duration { return seconds(numbers[i] / 1e6) }
		r.lag = lag{p50: micros(1), p99: micros(2), max: micros(3)}
	}
	return r, nil
}

// buildRiver makes the program of tools/river, which is a module of its own.
func (s *stack) buildRiver(ctx context.Context) (program string, err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	program = filepath.Join(s.programs(), "river")
	//nolint:gosec // a directory of ours
	said, err := exec.CommandContext(ctx, "go", "-C", filepath.Join(root, "tools", "river"), "build", "-buildvcs=false", "-o", program, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build tools/river: %w: %s", err, said)
	}
	return program, nil
}

// moduleRoot is the folder of this module.
func moduleRoot(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(root)), nil
}
