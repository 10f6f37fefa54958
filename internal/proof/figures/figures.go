// Package figures writes measured tables into the pages of docs.
//
// It owns the marks between which a program may write, and leaves the rest of a
// page as people wrote it. It refuses to invent a place: a page without the marks
// of a name stays as it is.
package figures

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Table is what a program measured, and the name of its marks.
type Table struct{ Name, Text string }

// Write puts each table between its marks in a page. A file that does not exist,
// or has no marks at all, gets the tables alone.
func Write(file string, tables ...Table) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the page: %w", err)
	}
	page := string(old)
	if !strings.Contains(page, "<!-- figures of ") {
		var all []string
		for _, one := range tables {
			all = append(all, strings.TrimSpace(one.Text)+"\n")
		}
		page = strings.Join(all, "\n")
	} else {
		for _, one := range tables {
			if page, err = replace(page, one); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil { // a page, for everybody
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

func replace(page string, one Table) (string, error) {
	begin, end := "<!-- figures of "+one.Name+": begin -->\n", "<!-- figures of "+one.Name+": end -->"
	head, rest, begun := strings.Cut(page, begin)
	_, tail, ended := strings.Cut(rest, end)
	if !begun || !ended {
		return "", fmt.Errorf("there are no marks %q and %q", strings.TrimSpace(begin), end)
	}
	return head + begin + strings.TrimSpace(one.Text) + "\n" + end + tail, nil
}
