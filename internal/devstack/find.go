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
)

// finder knows where programs lie.
type finder struct {
	// lookPath finds a program on the PATH.
	lookPath func(name string) (string, error)
	// postgresDirs are patterns of directories that hold PostgreSQL's programs:
	// most systems keep them off the PATH.
	postgresDirs []string
	// redisDirs are further directories for Redis, likewise.
	redisDirs []string
}

func newFinder() *finder {
	return &finder{
		lookPath: exec.LookPath,
		postgresDirs: []string{
			"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
			"/usr/pgsql-*/bin",                  // PostgreSQL's packages for Fedora and RHEL
			"/usr/libexec/postgresql*",          // Alpine
			"/opt/homebrew/opt/postgresql*/bin", // Homebrew on Apple silicon
			"/usr/local/opt/postgresql*/bin",    // Homebrew on Intel
			"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
			"/usr/local/pgsql/bin", // built from source
		},
		redisDirs: []string{"/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin"},
	}
}

// binaries is one installation of PostgreSQL.
type binaries struct {
	dir   string // holds initdb and postgres
	major int
}

func (b binaries) postgres() string { return filepath.Join(b.dir, "postgres") }
func (b binaries) initdb() string   { return filepath.Join(b.dir, "initdb") }

// oldestMajor is the oldest PostgreSQL that the schema runs on.
const oldestMajor = 15

// postgres lists the installations that can be used, newest first.
func (f *finder) postgres() []binaries {
	var dirs []string
	if path, err := f.lookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range f.postgresDirs {
		found, _ := filepath.Glob(pattern) // fails only for a malformed pattern
		dirs = append(dirs, found...)
	}
	var list []binaries
	for _, dir := range dirs {
		b := binaries{dir: dir}
		if !executable(b.initdb()) || !executable(b.postgres()) {
			continue
		}
		if b.major = majorOf(b.postgres()); b.major >= oldestMajor {
			list = append(list, b)
		}
	}
	slices.SortStableFunc(list, func(a, b binaries) int { return b.major - a.major })
	return list
}

// redis is the path of a Redis or Valkey server, and the name it must be called
// by; empty when there is none.
func (f *finder) redis() (path, kind string) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path := f.program(name); path != "" {
			return path, name
		}
	}
	// Debian's redis-tools, which sets up no system service, holds the server
	// too: the one program decides by its name which of the two it is.
	if path := f.program("redis-check-rdb"); path != "" && answers(path, "redis-server", "Redis server") {
		return path, "redis-server"
	}
	return "", ""
}

func (f *finder) program(name string) string {
	if path, err := f.lookPath(name); err == nil {
		return path
	}
	for _, dir := range f.redisDirs {
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

var majorPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// majorOf is the major version that a postgres program reports, 0 when it
// reports none.
func majorOf(postgres string) int {
	out, err := exec.Command(postgres, "--version").Output()
	if err != nil {
		return 0
	}
	match := majorPattern.FindSubmatch(out)
	if match == nil {
		return 0
	}
	major, _ := strconv.Atoi(string(match[1])) // digits by the pattern
	return major
}

// answers reports whether a program called by another name greets as expected.
func answers(path, name, greeting string) bool {
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
