package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Steps of an upgrade, as reports name them.
const (
	kindReplace = "replace"
	kindBack    = "go back"
)

// buildEarlier makes the processes of an earlier commit, from what git has of
// it.
func (s *stack) buildEarlier(ctx context.Context, commit string) error {
	source := filepath.Join(s.dir, "earlier")
	if err := os.Mkdir(source, 0o700); err != nil {
		return err
	}
	archive := source + ".tar"
	defer func() { _ = os.Remove(archive) }()
	// The root of the tree, wherever in it this was started.
	root, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("-upgrade-from needs git and the repository: %w", err)
	}
	if err := run(ctx, "git", "-C", string(root[:len(root)-1]), "archive", "-o", archive, commit); err != nil {
		return err
	}
	if err := run(ctx, "tar", "-xf", archive, "-C", source); err != nil {
		return err
	}
	return run(ctx, "go", "-C", source, "build", "-buildvcs=false", "-o", s.earlier("")+string(filepath.Separator),
		"./cmd/api", "./cmd/promoter", "./cmd/worker", "./cmd/migrate")
}

// earlier is a program of the earlier commit.
func (s *stack) earlier(name string) string { return filepath.Join(s.dir, "earlier", "bin", name) }

// migrateEarlier makes the schema as the earlier commit has it.
func (s *stack) migrateEarlier(ctx context.Context) error {
	if err := postgres.EnsureDatabase(ctx, s.servers.url("postgres", "postgres"), database, schemaOwner); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, s.earlier("migrate")) // we built it
	cmd.Env = []string{"DATABASE_OWNER_URL=" + s.servers.url(database, schemaOwner), "DATABASE_URL=" + s.servers.url(database, login)}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the earlier migrate: %w: %s", err, tail(out))
	}
	return s.store.rememberColumns(ctx)
}

// upgrade does what an operator does, under load: the schema first, while all
// processes are of the earlier commit, and then one process after the other,
// of any kind first; and with Back all of them again, on the schema as it is now.
// It answers what it did as if it were faults.
func (s *stack) upgrade(ctx context.Context, c Config, progress io.Writer) (done []fault, err error) {
	mark := clock.Start()
	step := func(kind, who string, do func() error) {
		if err != nil || !sleep(ctx, time.Second) {
			return
		}
		f := fault{kind: kind, who: who, at: mark.Elapsed(), begun: clock.Now()}
		err = do()
		f.healed, f.err = clock.Now(), err
		f.lasts = f.healed.Sub(f.begun)
		done = append(done, f)
		fmt.Fprintln(progress, f)
	}
	random := newRand(c.Seed)
	replace := func(kind string, program func(role string) []string) {
		for _, i := range random.Perm(len(s.members)) {
			m := s.members[i]
			step(kind, m.name, func() error {
				m.end(syscall.SIGTERM)
				m.mu.Lock()
				m.program = program(m.role)
				m.mu.Unlock()
				return errors.Join(m.start(ctx), s.waitForReady(ctx, 30*time.Second))
			})
		}
	}
	sleep(ctx, c.Quiet)
	step("migrate", "", func() error {
		return s.migrate(ctx, slog.New(slog.NewTextHandler(progress, &slog.HandlerOptions{Level: slog.LevelWarn})))
	})
	sleep(ctx, c.Quiet) // all are of the earlier commit, and the schema is not
	replace(kindReplace, s.program)
	if c.Back {
		sleep(ctx, c.Quiet) // all are of this tree: what they write, the earlier ones find
		replace(kindBack, func(role string) []string { return []string{s.earlier(role)} })
	}
	return done, errors.Join(err, ctx.Err(), underLoad(c, mark.Elapsed()))
}

// underLoad refuses an upgrade that went on after the load had ended: it would show nothing.
func underLoad(c Config, took time.Duration) error {
	if took <= c.Duration {
		return nil
	}
	return fmt.Errorf("the load of %v ended before the last process was replaced, after %v: give a longer -duration", c.Duration, took.Round(time.Second))
}
