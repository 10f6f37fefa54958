package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

var errNotFound = errors.New("not found")

// bare is a machine with nothing on it.
func bare() *machine {
	return &machine{
		lookPath: func(string) (string, error) { return "", errNotFound },
		accounts: child.Candidates(),
	}
}

// withManager is a bare machine with a package manager whose scripts are given.
func withManager(dirs, postgres, redis string) *machine {
	m := bare()
	m.lookPath = func(name string) (string, error) {
		if name == "sh" {
			return exec.LookPath(name)
		}
		return "", errNotFound
	}
	m.postgresDirs, m.programDirs = []string{filepath.Join(dirs, "bin")}, []string{filepath.Join(dirs, "bin")}
	m.managers = []manager{{"absent", true, plain("exit 9"), plain("exit 9"), plain("exit 9")}, {"sh", os.Geteuid() == 0, plain(postgres), plain(redis), plain("exit 9")}}
	return m
}

func TestInstall(t *testing.T) {
	t.Parallel()
	dirs := openDir(t)
	no := func(context.Context, string) bool { return false }
	link := "ln -s '" + needPostgres(t).dir + "' '" + dirs + "/bin'"
	for _, tc := range []struct {
		name    string
		on      *machine
		confirm func(context.Context, string) bool
		want    []string // parts of the error; none when it starts
	}{
		{"not allowed", withManager(dirs, link, ""), no, []string{"PostgreSQL 15 or newer is not installed and was not to be installed: install it", "DATABASE_URL"}},
		{"no manager", bare(), nil, []string{"there is no package manager that could do it: install it"}},
		{"it fails", withManager(dirs, "echo no route to the mirror; exit 7", ""), nil, []string{"sh failed to do it (exit status 7: no route to the mirror)"}},
		{"it does not help", withManager(dirs, "true", ""), nil, []string{"not by sh either"}},
		{"no rights", &machine{lookPath: func(name string) (string, error) { return name, nil }, managers: []manager{{program: "brew", asRoot: os.Geteuid() != 0}}}, nil, []string{"and brew "}},
		{"it helps", withManager(dirs, link, ""), nil, nil},
		{"it is there", withManager(dirs, "exit 1", ""), nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := StartPostgres(t.Context(), Options{Confirm: tc.confirm, on: tc.on})
			if err == nil {
				err = p.Stop()
				if len(tc.want) > 0 || err != nil {
					t.Fatalf("it started; stop: %v", err)
				}
				return
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if len(tc.want) == 0 || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q", err)
			}
		})
	}
}

// A machine that cannot install something is not asked for it by every test of
// a process, each of which would wait for the network.
func TestInstallIsTriedOnce(t *testing.T) {
	t.Parallel()
	dirs := openDir(t)
	tries := filepath.Join(dirs, "tries")
	o := Options{on: withManager(dirs, "", "echo once >>'"+tries+"'; exit 7")}
	for range 3 {
		if r := startRedis(t, o); r.Kind != KindMiniredis {
			t.Errorf("got %s", r.Kind)
		}
	}
	if text, err := os.ReadFile(tries); string(text) != "once\n" {
		t.Errorf("the package manager ran like this: %q, %v", text, err)
	}
}

// The processes of several packages' tests find a program missing at once. Each
// has a machine of its own here, as each process has.
func TestOneProcessInstallsForAll(t *testing.T) {
	t.Parallel()
	dirs := openDir(t)
	tries, path := filepath.Join(dirs, "tries"), needRedis(t)
	install := "echo once >>'" + tries + "'; mkdir '" + dirs + "/bin' && cp '" + path + "' '" + dirs + "/bin/redis-check-rdb'"
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			got, _, err := findRedis(t.Context(), Options{on: withManager(dirs, "", install)})
			if err != nil || filepath.Dir(got) != filepath.Join(dirs, "bin") {
				t.Errorf("found %q, %v", got, err)
			}
		})
	}
	all.Wait()
	if text, err := os.ReadFile(tries); string(text) != "once\n" {
		t.Errorf("the package manager ran like this: %q, %v", text, err)
	}
}

// The question shows the command that is going to run, on one line.
func TestInstallAsksWithTheCommand(t *testing.T) {
	t.Parallel()
	var asked []string
	_, _, err := findRedis(t.Context(), Options{on: withManager(openDir(t), "", "exit 7"), Confirm: func(_ context.Context, sentence string) bool {
		asked = append(asked, sentence)
		return false
	}})
	if err == nil || !strings.Contains(err.Error(), "was not to be installed") {
		t.Errorf("error %v", err)
	}
	if want := "Redis is not installed; sh installs it: exit 7"; len(asked) != 1 || asked[0] != want {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

// A PATH without any server, nor their package manager, does not hide them.
func TestProgramsOutsideThePathAreFound(t *testing.T) {
	t.Parallel()
	needRedis(t)
	needPostgres(t)
	m := without(func(m *machine) { m.lookPath = func(string) (string, error) { return "", errNotFound } })
	if path, _ := m.redis(); path == "" {
		t.Error("no Redis is found")
	}
	if len(m.postgres()) == 0 {
		t.Error("no PostgreSQL is found")
	}
	if path := m.program("sh"); path == "" {
		t.Error("no program of the system is found")
	}
}

// apt-get has a lock for its lists that it does not wait for by itself.
func TestAptIsRepeated(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, says string
		fails      int // how often, before it succeeds
		want       int // how often it is called; an installation takes two calls
		ok         bool
	}{
		{"at once", "", 0, 2, true},
		{"the network returns", "E: Failed to fetch", 2, 4, true},
		{"no list, but the package", "E: Failed to fetch", 1, 2, true},
		{"no network", "E: Failed to fetch", 99, 6, false},
		{"somebody installs", "E: Could not get lock /var/lib/apt/lists/lock.", 4, 6, true},
		{"somebody installs for ever", "E: Could not get lock /var/lib/apt/lists/lock.", 99, 10, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := openDir(t)
			calls := filepath.Join(dir, "calls")
			fake := fmt.Sprintf("#!/bin/sh\necho x >>'%s'; calls=0; while read -r _; do calls=$((calls+1)); done <'%s'; [ $calls -gt %d ] || { echo '%s'; exit 100; }\n",
				calls, calls, tc.fails, tc.says)
			if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(fake), 0o700); err != nil {
				t.Fatal(err)
			}
			script := "PATH='" + dir + "'; sleep() { :; }\n" + aptRedis
			out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", script).CombinedOutput()
			text, _ := os.ReadFile(calls)
			if got := strings.Count(string(text), "x"); got != tc.want || (err == nil) != tc.ok {
				t.Errorf("%d calls, want %d: %v %s", got, tc.want, err, out)
			}
			if !tc.ok && !strings.Contains(string(out), tc.says) {
				t.Errorf("it says %q and not why", out)
			}
		})
	}
}

// apt checks signatures as a user of its own, who may be unable to look into the
// directories of our PATH.
func TestAptFindsTheSystemsPrograms(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte("#!/bin/sh\necho \"$PATH\"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "PATH='"+dir+"'; sleep() { :; }\n"+aptRedis).CombinedOutput()
	if want := dir + ":/usr/sbin:/usr/bin:"; err == nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("%v: PATH is %s; want one that begins with %s", err, out, want)
	}
}
