package devstack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// machine is what a computer has to offer. Tests take some of it away.
type machine struct {
	// lookPath finds a program on the PATH.
	lookPath func(name string) (string, error)
	// postgresDirs are patterns of directories that hold PostgreSQL's programs,
	// which most systems keep off the PATH.
	postgresDirs []string
	// programDirs are where other programs are, also when the PATH does not
	// name them.
	programDirs []string
	// managers are the package managers that we know how to use.
	managers []manager
	// accounts are those that PostgreSQL may run as.
	accounts []child.Account
	// elsewhere are directories for data whose own directory no account of the
	// machine can use.
	elsewhere []string
	// failed is why each program could not be installed, by what it is called.
	failed sync.Map
}

// ours is this machine, one for all servers of the process: what could not be
// installed for one is not tried again for the next.
var ours = sync.OnceValue(thisMachine)

func thisMachine() *machine {
	return &machine{
		lookPath: exec.LookPath,
		postgresDirs: []string{
			"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
			"/usr/pgsql-*/bin",                  // PostgreSQL's own packages for Fedora and RHEL
			"/usr/libexec/postgresql*",          // Alpine
			"/opt/homebrew/opt/postgresql*/bin", // Homebrew on Apple silicon
			"/usr/local/opt/postgresql*/bin",    // Homebrew on Intel
			"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
			"/usr/local/pgsql/bin", // built from source
		},
		programDirs: []string{
			"/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin",
			"/bin", "/usr/sbin", "/usr/local/sbin", "/sbin",
		},
		managers:  managers(),
		accounts:  child.Candidates(),
		elsewhere: []string{"/var/lib", "/var/tmp"},
	}
}

// binaries is one installation of PostgreSQL.
type binaries struct {
	dir     string // holds initdb and postgres
	version string // as postgres --version says it
	major   int
}

func (b binaries) postgres() string { return filepath.Join(b.dir, "postgres") }
func (b binaries) initdb() string   { return filepath.Join(b.dir, "initdb") }

// backup is the program that copies a running server; empty when there is none.
func (b binaries) backup() string {
	dirs := []string{b.dir}
	if program, err := filepath.EvalSymlinks(b.postgres()); err == nil {
		dirs = append(dirs, filepath.Dir(program)) // a link to the server need not come with one to this
	}
	for _, dir := range dirs {
		if path := filepath.Join(dir, "pg_basebackup"); executable(path) {
			return path
		}
	}
	return ""
}

// oldestMajor is the oldest PostgreSQL that the schema runs on.
const oldestMajor = 15

// postgres lists the installations that can be used, newest first.
func (m *machine) postgres() []binaries {
	var dirs []string
	if path, err := m.lookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range m.postgresDirs {
		found, _ := filepath.Glob(pattern) // fails only for a malformed pattern
		dirs = append(dirs, found...)
	}
	var list []binaries
	for _, dir := range dirs {
		if b := inspect(dir); b.major >= oldestMajor {
			list = append(list, b)
		}
	}
	slices.SortStableFunc(list, func(a, b binaries) int { return b.major - a.major })
	return list
}

var majorPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect asks the installation in dir for its version; its major version is 0
// when there is none.
func inspect(dir string) binaries {
	b := binaries{dir: dir}
	if !executable(b.initdb()) || !executable(b.postgres()) {
		return b
	}
	out, err := exec.Command(b.postgres(), "--version").Output()
	if match := majorPattern.FindSubmatch(out); err == nil && match != nil {
		b.version = strings.TrimSpace(string(out))
		b.major, _ = strconv.Atoi(string(match[1])) // digits, by the pattern
	}
	return b
}

// redis is the path of a Redis or Valkey server, and the name by which it must
// be called; both empty when there is none.
func (m *machine) redis() (path, kind string) {
	for _, name := range []string{KindRedis, KindValkey} {
		if path := m.program(name); path != "" {
			return path, name
		}
	}
	// Debian's redis-tools, which sets up no system service, holds the server
	// too: it is one program, which decides by its name what it is.
	if path := m.program("redis-check-rdb"); path != "" && greets(path, KindRedis, "Redis server") {
		return path, KindRedis
	}
	return "", ""
}

// program is the path of a program, empty when there is none.
func (m *machine) program(name string) string {
	if path, err := m.lookPath(name); err == nil {
		return path
	}
	for _, dir := range m.programDirs {
		if path := filepath.Join(dir, name); executable(path) {
			return path
		}
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// greets reports whether a program called by another name presents itself as
// expected.
func greets(path, name, greeting string) bool {
	cmd := exec.Command(path)
	cmd.Args = []string{name, "--version"}
	out, err := cmd.Output()
	return err == nil && bytes.HasPrefix(out, []byte(greeting))
}

// dataMajor is the major version that made a data directory, 0 when there is
// none yet.
func dataMajor(data string) (int, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s/PG_VERSION holds %q, which is no version", data, text)
	}
	return major, nil
}
