package child

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Account is who a child runs as. The zero value is ourselves.
type Account struct {
	name      string
	uid, gid  int
	other     bool // not our own account: needs root to switch to
	namespace bool // our own account, seen from inside as somebody else
}

// Candidates lists the accounts that a server may run as which refuses to be
// root, in the order in which to try them. Unless we are root, that is
// ourselves alone.
func Candidates() []Account {
	if os.Geteuid() != 0 {
		return []Account{Self()}
	}
	var list []Account
	for _, name := range []string{"postgres", "nobody"} {
		if a, ok := lookup(name); ok {
			list = append(list, a)
		}
	}
	if hasNamespaces {
		list = append(list, Account{name: "a user namespace", gid: os.Getegid(), namespace: true})
	}
	return list
}

// Self is our own account.
func Self() Account {
	return Account{name: "ourselves", uid: os.Geteuid(), gid: os.Getegid()}
}

// Owner is the account that the owner of a path has to run as, among those that
// we can be.
func Owner(path string) (Account, error) {
	uid, gid, err := owner(path)
	if err != nil {
		return Account{}, err
	}
	euid := os.Geteuid()
	switch {
	case euid != 0 && uid == euid:
		return Self(), nil
	case euid != 0:
		return Account{}, fmt.Errorf("%s belongs to user id %d and this program runs as %d: start it as that user", path, uid, euid)
	case uid != 0:
		return Account{name: "user id " + strconv.Itoa(uid), uid: uid, gid: gid, other: true}, nil
	case hasNamespaces:
		return Account{name: "a user namespace", gid: gid, namespace: true}, nil
	}
	return Account{}, fmt.Errorf("%s belongs to root, as whom the server refuses to run: give it to another user with chown -R", path)
}

func lookup(name string) (Account, bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return Account{}, false
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err1 != nil || err2 != nil || uid <= 0 {
		return Account{}, false
	}
	return Account{name: name, uid: uid, gid: gid, other: true}, true
}

// String names the account for a log.
func (a Account) String() string { return a.name }

// Command is a command that runs as the account, from the root directory (ours
// may be closed to it) and with env alone, since nothing of our environment
// should reach a server. It is ended with its context; context.Background fits
// what Start starts.
func (a Account) Command(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.Env = env
	cmd.WaitDelay = 10 * time.Second // what it started may hold its output open
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if a.other {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	if a.namespace {
		namespace(cmd.SysProcAttr)
	}
	return cmd
}

// Give makes the account the owner of a path that we made.
func (a Account) Give(path string) error {
	if !a.other {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}

// Owns reports whether a path belongs to the account.
func (a Account) Owns(path string) bool {
	uid, _, err := owner(path)
	return err == nil && uid == a.uid
}

// Reaches reports whether the account may enter every directory on the way to
// path, path included, by the permission bits alone. For ourselves it is not
// asked: there the system's own answer is exact.
func (a Account) Reaches(path string) bool {
	if !a.other && !a.namespace {
		return true
	}
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || !a.enters(info) {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// enters applies the first class of permission bits that fits, as the kernel
// does.
func (a Account) enters(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	mode := info.Mode().Perm()
	switch {
	case int(st.Uid) == a.uid:
		return mode&0o100 != 0
	case int(st.Gid) == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

func owner(path string) (uid, gid int, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("%s: its owner is not known on this system", path)
	}
	return int(st.Uid), int(st.Gid), nil
}
