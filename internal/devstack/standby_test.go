package devstack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A commit on a server that then died is on its synchronous standby,
// which takes writes once it is promoted, and can have a standby itself.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	first := startPostgres(t, Options{Dir: filepath.Join(dir, "1"), Durable: true, Settings: []string{"work_mem=5MB"}, Env: []string{"PGTZ=UTC"}})
	if got := ask(t, first.AdminURL, "SHOW work_mem"); got != "5MB" {
		t.Errorf("work_mem is %s", got)
	}
	second := follow(t, first, filepath.Join(dir, "2"))
	tell(t, first.AdminURL, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	tell(t, first.AdminURL, "SELECT pg_reload_conf()")
	eventuallyIs(t, first.AdminURL, "SELECT coalesce(min(sync_state), '') FROM pg_stat_replication", "sync")
	tell(t, first.AdminURL, "CREATE TABLE kept AS SELECT 'still here' AS what")
	if err := first.Crash(t.Context(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	tell(t, second.AdminURL, "SELECT pg_promote()")
	if got := ask(t, second.AdminURL, "SELECT what FROM kept"); got != "still here" {
		t.Errorf("got %q", got)
	}
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	third := follow(t, second, filepath.Join(dir, "3"))
	tell(t, second.AdminURL, "UPDATE kept SET what = 'changed'")
	eventuallyIs(t, third.AdminURL, "SELECT what FROM kept", "changed")
	if err := third.Crash(t.Context(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if err := third.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventuallyIs(t, third.AdminURL, "SELECT what FROM kept", "changed")
}

func TestStandbyRefuses(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	first := startPostgres(t, Options{Dir: filepath.Join(dir, "1"), Durable: true})
	if _, err := first.Standby(t.Context(), Options{Dir: filepath.Join(dir, "2")}, "s", ""); err == nil {
		t.Error("a throwaway became a standby")
	}
	if _, err := first.Standby(t.Context(), Options{Dir: filepath.Join(dir, "1"), Durable: true}, "s", ""); err == nil {
		t.Error("a standby lies where its primary does")
	}
	if _, err := os.Stat(filepath.Join(dir, "1", "postgres", "PG_VERSION")); err != nil {
		t.Error(err)
	}
}

func follow(t *testing.T, p *Postgres, dir string) *Postgres {
	t.Helper()
	s, err := p.Standby(t.Context(), Options{Dir: dir, Durable: true}, "chaos_"+filepath.Base(dir), "")
	if errors.Is(err, ErrNoBackup) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func eventuallyIs(t *testing.T, url, query, want string) {
	t.Helper()
	got := ""
	err := until(t.Context(), 2*time.Minute, func() (bool, error) { got = ask(t, url, query); return got == want, nil })
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("%s: %q, want %q", query, got, want)
	}
}
