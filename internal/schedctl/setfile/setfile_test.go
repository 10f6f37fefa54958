package setfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/schedctl/setfile"
)

func TestReadJobs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ file, text, want string }{
		"documents":       {"a.yaml", "name: a\n---\nname: b\n---\n# nothing\n", `{"name":"a"} {"name":"b"}`},
		"a list":          {"a.yaml", "- name: a\n- name: b\n", `{"name":"a"} {"name":"b"}`},
		"JSON with tabs":  {"a.json", "[\n\t{\"name\":\t\"a\"}\n]", `{"name":"a"}`},
		"times as text":   {"a.yaml", "name: a\nrunAt: 2026-01-02T03:04:05Z\n", `{"name":"a","runAt":"2026-01-02T03:04:05Z"}`},
		"numbers exactly": {"a.yaml", "name: a\nn: [12345678901234567890, 1.50, 0x10, 1_000]\n", `{"n":[12345678901234567890,1.50,16,1000],"name":"a"}`},
		"words":           {"a.yaml", "name: a\nw: [yes, on, true, ~, '1', 0 0 9 * * 1-5]\n", `{"name":"a","w":["yes","on",true,null,"1","0 0 9 * * 1-5"]}`},
		"anchors":         {"a.yaml", "- &d {name: a, retry: &r {n: 1}}\n- <<: *d\n  name: b\n- {name: c, retry: *r}\n", `{"name":"a","retry":{"n":1}} {"name":"b","retry":{"n":1}} {"name":"c","retry":{"n":1}}`},
		"an empty file":   {"a.yaml", "", ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobs, faults := setfile.Read(test.file, []byte(test.text))
			var texts []string
			for _, job := range jobs {
				texts = append(texts, string(job.JSON))
			}
			if diff := cmp.Diff(test.want, strings.Join(texts, " ")); diff != "" || len(faults) > 0 {
				t.Errorf("%v; the jobs differ (-want +got):\n%s", faults, diff)
			}
		})
	}
}

func TestFaultsSayWhere(t *testing.T) {
	t.Parallel()
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 9; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	for name, test := range map[string]struct{ text, want string }{
		"no YAML":    {"name: a\nb: [\n", "f.yaml:2: "},
		"no name":    {"name: a\n---\n\nb: 1\n", "f.yaml:4: the job has no name"},
		"no job":     {"name: a\n---\n3\n", "f.yaml:3: is no job"},
		"twice":      {"name: a\nb: 1\nb: 2\n", "f.yaml:3: b stands more than once"},
		"no number":  {"name: a\nb: .inf\n", "f.yaml:2: .inf is no number"},
		"no mapping": {"name: a\n<<: 3\n", "f.yaml:2: << brings a mapping"},
		"aliases":    {bomb, "the file has more than 2000000 values"},
	} {
		_, faults := setfile.Read("f.yaml", []byte(test.text))
		if len(faults) != 1 || !strings.Contains(faults[0].String(), test.want) {
			t.Errorf("%s: %v, want %s", name, faults, test.want)
		}
	}
}

func TestPathsHaveLines(t *testing.T) {
	t.Parallel()
	jobs, faults := setfile.Read("f.yaml", []byte("# first\nname: a\nconfig:\n  headers:\n    Accept: x\ntags:\n  - one\n  - two\n---\nname: a\n"))
	if len(jobs) != 2 || len(faults) > 0 {
		t.Fatal(jobs, faults)
	}
	for path, want := range map[string]int{"name": 2, "config.headers.Accept": 5, "config.headers.X-None": 4, "tags[1]": 8, "tags[7]": 6, "timezone": 2} {
		if got := jobs[0].Fault(path, "is wrong"); got.String() != fmt.Sprintf("f.yaml:%d: %s: is wrong", want, path) {
			t.Errorf("%s: %s, want line %d", path, got, want)
		}
	}
	first, faults := setfile.FirstOfEach(jobs)
	if len(first) != 1 || len(faults) != 1 || !strings.HasPrefix(faults[0].String(), "f.yaml:10: name: is \"a\" a second time, after f.yaml:2;") {
		t.Errorf("%v %v", first, faults)
	}
}
