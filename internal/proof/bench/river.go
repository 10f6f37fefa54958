package bench

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

// besideRiver drains as many no-op jobs as drain does, with River on a database of its own on
// the same server. River keeps no append-only record, knows no tenants, limits or schedules,
// and runs in one process; it is given as many slots as a worker and a poll of 20 ms.
func besideRiver(ctx context.Context, s *stack) (rows []row, err error) {
	program, err := s.buildRiver(ctx)
	if err != nil {
		return nil, err
	}
	var all []float64
	from, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	for i := range s.Repeats {
		s.say("draining %d jobs with River (%d of %d)", 2*s.Burst, i+1, s.Repeats)
		name := fmt.Sprintf("river_%d", i)
		if err := postgres.EnsureDatabase(ctx, s.postgres.AdminURL, name, schemaOwner); err != nil {
			return nil, err
		}
		//nolint:gosec // we built it
		said, err := exec.CommandContext(ctx, program, "-database", s.postgres.URL(name, schemaOwner), "-jobs", strconv.Itoa(2*s.Burst), "-slots", strconv.Itoa(s.Slots)).Output()
		if err != nil {
			return nil, fmt.Errorf("drain with River: %w", err)
		}
		perSecond, err := strconv.ParseFloat(strings.TrimSpace(string(said)), 64)
		if err != nil {
			return nil, fmt.Errorf("drain with River: %w", err)
		}
		all = append(all, perSecond)
	}
	to, err := s.read(ctx)
	slices.SortFunc(all, cmp.Compare[float64])
	return []row{{
		key: riverKey, what: fmt.Sprintf("beside: River, %d pending at once, drained", 2*s.Burst), perSecond: all[(len(all)-1)/2],
		backlog: none, others: others(from, to),
	}}, err
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
