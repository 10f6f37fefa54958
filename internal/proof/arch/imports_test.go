package arch_test

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// importTable says what each package may import, and is the map of the tree:
// a line may name only packages that stand above it. It is exact: an import
// without a permission fails, and so does a permission without an import, a
// package without a line and a line without a package. Folders under internal
// are named without it. A name with a colon holds for files of that name only.
//
// Test files may import any package of ours, and testing libraries. Everybody
// may import uuid, which is a word like time.Time.
const importTable = `
package           | from us                                                                                    | from others          | in tests also
# words: no input or output
clock                |  |  |  |
version              |  |  |  |
job/keytemplate      |  |  |  |
period               |  |  |  |
fault                |  |  |  |
fault/suggest        |  |  |  |
schedule/cron        |  |  |  |
schedule             | fault fault/suggest schedule/cron | gronx |  |
statistics/rollup    |  |  |  |
schedule/ics         | fault schedule | ical rrule |  |
# generated, and the schema
api                  |  | chi kin-openapi oapi |  |
api/client           | api |  |  |
db                   |  | pgx |  |
migrations           |  |  |  |
web                  |  |  |  |
secret/keyring       |  |  |  |
# what every process stands on
config               | secret/keyring |  |  |
telemetry            | clock version | prometheus |  |
trace                | clock | otel |  |
trace/tracetest      |  | otel-proto protobuf |  |
turn                 | fault |  |  |
postgres             | clock db fault migrations trace turn | goose pgx | sync |
postgres/columns      |  |  |  |
postgres/divide      | postgres |  |  |
postgres/calls       | clock db:store.go postgres | pgx |  |
certificate          |  |  |  |
devstack/child       |  |  |  |
devstack             | clock devstack/child | miniredis | asynq go-redis |
devstack/leaktest    |  | goleak |  |
queue/redistest      | devstack devstack/leaktest |  | go-redis |
# who asks, who works, what is kept
lease                | clock db:store.go fault postgres telemetry |  |  |
loop                 | clock fault lease telemetry |  | prometheus sync |
tenant               | clock db:store.go fault postgres |  |  |
tenant/hosts         | clock db:store.go postgres |  |  |
partition            | clock db:store.go postgres |  |  |
fleet                | db:store.go postgres |  |  |
settled              | clock db:store.go postgres |  |  |
statistics/collect   | clock db:store.go fault lease loop postgres settled statistics/rollup |  |  |
live                 | config db:store.go fault loop postgres telemetry tenant |  |  |
retention            | clock db:store.go fleet lease loop partition postgres statistics/rollup |  |  |
postgres/refusal     |  |  |  |
postgres/pgtest      | devstack devstack/leaktest migrations partition postgres | pgx |  |
idempotency          | db:store.go fault |  |  |
identity             | clock fault tenant | jwt |  |
apikey               | clock db:store.go fault identity postgres postgres/columns tenant turn |  |  |
identity/oidc        |  | jwt |  |
identity/jwks        | clock fault |  |  |
identity/signin      | clock fault identity |  |  |
identity/signin/signintest |  | jwt |  |
audit                | db:store.go postgres postgres/columns tenant |  |  |
# what runs
executor             | fault fault/suggest |  |  |
dispatch             | db:store.go fault postgres |  |  |
deadletter           | db:store.go fault postgres postgres/columns tenant |  |  |
deadletter/collect   | clock db:store.go deadletter fleet lease loop postgres settled telemetry |  |  |
objective            | db:store.go fault postgres tenant |  |  |
objective/count      | db:store.go fleet lease loop objective postgres settled |  |  |
notification         | db:store.go fault postgres postgres/columns schedule secret/keyring tenant |  |  |
notification/derive  | db:store.go lease loop notification postgres postgres/columns postgres/divide settled telemetry |  |  |
monitor              | db:store.go fault notification postgres postgres/columns schedule tenant |  |  |
monitor/intake       | clock db:store.go fault monitor postgres postgres/columns postgres/divide |  |  |
monitor/past         | clock db:store.go period postgres tenant |  |  |
monitor/watch        | clock db:store.go fleet lease loop monitor monitor/intake postgres postgres/divide |  |  |
secret               | db:store.go fault notification postgres postgres/columns secret/keyring tenant |  |  |
output               | clock db:store.go executor fault loop postgres postgres/divide secret telemetry tenant |  |  |
calendar             | db:store.go fault idempotency postgres postgres/columns schedule tenant |  |  |
job                  | calendar db:store.go dispatch fault fault/suggest idempotency job/keytemplate postgres postgres/columns schedule secret secret/keyring tenant |  |  |
job/schedules        | calendar job postgres schedule |  |  |
job/definition       | db:store.go job postgres |  |  |
forecast             | calendar clock db:store.go job period postgres schedule tenant |  |  |
execution            | clock db:store.go deadletter dispatch fault idempotency job job/keytemplate partition postgres postgres/columns secret tenant |  |  |
trace/root           | clock execution tenant trace |  |  |
deadletter/replay    | clock db:store.go deadletter execution fault idempotency loop postgres postgres/columns telemetry tenant |  |  |
backfill             | calendar db:store.go dispatch execution fault idempotency job partition postgres postgres/columns schedule secret tenant |  |  |
egress/egresstest    |  |  |  |
egress               |  | ssrf |  |
breaker              | clock db:store.go fault loop postgres postgres/columns telemetry tenant |  |  |
signature            |  |  |  |
notification/send    | clock db:store.go egress fault loop notification postgres secret/keyring signature telemetry version | go-mail | go-smtp |
ratelimit            | clock trace | go-redis |  |
queue                | clock fault trace | asynq go-redis |  |
statistics           | db:store.go fault period postgres postgres/columns queue statistics/rollup tenant |  |  |
executor/httpcall    | clock egress executor fault fault/suggest identity/oidc signature trace version | expr |  |
executor/parameters  | executor fault fault/suggest |  |  |
catalogue            | db:store.go executor/parameters postgres |  |  |
executor/function    | executor executor/parameters fault |  |  |
executor/sandbox     |  | landlock sys |  |
executor/command/commandtest |  |  |  |
executor/command     | clock executor executor/sandbox fault trace | sys |  |
function             | db:store.go fault postgres postgres/columns tenant |  |  |
executor/runner/wire |  |  |  |
executor/runner/guest | clock executor executor/runner/wire | wazero |  |
executor/runner      | clock executor executor/runner/guest executor/runner/wire executor/sandbox |  |  |
executor/runner/wasmtest |  |  |  |
executor/remote      | executor executor/parameters fault |  |  |
executor/wasm        | executor executor/parameters executor/runner executor/runner/wire fault function |  |  |
executor/javascript  | egress executor executor/httpcall executor/parameters executor/runner executor/runner/wire fault trace version |  |  |
# the processes: the three of them never import one another
parking              | db:store.go dispatch fault partition postgres |  |  |
hint                 | dispatch postgres queue |  |  |
callback             | dispatch execution fault hint job/definition postgres postgres/divide queue secret secret/keyring telemetry |  |  |
remote               | callback clock db:store.go dispatch executor executor/parameters executor/remote fault job/definition loop output postgres secret secret/keyring telemetry tenant trace |  |  |
maintenance          | breaker callback clock db:store.go dispatch fault fleet hint job job/schedules lease loop parking partition postgres postgres/divide queue schedule settled telemetry tenant |  |  |
promoter             | audit backfill clock db:store.go dispatch execution fault hint job job/keytemplate job/schedules loop partition postgres postgres/columns postgres/divide queue schedule telemetry tenant |  | sync |
worker               | breaker clock dispatch executor fault fleet job job/definition output postgres postgres/divide queue secret telemetry trace |  |  |
rest/strictjson      | fault |  |  |
rest/patch           |  |  |  |
rest/cursor          |  |  |  |
rest/contract        | api fault fault/suggest rest/strictjson | kin-openapi |  |
rest/contract/responses |  |  |  |
rest/asset           |  |  |  |
rest/reference       | rest/asset | swgui |  |
rest/console         | rest/asset |  |  |
rest/parts           | apikey audit backfill breaker calendar callback clock deadletter deadletter/replay execution fault forecast function identity identity/signin job live monitor monitor/intake monitor/past notification objective output ratelimit remote secret statistics statistics/collect telemetry tenant trace |  |  |
rest                 | api apikey audit backfill breaker calendar callback clock deadletter deadletter/replay dispatch execution executor fault fault/suggest forecast function idempotency identity identity/signin job live monitor monitor/intake monitor/past notification objective output ratelimit remote rest/console rest/contract rest/cursor rest/parts rest/patch rest/reference rest/strictjson schedule schedule/ics secret secret/keyring statistics statistics/collect telemetry tenant tenant/hosts trace turn version web | chi sync | jwt kin-openapi |
# wiring, and the programs
app                  | apikey audit backfill breaker calendar callback catalogue certificate clock config deadletter deadletter/collect deadletter/replay devstack dispatch egress execution executor executor/command executor/function executor/httpcall executor/javascript executor/remote executor/runner executor/sandbox executor/wasm fault fleet forecast function hint identity identity/jwks identity/oidc identity/signin job lease live loop maintenance monitor monitor/intake monitor/past monitor/watch notification notification/derive notification/send objective objective/count output partition postgres postgres/calls promoter queue ratelimit remote rest/console rest/parts retention secret secret/keyring statistics statistics/collect telemetry tenant tenant/hosts trace trace/root version worker | sync |  |
importer             | schedule | sigs-yaml | robfig |
schedctl/setfile     |  | yaml3 |  |
schedctl             | api api/client clock importer schedctl/setfile version | cobra ojg sigs-yaml sync | kin-openapi |
cmd/schedctl         | schedctl |  |  |
proof/figures        |  |  |
proof/broken         |  |  |
proof/bench/bare     | clock identity postgres | pgx:store.go |  |
proof/bench          | app clock config db:store.go devstack devstack/child dispatch execution idempotency identity job lease postgres postgres/refusal proof/bench/bare proof/broken proof/figures queue statistics/collect statistics/rollup telemetry tenant | pgx:store.go |  |
proof/seed           | clock devstack fault lease postgres schedule statistics/collect telemetry | pgx:store.go |  |
cmd/seed             | proof/seed |  |  |
api/functions        | app config executor executor/function executor/parameters executor/sandbox |  |  |
cmd/exampleremote    | api api/client |  |  |
cmd/exampleworker    | api/functions |  |  |
cmd/internal/program | config telemetry version |  |  |
cmd/api              | app cmd/internal/program config executor/sandbox rest |  |  |
cmd/bench            | proof/bench |  |  |
cmd/migrate          | app cmd/internal/program config |  |  |
cmd/promoter         | app cmd/internal/program config |  |  |
cmd/standalone       | app cmd/internal/program config executor/sandbox rest |  |  |
cmd/worker           | app cmd/internal/program config executor/sandbox |  |  |
# proof
proof/chaos          | api app clock config devstack devstack/child executor executor/function identity postgres postgres/refusal proof/broken proof/figures | pgx:store.go |  |
cmd/chaos            | app cmd/internal/program config executor/sandbox proof/chaos rest |  |  |
proof/simulation     | dispatch clock execution job job/keytemplate schedule |  |  |
proof/e2e            |  |  | jwt |
deploy/probe         |  |  |  |
`

