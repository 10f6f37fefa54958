package chaos

import (
	"os"
	"path/filepath"
	"testing"
)

// The next run removes the directory of a run that was killed; one that
// lives, and logs that were kept, are not.
func TestDirsOfKilledRunsGo(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	killed, lock, err := newDir(base)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(base, dirName+"kept")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	lives, lock, err := newDir(base)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	_, third, err := newDir(base)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	for dir, want := range map[string]bool{killed: false, kept: true, lives: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %t", dir, err, want)
		}
	}
}
