package devstack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// manager is a package manager.
type manager struct {
	program string // what has to be on the PATH
	asRoot  bool   // needs root, otherwise must not be root
	// postgres and redis are shell scripts that install them without leaving a
	// service running: what we need is the programs.
	postgres, redis string
}

func managers() []manager {
	return []manager{
		{"apt-get", true, aptPostgres, aptRedis},
		{"dnf", true, "dnf install -q -y postgresql-server", "dnf install -q -y valkey || dnf install -q -y redis"},
		{"apk", true, "apk add -q postgresql", "apk add -q valkey || apk add -q redis"},
		{"brew", false, "HOMEBREW_NO_AUTO_UPDATE=1 brew install -q postgresql@17", "HOMEBREW_NO_AUTO_UPDATE=1 brew install -q valkey"},
	}
}

const (
	apt = `set -e
export DEBIAN_FRONTEND=noninteractive
once() { apt-get -q -o Acquire::Retries=3 update && apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 --no-install-recommends install "$@"; }
install() { once "$@" || { sleep 5; once "$@"; } || { sleep 20; once "$@"; }; }
`
	// Debian's package makes a cluster and starts it, unless it is told before.
	aptPostgres = apt + `conf=/etc/postgresql-common/createcluster.d/scheduler.conf
mkdir -p "${conf%/*}"
trap 'rm -f "$conf"' EXIT
echo 'create_main_cluster = false' >"$conf"
install postgresql
`
	// The package redis-server would start a service; this one has the program.
	aptRedis = apt + "install redis-tools\n"
)

// installWithin bounds an installation, downloads included.
const installWithin = 10 * time.Minute

// findPostgres lists the installations, newest first and at least one, if need
// be after installing it.
func findPostgres(ctx context.Context, o Options) ([]binaries, error) {
	list := o.machine().postgres()
	if len(list) > 0 {
		return list, nil
	}
	err := install(ctx, o, "PostgreSQL", func(m manager) string { return m.postgres }, func() bool {
		list = o.machine().postgres()
		return len(list) > 0
	})
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL %d or newer is not installed%w: install it (%s), or set DATABASE_URL to one that runs",
			oldestMajor, err, advice("postgresql", "postgresql-server", "postgresql@17"))
	}
	return list, nil
}

// findRedis is the path and the kind of a Redis server, if need be after
// installing it.
func findRedis(ctx context.Context, o Options) (path, kind string, err error) {
	if path, kind = o.machine().redis(); path != "" {
		return path, kind, nil
	}
	err = install(ctx, o, "Redis", func(m manager) string { return m.redis }, func() bool {
		path, kind = o.machine().redis()
		return path != ""
	})
	if err != nil {
		return "", "", fmt.Errorf("Redis is not installed%w: install it (%s), or set REDIS_URL to one that runs",
			err, advice("redis-server", "valkey", "valkey"))
	}
	return path, kind, nil
}

// advice is how a person installs a program here.
func advice(debian, fedora, brew string) string {
	if runtime.GOOS == "darwin" {
		return "brew install " + brew
	}
	return "for example apt-get install " + debian + " or dnf install " + fedora
}

// why is an error that continues a sentence.
type why string

func (w why) Error() string { return string(w) }

// install runs the first package manager that we may use, unless the program is
// there by the time that it is our turn: the tests of several packages may find
// it missing at once.
func install(ctx context.Context, o Options, what string, script func(manager) string, there func() bool) error {
	if !o.Install {
		return why("")
	}
	lock, err := lockFile(ctx, filepath.Join(tempBase(child.Self()), "scheduler-install-"+uid()+".lock"), installWithin)
	if err != nil {
		return why(" and cannot be: " + err.Error())
	}
	defer lock.Close()
	if there() {
		return nil
	}
	m, argv, err := usable(ctx, o.machine(), script)
	if err != nil {
		return err
	}
	o.log().WarnContext(ctx, "installing a missing program", "program", what, "with", m.program)
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = 5 * time.Second // what the script runs may hold its output open
	out, err := cmd.CombinedOutput()
	if there() {
		return nil
	}
	if err == nil {
		return why(", not by " + m.program + " either")
	}
	return why(fmt.Sprintf(" and %s failed to do it (%v: %s)", m.program, err, lastLines(out)))
}

// usable picks the first manager of this machine that we have the rights for,
// and the command that runs its script.
func usable(ctx context.Context, on *machine, script func(manager) string) (manager, []string, error) {
	reason := why(" and there is no package manager that could do it")
	root := os.Geteuid() == 0
	for _, m := range on.managers {
		if _, err := on.lookPath(m.program); err != nil {
			continue
		}
		switch {
		case m.asRoot == root:
			return m, []string{"/bin/sh", "-c", script(m)}, nil
		case !m.asRoot:
			reason = why(" and " + m.program + " refuses to run as root")
		case mayBecomeRoot(ctx, on):
			return m, []string{"sudo", "-n", "/bin/sh", "-c", script(m)}, nil
		default:
			reason = why(" and " + m.program + " needs root")
		}
	}
	return manager{}, nil, reason
}

// mayBecomeRoot reports whether sudo lets us without asking for a password.
func mayBecomeRoot(ctx context.Context, on *machine) bool {
	sudo, err := on.lookPath("sudo")
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, sudo, "-n", "true").Run() == nil
}