// modules gives the third-party modules the names that the table uses.
var modules = map[string]string{
	"asynq":       "github.com/hibiken/asynq",
	"cobra":       "github.com/spf13/cobra",
	"ojg":         "github.com/ohler55/ojg",
	"sigs-yaml":   "sigs.k8s.io/yaml",
	"yaml3":       "github.com/oasdiff/yaml3",
	"chi":         "github.com/go-chi/chi/v5",
	"expr":        "github.com/expr-lang/expr",
	"go-redis":    "github.com/redis/go-redis/v9",
	"go-mail":     "github.com/wneessen/go-mail",
	"go-smtp":     "github.com/emersion",
	"goose":       "github.com/pressly/goose/v3",
	"gronx":       "github.com/adhocore/gronx",
	"ical":        "github.com/arran4/golang-ical",
	"jwt":         "github.com/golang-jwt/jwt/v5",
	"kin-openapi": "github.com/getkin/kin-openapi",
	"landlock":    "github.com/landlock-lsm/go-landlock",
	"miniredis":   "github.com/alicebob/miniredis/v2",
	"oapi":        "github.com/oapi-codegen",
	"otel":        "go.opentelemetry.io/otel",
	"otel-proto":  "go.opentelemetry.io/proto/otlp",
	"protobuf":    "google.golang.org/protobuf",
	"pgx":         "github.com/jackc/pgx/v5",
	"prometheus":  "github.com/prometheus",
	"robfig":      "github.com/robfig/cron/v3",
	"rrule":       "github.com/teambition/rrule-go",
	"ssrf":        "code.dny.dev/ssrf",
	"swgui":       "github.com/swaggest/swgui",
	"sync":        "golang.org/x/sync",
	"sys":         "golang.org/x/sys",
	"wazero":      "github.com/tetratelabs/wazero",
	"uuid":        "github.com/google/uuid",
	// testing libraries, free in every test file
	"cmp":    "github.com/google/go-cmp",
	"goleak": "go.uber.org/goleak",
	"rapid":  "pgregory.net/rapid",
}

