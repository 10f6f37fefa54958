package figures_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/proof/figures"
)

const page = `before
<!-- figures of one: begin -->
old
<!-- figures of one: end -->
<!-- figures of two: begin -->
kept
<!-- figures of two: end -->
after
`

func TestOnlyTheMarkedPartIsWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := figures.Write(file, figures.Table{Name: "one", Text: "\n| new |\n\n"}); err != nil {
		t.Fatal(err)
	}
	holds(t, file, strings.Replace(page, "old", "| new |", 1))
	if err := figures.Write(file, figures.Table{Name: "three", Text: "x"}); err == nil || !strings.Contains(err.Error(), "figures of three") {
		t.Errorf("a name without marks: %v", err)
	}
	holds(t, file, strings.Replace(page, "old", "| new |", 1))
}

func TestAFileOfItsOwnHoldsTheTextAlone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "table.md")
	for _, text := range []string{"first", "second"} {
		if err := figures.Write(file, figures.Table{Name: "one", Text: text}); err != nil {
			t.Fatal(err)
		}
		holds(t, file, text+"\n")
	}
}

func holds(t *testing.T, file, want string) {
	t.Helper()
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}
