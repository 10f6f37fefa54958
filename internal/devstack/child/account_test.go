package child

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// openDir is a directory that every account may enter: those of testing are
// below one that only their owner may.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "child-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReaches(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	below := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	other := Account{uid: 4_000_000, gid: 4_000_001, other: true}
	sameGroup := Account{uid: 4_000_000, gid: os.Getegid(), other: true}
	inside := Account{uid: os.Geteuid(), gid: os.Getegid(), namespace: true}
	for _, tc := range []struct {
		name                     string
		mode                     os.FileMode
		other, sameGroup, inside bool
	}{
		{"open", 0o755, true, true, true},
		{"passage only", 0o711, true, true, true},
		{"group only", 0o750, false, true, true},
		{"owner only", 0o700, false, false, true},
		{"all but the group", 0o705, true, false, true},
		{"nobody", 0o600, false, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.Chmod(filepath.Join(dir, "a"), tc.mode); err != nil {
				t.Fatal(err)
			}
			for _, who := range []struct {
				name string
				acc  Account
				want bool
			}{{"other", other, tc.other}, {"same group", sameGroup, tc.sameGroup}, {"namespace", inside, tc.inside}} {
				// A directory that we may not look into is not reachable either.
				if got := who.acc.Reaches(below); got != (who.want && (os.Geteuid() == 0 || tc.mode&0o100 != 0)) {
					t.Errorf("%s: %v", who.name, got)
				}
			}
			if !Self().Reaches(below) {
				t.Error("ourselves are never asked")
			}
		})
	}
	if other.Reaches(filepath.Join(dir, "none")) {
		t.Error("a directory that is not there is reached")
	}
}

// PostgreSQL refuses root by its effective user id, so none of the candidates
// may see 0.
func TestCandidatesAreNotRoot(t *testing.T) {
	t.Parallel()
	list := Candidates()
	if len(list) == 0 {
		t.Fatal("none")
	}
	dir := openDir(t)
	for _, acc := range list {
		out, err := acc.Command(t.Context(), []string{"PATH=/usr/bin:/bin"}, "/bin/sh", "-c", "id -u; pwd; env").CombinedOutput()
		if err != nil {
			if acc.namespace {
				t.Logf("no user namespaces here: %v", err)
				continue
			}
			t.Fatalf("%s: %v: %s", acc, err, out)
		}
		lines := strings.Split(string(out), "\n")
		if id, err := strconv.Atoi(lines[0]); err != nil || id == 0 {
			t.Errorf("%s: user id %s", acc, lines[0])
		}
		if lines[1] != "/" {
			t.Errorf("%s: runs in %s", acc, lines[1])
		}
		if bytes.Contains(out, []byte("HOME=")) {
			t.Errorf("%s: our environment got through: %s", acc, out)
		}
		checkGift(t, acc, filepath.Join(dir, fileName(acc)))
	}
}

func fileName(acc Account) string { return strings.ReplaceAll(acc.String(), " ", "-") }

// checkGift gives a private directory to the account, which must then be able
// to write there, and be recognised as its owner.
func checkGift(t *testing.T, acc Account, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := acc.Give(dir); err != nil {
		t.Fatal(err)
	}
	if !acc.Owns(dir) {
		t.Errorf("%s does not own what it was given", acc)
	}
	again, err := Owner(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []Account{acc, again} {
		if out, err := a.Command(context.Background(), nil, "/bin/sh", "-c", "echo x >>'"+dir+"/f'").CombinedOutput(); err != nil {
			t.Errorf("%s, found as %s, cannot write: %v: %s", acc, a, err, out)
		}
	}
}

func TestOwnerOfAnothersFile(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may be anyone")
	}
	if _, err := Owner("/"); err == nil || !strings.Contains(err.Error(), "start it as that user") {
		t.Errorf("error %v", err)
	}
}