// testLibraries are the modules that every test file may import; pgx is among
// them because tests look into the real database.
var testLibraries = []string{"cmp", "goleak", "pgx", "rapid"}

// doors are the modules that have one home each, so that replacing one, or
// auditing what it may do, means reading one package. The table above may
// name them in these packages, and the ones below them, only; "store.go" is
// every file of that name.
var doors = map[string][]string{
	"asynq":       {"queue"},
	"go-redis":    {"queue", "ratelimit"},
	"chi":         {"rest", "api"},
	"expr":        {"executor/httpcall"},
	"kin-openapi": {"rest", "api"},
	"pgx":         {"postgres", "partition", "db", "store.go"},
	"go-mail":     {"notification/send"},
	"goose":       {"postgres"},
	"otel":        {"trace"},
	"prometheus":  {"telemetry"},
	"jwt":         {"identity"},
	"gronx":       {"schedule"},
	"ical":        {"schedule/ics"},
	"rrule":       {"schedule/ics"},
	"robfig":      {"schedule", "importer"},
	"ssrf":        {"egress"},
	"miniredis":   {"devstack"},
	"landlock":    {"executor/sandbox"},
	"wazero":      {"executor/runner/guest"},
}

// strangers are packages that meet in PostgreSQL and Redis, as the processes
// do, and never import one another.
var strangers = []string{"rest", "promoter", "worker"}

