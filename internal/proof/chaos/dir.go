package chaos

import (
	"os"
	"path/filepath"
	"syscall"
)

const (
	dirName = "scheduler-chaos-"
	// lockName is the file that a run holds locked in its directory, and that
	// is gone when the run has ended in order.
	lockName = "lock"
)

// newDir makes the directory of a run below base, and removes those of runs
// that were killed.
func newDir(base string) (dir string, lock *os.File, err error) {
	old, _ := filepath.Glob(filepath.Join(base, dirName+"*", lockName)) // fails only for a malformed pattern
	for _, path := range old {
		if held, err := lockFile(path, 0); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
			_ = held.Close()
		}
	}
	if dir, err = os.MkdirTemp(base, dirName); err != nil {
		return "", nil, err
	}
	// It gets its name once it is held.
	path := filepath.Join(dir, lockName)
	if lock, err = lockFile(path+".new", os.O_CREATE); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return dir, lock, err
	}
	// The account that PostgreSQL runs as must reach what is in it.
	return dir, lock, os.Chmod(dir, 0o711)
}

func lockFile(path string, flag int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|flag, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
