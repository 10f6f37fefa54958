package arch_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A link is a file with the name of another one where a checkout, an archive or a
// packager knows no links, so the repository has none.
func TestNoLinks(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == ".data" || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case entry.Type()&fs.ModeSymlink != 0:
			t.Errorf("%s is a link: copy the file, and have a test compare them", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Helm packages only files of the chart's own folder, so the chart has a copy.
func TestChartHasTheAlerts(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile(filepath.Join(root, "deploy", "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(filepath.Join(root, "deploy", "helm", "scheduler", "alerts.yml"))
	if err != nil || !bytes.Equal(rules, copied) {
		t.Errorf("deploy/helm/scheduler/alerts.yml is another one (%v): run make gen", err)
	}
}