// permission is one line of the table.
type permission struct {
	pkg                 string
	ours, others, tests []string
	above               []string // the packages whose lines come before
}

func permissions(t *testing.T) map[string]permission {
	t.Helper()
	table := make(map[string]permission)
	var above []string
	for line := range strings.SplitSeq(importTable, "\n") {
		cells := strings.Split(line, "|")
		if strings.HasPrefix(line, "#") || len(cells) < 4 || strings.TrimSpace(cells[0]) == "package" {
			continue
		}
		p := permission{
			pkg: strings.TrimSpace(cells[0]), ours: strings.Fields(cells[1]), others: strings.Fields(cells[2]),
			tests: strings.Fields(cells[3]), above: slices.Clone(above),
		}
		if _, twice := table[p.pkg]; twice {
			t.Errorf("%s has two lines", p.pkg)
		}
		table[p.pkg] = p
		above = append(above, p.pkg)
	}
	return table
}

// use is one import of a package: which file of it imports what.
type use struct{ file, name, at string }

// uses lists what the files of each package import, from us and from others,
// by the names that the table uses.
func uses(t *testing.T, test bool) (ours, others map[string][]use) {
	t.Helper()
	ours, others = make(map[string][]use), make(map[string][]use)
	for _, s := range tree(t) {
		if s.test != test {
			continue
		}
		for name, at := range s.imports() {
			one := use{file: path.Base(s.path), at: at}
			if inside, ok := strings.CutPrefix(name, module); ok {
				one.name = short(inside)
				ours[s.pkg] = append(ours[s.pkg], one)
				continue
			}
			if first, _, _ := strings.Cut(name, "/"); !strings.Contains(first, ".") {
				continue // the standard library
			}
			if one.name = moduleName(name); one.name != "uuid" {
				others[s.pkg] = append(others[s.pkg], one)
			}
		}
	}
	return ours, others
}

// moduleName is the table's name of the module that a package belongs to,
// and the path itself when the module has none.
func moduleName(imported string) string {
	for name, prefix := range modules {
		if imported == prefix || strings.HasPrefix(imported, prefix+"/") {
			return name
		}
	}
	return imported
}

// allows says whether the names of a cell cover a use, and by which of them.
func allows(cell []string, one use) (string, bool) {
	for _, name := range cell {
		plain, file, some := strings.Cut(name, ":")
		if plain == one.name && (!some || file == one.file || file == "store.go" && isStore(one.file)) {
			return name, true
		}
	}
	return "", false
}

// isStore says that a file is where a package meets its rows; a store too
// long for one file goes on in store_….go.
func isStore(file string) bool {
	return file == "store.go" || strings.HasPrefix(file, "store_")
}

