package devstack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// countName is a file in a kept tree that says how many entries it has: what
// cleans temporary directories up removes old files one by one.
const countName = "scheduler-count"

// copyTree copies the directory from, which keepTree made, to the new directory
// to, and gives it to the account. Symbolic links are refused: a fresh data
// directory has none.
func copyTree(from, to string, acc child.Account) error {
	n, err := copyEntries(from, to, acc)
	if err != nil {
		return err
	}
	count := filepath.Join(to, countName)
	text, err := os.ReadFile(count)
	if err == nil && string(text) != strconv.Itoa(n-1) {
		err = fmt.Errorf("%s is not complete", from)
	}
	return errors.Join(err, os.Remove(count))
}

// keepTree makes to a copy of the directory from, complete or not at all, in
// place of what is there.
func keepTree(from, to string, acc child.Account) error {
	fresh, err := os.MkdirTemp(filepath.Dir(to), filepath.Base(to)+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	tree := filepath.Join(fresh, "tree")
	n, err := copyEntries(from, tree, acc)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tree, countName), []byte(strconv.Itoa(n)), 0o600); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(tree, to)
}

// copyEntries copies a directory and answers how many entries it has.
func copyEntries(from, to string, acc child.Account) (n int, err error) {
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		n++
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case d.IsDir():
			err = os.Mkdir(target, 0o700)
		case d.Type().IsRegular():
			err = copyFile(path, target)
		default:
			err = fmt.Errorf("%s is neither a file nor a directory", path)
		}
		if err != nil {
			return err
		}
		return acc.Give(target)
	})
	return n, err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
