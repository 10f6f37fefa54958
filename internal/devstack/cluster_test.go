package devstack

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// without is this machine with something taken away.
func without(change func(*machine)) *machine {
	m := thisMachine()
	change(m)
	return m
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a directory that is closed to the server's account takes root")
	}
}

func accountNamed(t *testing.T, name string) child.Account {
	t.Helper()
	for _, acc := range child.Candidates() {
		if acc.String() == name {
			return acc
		}
	}
	t.Skipf("no %s here", name)
	return child.Account{}
}

// closedDir is a directory as a checkout under /root is: nobody else may enter.
func closedDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(openDir(t), "closed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "data")
}

func TestRootsClosedDirectory(t *testing.T) {
	t.Parallel()
	needRoot(t)
	space := accountNamed(t, "a user namespace")
	if err := space.Command(t.Context(), nil, "/bin/true").Run(); err != nil {
		t.Skipf("user namespaces are forbidden here: %v", err)
	}
	o := Options{Dir: closedDir(t), Durable: true}
	for range 2 { // made, then found
		p := startPostgres(t, o)
		if got := p.cluster.account.String(); got != "a user namespace" {
			t.Errorf("runs as %s", got)
		}
		if got := ask(t, p.AdminURL, "SELECT current_setting('data_directory')"); got != filepath.Join(o.Dir, "postgres") {
			t.Errorf("the data lies in %s", got)
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestRootsOpenDirectory(t *testing.T) {
	t.Parallel()
	needRoot(t)
	p := startPostgres(t, Options{Dir: openDir(t), Durable: true})
	if got := p.cluster.account; got.String() == "a user namespace" || p.cluster.account.Owns("/") {
		t.Errorf("runs as %s", got)
	}
	info, err := os.Stat(p.cluster.data)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data directory: %v, %v", info.Mode(), err)
	}
}

// TestDataElsewhere is a container that forbids user namespaces, with the
// checkout in a closed directory.
func TestDataElsewhere(t *testing.T) {
	t.Parallel()
	needRoot(t)
	nobody, elsewhere := accountNamed(t, "nobody"), openDir(t)
	o := Options{Dir: closedDir(t), Durable: true, on: without(func(m *machine) {
		m.accounts = []child.Account{nobody}
		m.elsewhere = []string{elsewhere}
	})}
	first := startPostgres(t, o)
	if !strings.HasPrefix(first.cluster.data, elsewhere) {
		t.Errorf("the data lies in %s", first.cluster.data)
	}
	tell(t, first.AdminURL, "CREATE TABLE kept ()")
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := startPostgres(t, o)
	if got := ask(t, second.AdminURL, "SELECT count(*)::text FROM pg_tables WHERE tablename = 'kept'"); got != "1" {
		t.Error("the second start did not find the data")
	}
}

func TestNoAccountAtAll(t *testing.T) {
	t.Parallel()
	needRoot(t)
	_, err := StartPostgres(t.Context(), Options{Dir: closedDir(t), Durable: true, on: without(func(m *machine) {
		m.accounts, m.elsewhere = []child.Account{accountNamed(t, "nobody")}, nil
	})})
	if err == nil || !strings.Contains(err.Error(), "nobody may not enter") {
		t.Errorf("error %v", err)
	}
}

func TestAnotherVersionsDataIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	data := filepath.Join(dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(data, "precious")
	for name, text := range map[string]string{filepath.Join(data, "PG_VERSION"): "9\n", marker: "x"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := StartPostgres(t.Context(), Options{Dir: dir, Durable: true})
	if err == nil || !strings.Contains(err.Error(), "was made by PostgreSQL 9 and this machine has") {
		t.Errorf("error %v", err)
	}
	if !exists(marker) {
		t.Error("the data is gone")
	}
}

func TestUnfinishedInitdbIsDoneAgain(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	old := filepath.Join(dir, "postgres.unfinished-1")
	if err := os.MkdirAll(filepath.Join(old, "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := startPostgres(t, Options{Dir: dir, Durable: true})
	if got := ask(t, p.AdminURL, "SELECT 'alive'"); got != "alive" {
		t.Errorf("got %q", got)
	}
	if exists(old) {
		t.Error("the unfinished directory is still there")
	}
}

// A process that is no server has the recorded id, as after the restart of a
// machine, and runs as the server's user, which is what makes PostgreSQL refuse.
func TestStaleLockFiles(t *testing.T) {
	t.Parallel()
	o := Options{Dir: openDir(t), Durable: true}
	p := startPostgres(t, o)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	bystander, err := child.Start(p.cluster.account.Command(context.Background(), nil, "/bin/sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	defer bystander.Stop()
	for _, tc := range []struct{ name, text string }{
		{"somebody else's", strconv.Itoa(bystander.PID()) + "\n" + p.cluster.data + "\n"},
		{"our own", strconv.Itoa(os.Getpid()) + "\n"},
		{"cut short", ""},
		{"everybody's", "-1\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := []string{filepath.Join(p.cluster.data, "postmaster.pid"), filepath.Join(p.Socket, ".s.PGSQL.5432.lock")}
			if err := os.MkdirAll(p.Socket, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if err := os.WriteFile(f, []byte(tc.text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			again := startPostgres(t, o)
			if err := again.Stop(); err != nil {
				t.Error(err)
			}
			eventually(t, "the bystander", func() bool { return child.HasArgument(bystander.PID(), "1000") })
		})
	}
}

// TestSurvivorIsStopped has a server on the directory that nothing told of its
// parent's end.
func TestSurvivorIsStopped(t *testing.T) {
	t.Parallel()
	o := Options{Dir: openDir(t), Durable: true}
	first := startPostgres(t, o)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	c := first.cluster
	socket := openDir(t)
	if err := c.account.Give(socket); err != nil {
		t.Fatal(err)
	}
	survivor := c.account.Command(context.Background(), serverEnv(), c.bins.postgres(), "-D", c.data, "-k", socket, "-c", "listen_addresses=")
	if err := survivor.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- survivor.Wait() }()
	eventually(t, "the survivor", func() bool { return c.ready(survivor.Process.Pid) })
	second := startPostgres(t, o)
	if err := <-ended; err != nil {
		t.Errorf("it was not stopped in order: %v", err)
	}
	if got := ask(t, second.AdminURL, "SELECT 'alive'"); got != "alive" {
		t.Errorf("got %q", got)
	}
}

func TestIncompleteCopyIsRefused(t *testing.T) {
	t.Parallel()
	dir, self := t.TempDir(), child.Self()
	from, kept := filepath.Join(dir, "from"), filepath.Join(dir, "kept")
	if err := os.MkdirAll(filepath.Join(from, "base", "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "base", "1"), []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := keepTree(from, kept, self); err != nil {
		t.Fatal(err)
	}
	if err := copyTree(kept, filepath.Join(dir, "a"), self); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "a", "base", "1")); err != nil || string(got) != "one" {
		t.Errorf("got %q, %v", got, err)
	}
	if exists(filepath.Join(dir, "a", countName)) {
		t.Error("the count was left in the copy")
	}
	if err := os.Remove(filepath.Join(kept, "base", "1")); err != nil {
		t.Fatal(err)
	}
	if err := copyTree(kept, filepath.Join(dir, "b"), self); err == nil {
		t.Error("an incomplete tree was copied without an error")
	}
	if err := os.Symlink("1", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	if err := keepTree(from, filepath.Join(dir, "c"), self); err == nil {
		t.Error("a symbolic link was kept")
	}
}