// compare reports each use that the cell does not cover and each name in the
// cell that covers no use.
func compare(t *testing.T, pkg, what string, cell []string, found []use) {
	t.Helper()
	used := make(map[string]bool)
	for _, one := range found {
		by, ok := allows(cell, one)
		if !ok {
			t.Errorf("%s: %s imports %s, which its line in the table does not name under %q", one.at, pkg, one.name, what)
		}
		used[by] = true
	}
	for _, name := range cell {
		if !used[name] {
			t.Errorf("the table lets %s import %s under %q, and it does not: take that out", pkg, name, what)
		}
	}
}

// A worker starts itself again, twice for each command that a job runs. The contract and
// the library that reads it took 10 of the 15 ms of such a start.
func TestWorkerDoesNotHaveTheContract(t *testing.T) {
	t.Parallel()
	ours, others := uses(t, false)
	seen := map[string]bool{}
	var visit func(pkg, by string)
	visit = func(pkg, by string) {
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		if pkg == "api" {
			t.Errorf("%s has the contract", by)
		}
		for _, one := range others[pkg] {
			if one.name == "kin-openapi" {
				t.Errorf("%s has the library that reads the contract", by)
			}
		}
		for _, one := range ours[pkg] {
			visit(one.name, by+", "+one.name)
		}
	}
	visit("cmd/worker", "cmd/worker")
	if !seen["app"] {
		t.Error("the imports of cmd/worker were not followed")
	}
}

func TestImportsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	table := permissions(t)
	ours, others := uses(t, false)
	exist := packages(tree(t))
	for _, pkg := range exist {
		line, ok := table[pkg]
		if !ok {
			t.Errorf("package %s has no line in the table; it imports %v from us and %v from others", pkg, names(ours[pkg]), names(others[pkg]))
			continue
		}
		compare(t, pkg, "from us", line.ours, ours[pkg])
		compare(t, pkg, "from others", line.others, others[pkg])
	}
	for pkg := range table {
		if !slices.Contains(exist, pkg) {
			t.Errorf("the table has a line for %s, which does not exist", pkg)
		}
	}
}

func names(found []use) []string {
	set := make(map[string]bool)
	for _, one := range found {
		set[one.name] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func TestTheTableRunsOneWay(t *testing.T) {
	t.Parallel()
	for pkg, line := range permissions(t) {
		for _, name := range line.ours {
			plain, _, _ := strings.Cut(name, ":")
			if !slices.Contains(line.above, plain) {
				t.Errorf("%s may import %s, whose line is not above its own", pkg, plain)
			}
			if forTests(plain) && !forTests(pkg) {
				t.Errorf("%s is compiled into the program and may import %s, which is for tests", pkg, plain)
			}
			if slices.Contains(strangers, pkg) && slices.Contains(strangers, plain) {
				t.Errorf("%s may import %s: they meet in the database only", pkg, plain)
			}
		}
	}
}

func TestEachDoorHasOneHome(t *testing.T) {
	t.Parallel()
	for pkg, line := range permissions(t) {
		for _, name := range line.others {
			plain, file, _ := strings.Cut(name, ":")
			homes, guarded := doors[plain]
			top, _, _ := strings.Cut(pkg, "/")
			if guarded && !slices.Contains(homes, top) && !slices.Contains(homes, pkg) && !slices.Contains(homes, file) {
				t.Errorf("%s may import %s, which only %v may", pkg, name, homes)
			}
		}
	}
}

// TestRowsStopAtTheStore keeps the generated queries and their row types in
// files named store.go, so that a renamed column changes no decision.
func TestRowsStopAtTheStore(t *testing.T) {
	t.Parallel()
	for _, s := range tree(t) {
		at, imported := s.imports()[module+"db"]
		if imported && !s.test && !forTests(s.pkg) && s.pkg != "postgres" && !isStore(path.Base(s.path)) {
			t.Errorf("%s: only files named store.go or store_….go import db", at)
		}
	}
}

func TestImportsOfTests(t *testing.T) {
	t.Parallel()
	table := permissions(t)
	_, others := uses(t, true)
	for pkg, found := range others {
		line := table[pkg] // arch itself has none: it is tests only
		var extra []use
		for _, one := range found {
			_, ours := allows(line.others, one)
			if !ours && !slices.Contains(testLibraries, one.name) {
				extra = append(extra, one)
			}
		}
		compare(t, pkg, "in tests also", line.tests, extra)
	}
}
