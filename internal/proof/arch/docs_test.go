package arch_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/config"
)

// update rewrites the lists of variables in docs/reference/configuration.md, .env.example and
// docker-compose.yml, and the list of endpoints in docs/reference/api.md:
//
//	go test ./internal/proof/arch -run 'Variables|Endpoints' -update
var update = flag.Bool("update", false, "rewrite the lists of variables and endpoints")

func TestDocsListTheVariables(t *testing.T) {
	t.Parallel()
	block(t, "docs/reference/configuration.md", "<!-- config:begin -->\n", "<!-- config:end -->", variableTable())
}

func TestEnvExampleListsTheVariables(t *testing.T) {
	t.Parallel()
	block(t, ".env.example", "# config:begin\n", "# config:end", envExample())
}

// A process in a container gets every variable that it reads, and no secret of
// another process.
func TestComposePassesTheVariables(t *testing.T) {
	t.Parallel()
	for _, process := range []string{"migrate", "api", "promoter", "worker"} {
		block(t, "docker-compose.yml", "# config:begin "+process+"\n", "      # config:end "+process+"\n", composeEnvironment(process))
	}
}

// composed are the variables that docker-compose.yml sets itself: the addresses
// of its own servers, and the ports that its health checks ask.
var composed = []string{"DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "HTTP_ADDR", "METRICS_ENABLED", "PROMETHEUS_PORT"}

// mounted are the variables whose default in a container is a place that
// docker-compose.yml mounts: an empty value would hide the one of the image.
var mounted = map[string]string{"RUNNER_CACHE_DIR": "/cache"}

func composeEnvironment(process string) string {
	var lines strings.Builder
	for _, v := range config.Variables() {
		if v.ReadBy(process) && !slices.Contains(composed, v.Name) {
			fmt.Fprintf(&lines, "      %s: ${%s:-%s}\n", v.Name, v.Name, mounted[v.Name])
		}
	}
	return lines.String()
}

// block compares what stands between two marks of a file with what should.
func block(t *testing.T, name, begin, end, want string) {
	t.Helper()
	text := readText(t, name)
	head, rest, found := strings.Cut(text, begin)
	got, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s lacks the marks %q and %q", name, strings.TrimSpace(begin), end)
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, name), []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is out of date (-want +got); `go test ./internal/proof/arch -run %s -update` rewrites it\n%s", name, t.Name(), diff)
	}
}

func variableTable() string {
	var table strings.Builder
	table.WriteString("| variable | read by | changes | default | accepted | meaning |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, v := range config.Variables() {
		changes := ""
		if v.Live {
			changes = "live"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s | %s |\n", v.Name, strings.Join(v.Processes, ", "), changes, v.Default, v.Bounds, v.Meaning)
	}
	return table.String()
}

// envExample leaves out what has a default, as a comment, so that a copy of
// the file keeps following the defaults of later versions.
func envExample() string {
	var lines strings.Builder
	for _, v := range config.Variables() {
		fmt.Fprintf(&lines, "\n# %s\n# %s; default: %s; read by %s\n", v.Meaning, v.Bounds, v.Default, strings.Join(v.Processes, ", "))
		first, _, _ := strings.Cut(v.Default, ";")
		switch first {
		case "required":
			fmt.Fprintf(&lines, "%s=\n", v.Name)
		case "none":
			fmt.Fprintf(&lines, "#%s=\n", v.Name)
		default:
			fmt.Fprintf(&lines, "#%s=%s\n", v.Name, first)
		}
	}
	return strings.TrimPrefix(lines.String(), "\n")
}

// TestComposeSetsVariablesThatExist catches the misspelt variable, which
// would silently leave the default in force.
func TestComposeSetsVariablesThatExist(t *testing.T) {
	t.Parallel()
	var known []string
	for _, v := range config.Variables() {
		known = append(known, v.Name)
	}
	for _, found := range regexp.MustCompile(`(?m)^ +([A-Z][A-Z0-9_]+):`).FindAllStringSubmatch(readText(t, "docker-compose.yml"), -1) {
		name := found[1]
		ofAnother := strings.HasPrefix(name, "POSTGRES_") || strings.HasPrefix(name, "GF_") // images of others
		if !ofAnother && !slices.Contains(known, name) {
			t.Errorf("docker-compose.yml sets %s, which nothing reads", name)
		}
	}
}

// TestDashboardsAndAlertsUseMetricsThatExist looks up every name of a metric
// of ours in deploy among the names that package telemetry registers.
func TestDashboardsAndAlertsUseMetricsThatExist(t *testing.T) {
	t.Parallel()
	registered := regexp.MustCompile(`"(scheduler_[a-z_]+)"`).FindAllStringSubmatch(readText(t, "internal/telemetry/metrics.go")+readText(t, "internal/telemetry/register.go")+readText(t, "internal/telemetry/pool.go"), -1)
	var known []string
	for _, found := range registered {
		known = append(known, found[1])
	}
	files, err := filepath.Glob(filepath.Join(root, "deploy/*/*.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file under deploy: %v", err)
	}
	looked := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bscheduler_[a-z_]+`).FindAllString(string(text), -1) {
			plain := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
			if !slices.Contains(known, name) && !slices.Contains(known, plain) {
				t.Errorf("%s uses the metric %s, which does not exist", file, name)
			}
			looked++
		}
	}
	if looked == 0 {
		t.Error("neither a dashboard nor an alert uses a metric")
	}
}
