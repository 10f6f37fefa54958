package devstack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// manager is a package manager.
type manager struct {
	program string // what has to be on the PATH
	asRoot  bool   // needs root, otherwise must not be root
	// They install the programs without leaving a service running.
	postgres, redis, bouncer recipe
}

// recipe is how a package manager installs a program.
type recipe struct {
	command string // as a person would type it
	script  string // for the shell
}

// plain is a command that is its own script.
func plain(command string) recipe { return recipe{command, command} }

func managers() []manager {
	return []manager{
		{"apt-get", true, recipe{"apt-get install postgresql", aptPostgres}, recipe{"apt-get install redis-tools", aptRedis}, recipe{"apt-get install pgbouncer", aptBouncer}},
		{"dnf", true, plain("dnf install -q -y postgresql-server"), plain("dnf install -q -y valkey || dnf install -q -y redis"), plain("dnf install -q -y pgbouncer")},
		{"apk", true, plain("apk add -q postgresql"), plain("apk add -q valkey || apk add -q redis"), plain("apk add -q pgbouncer")},
		{"brew", false, plain("HOMEBREW_NO_AUTO_UPDATE=1 brew install -q postgresql@17"), plain("HOMEBREW_NO_AUTO_UPDATE=1 brew install -q valkey"), plain("HOMEBREW_NO_AUTO_UPDATE=1 brew install -q pgbouncer")},
	}
}

const (
	// A fresh machine has no package lists, and one that boots may be busy with
	// packages of its own: it waits for a holder of one of apt's locks for some
	// minutes. Anything else is tried three times within half a minute. One source
	// that cannot be reached is no reason to give up: the lists of the others may do.
	// apt checks signatures as a user of its own, who may be unable to look into a
	// directory of our PATH, so the system's own are named too.
	apt = `set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH="$PATH:/usr/sbin:/usr/bin:/sbin:/bin"
once() {
	apt-get -q -o Acquire::Retries=3 -o APT::Update::Error-Mode=any update || true
	apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 --no-install-recommends install "$@"
}
install() {
	for pause in 5 20 30 60 60; do
		said=$(once "$@" 2>&1) && return 0
		case $said in *" lock "*) ;; *) [ $pause -lt 30 ] || break ;; esac
		sleep $pause
	done
	printf '%s\n' "$said"
	return 1
}
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
	// Debian's package starts a service, unless the machine's policy forbids that.
	aptBouncer = apt + `policy=/usr/sbin/policy-rc.d
if ! [ -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
install pgbouncer
if command -v systemctl >/dev/null; then systemctl -q disable pgbouncer || true; fi
`
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
	err := install(ctx, o, "PostgreSQL", func(m manager) recipe { return m.postgres }, func() bool {
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
	err = install(ctx, o, "Redis", func(m manager) recipe { return m.redis }, func() bool {
		path, kind = o.machine().redis()
		return path != ""
	})
	if err != nil {
		return "", "", fmt.Errorf("Redis is not installed%w: install it (%s), or set REDIS_URL to one that runs",
			err, advice("redis-server", "valkey", "valkey"))
	}
	return path, kind, nil
}

// findBouncer is the path of PgBouncer, if need be after installing it.
func findBouncer(ctx context.Context, o Options) (path string, err error) {
	if path = o.machine().program("pgbouncer"); path != "" {
		return path, nil
	}
	err = install(ctx, o, "PgBouncer", func(m manager) recipe { return m.bouncer }, func() bool {
		path = o.machine().program("pgbouncer")
		return path != ""
	})
	if err != nil {
		return "", fmt.Errorf("PgBouncer is not installed%w: install it (%s)", err, advice("pgbouncer", "pgbouncer", "pgbouncer"))
	}
	return path, nil
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
// it missing at once. This process tries once: without a network its tests would
// wait for it one after another.
func install(ctx context.Context, o Options, what string, choose func(manager) recipe, there func() bool) error {
	on := o.machine()
	lock, err := lockFile(ctx, filepath.Join(tempBase(child.Self()), "scheduler-install-"+uid()+".lock"), installWithin)
	if err != nil {
		return why(" and cannot be: " + err.Error())
	}
	defer lock.Close()
	if there() {
		return nil
	}
	if err, tried := on.failed.Load(what); tried {
		return err.(error)
	}
	err = installNow(ctx, o, what, choose, there)
	if err != nil && ctx.Err() == nil {
		on.failed.Store(what, err)
	}
	return err
}

func installNow(ctx context.Context, o Options, what string, choose func(manager) recipe, there func() bool) error {
	m, before, err := usable(ctx, o.machine())
	if err != nil {
		return err
	}
	recipe := choose(m)
	if o.Confirm != nil && !o.Confirm(ctx, fmt.Sprintf("%s is not installed; %s installs it: %s", what, m.program, recipe.command)) {
		return why(" and was not to be installed")
	}
	o.log().WarnContext(ctx, "installing a missing program", "program", what, "command", recipe.command)
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	argv := slices.Concat(before, []string{"/bin/sh", "-c", recipe.script})
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
// and the command that runs its scripts with them.
func usable(ctx context.Context, on *machine) (m manager, before []string, err error) {
	reason := why(" and there is no package manager that could do it")
	root := os.Geteuid() == 0
	for _, m := range on.managers {
		if on.program(m.program) == "" {
			continue
		}
		switch {
		case m.asRoot == root:
			return m, nil, nil
		case !m.asRoot:
			reason = why(" and " + m.program + " refuses to run as root")
		default:
			if sudo := on.program("sudo"); mayBecomeRoot(ctx, sudo) {
				return m, []string{sudo, "-n"}, nil
			}
			reason = why(" and " + m.program + " needs root")
		}
	}
	return manager{}, nil, reason
}

// mayBecomeRoot reports whether sudo lets us without asking for a password.
func mayBecomeRoot(ctx context.Context, sudo string) bool {
	if sudo == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, sudo, "-n", "true").Run() == nil
}
