package chaos

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two reports become one table with the worst of both, in the page's marks.
func TestReportsBecomeOneTable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var files []string
	for i, one := range []summary{
		{Seed: 2, Backend: "auto", Seconds: 300, Faults: map[string]int{"kill worker": 3}, Calls: 10, Succeeded: 8, Repeated: 1, Limits: []recoveryLimit{{What: workerKilled, Times: 3, Alone: -1, Worst: 11, AtMost: 15}}},
		{Seed: 1, Backend: "postgres", Seconds: 300, Faults: map[string]int{"kill worker": 1, "disk full": 1}, Calls: 5, Succeeded: 5, Violations: []string{"I1"}, Limits: []recoveryLimit{{What: workerKilled, Times: 1, Alone: 9.5, Worst: 9.5, AtMost: 15}}},
	} {
		text, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(dir, string(rune('a'+i))+".json"))
		if err := os.WriteFile(files[i], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	page := filepath.Join(dir, "page.md")
	if err := os.WriteFile(page, []byte("<!-- figures of the last long run: begin -->\nold\n<!-- figures of the last long run: end -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c, err := Parse(append([]string{"-out", page}, files...), &out)
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), c, &out, &out); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Seeds 1 and 2, 300 s each, `auto` and `postgres`: 5 faults of 2 kinds, 15 calls, 13 executions that succeeded at their target, 1 further successes of them, **1 violations**.",
		"| " + workerKilled + " | 4 | 15 | 9.5 | 11.0 |",
	} {
		if !strings.Contains(string(written), want) || !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s\n%s", want, written, out.String())
		}
	}
	if strings.Contains(string(written), "old") {
		t.Errorf("the old figures stay:\n%s", written)
	}
}
