package arch_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// crossTenant are the queries that see the rows of every tenant, each with
// the one who may call it. Everybody else's queries name the tenant.
var crossTenant = map[string]string{
	"ClaimDueJobs":            "promoter",
	"LockDueJobsInTurns":      "promoter, where more is due than a pass takes",
	"AdvanceJobs":             "promoter",
	"ParkJobs":                "promoter",
	"PollDue":                 "promoter",
	"NextDue":                 "promoter",
	"AwaitDueJob":             "promoter, for one job that it found locked",
	"LockExecutionsOfJobs":    "promoter, for jobs that it holds locked",
	"ListCalendarsOfJobs":     "promoter and maintenance, for the jobs that they hold",
	"InsertDueExecutions":     "promoter",
	"InsertSkippedExecutions": "promoter",

	"ClaimBackfills":           "promoter",
	"CountActiveByBackfills":   "promoter, for backfills that it holds locked",
	"InsertBackfillExecutions": "promoter, for backfills that it holds locked",
	"AdvanceBackfill":          "promoter, for the row that it holds locked",
	"HoldBackfill":             "promoter: one that fails alone",

	"ResumePausedJobs":       "maintenance: pauses end by themselves",
	"ListFailingJobs":        "maintenance: jobs that fail stop",
	"StopFailingJobs":        "maintenance",
	"MendSchedule":           "promoter: a due schedule without its job",
	"ListJobsToAudit":        "maintenance: a sample of all jobs",
	"CountOutcomesOfJobs":    "maintenance",
	"FindWork":               "maintenance",
	"KeepJobGauges":          "the collector of metrics",
	"ListMissedRangesOfJobs": "maintenance",
	"RecordAudit":            "maintenance",

	"ClaimExecutions":         "worker",
	"CompleteExecutions":      "worker",
	"LockJobs":                "worker, before it counts the slots of jobs",
	"LockFreeJobs":            "worker, before it counts the slots of jobs that nobody holds",
	"ListUnclaimedExecutions": "worker: what a claim left for another way or another worker",
	"ClaimLimitedExecutions":  "worker",
	"ReleaseExecutions":       "worker",
	"HoldExecutions":          "worker",

	"CountFailedCalls":  "worker: what its calls met",
	"OpenBreakers":      "worker, for breakers that it counted failures of",
	"ForgetFailures":    "worker: what its calls met",
	"ListAllBreakers":   "worker: where no call may go",
	"DeleteOldBreakers": "maintenance",

	"ListExecutionsOfWorker":  "worker",
	"ChooseShard":             "worker: takes the shard of the fewest others",
	"ListNextExecutions":      "worker and maintenance: whose turn it is when runs ended",
	"ListCancelledRuns":       "worker",
	"ListPooledExecutions":    "worker",
	"HasUnhintedExecutions":   "worker",
	"ListUnblockedExecutions": "worker",
	"PoolExecutions":          "worker and hints: executions whose hint was not sent",
	"ListDefinitions":         "workers and callbacks, which act for all tenants",

	"InsertExecutionOutput": "worker: output of what it runs",
	"StoreProgress":         "worker",
	"DeleteOldOutput":       "retention",
	"DeleteOldProgress":     "retention",

	"AwaitCallbacks":     "worker",
	"ResumeAwaited":      "callbacks and maintenance, for attempts that a fence names",
	"ProlongAwaited":     "maintenance",
	"ListOverdueAwaited": "maintenance",
	"PutOffAwaited":      "maintenance",
	"ShortenAwaited":     "the API, for claims that a fence names",

	"ListClaimableFunctions": "the API, for claims of tenants' workers that wait",

	"ReassignExecutions":           "maintenance",
	"ListLostExecutions":           "maintenance",
	"ListLateExecutions":           "maintenance",
	"ParkEndedExecutions":          "worker: outcomes that the database refuses",
	"ParkLostExecutions":           "maintenance",
	"ListParkedExecutions":         "maintenance",
	"StoreParkedExecution":         "maintenance",
	"PutOffParkedExecution":        "maintenance",
	"DropParkedExecution":          "maintenance: of tenants that are being deleted",
	"CountParkedExecutions":        "maintenance",
	"PoolLateExecutions":           "maintenance, and the worker while hints do not come",
	"DeleteExpiredIdempotencyKeys": "retention",
	"DeleteOldExecutionRetries":    "retention",

	"ListPartitionStarts": "the list of executions: the catalog alone, no rows",

	"ListDriftedTenants": "maintenance: counts of what runs that differ from the rows",
	"EnsureRunningCount": "maintenance",
	"LockRunningCount":   "maintenance, before it counts again",
	"ReconcileRunning":   "maintenance, for counts that it holds locked",

	"LockSecretsToRewrap":        "the rotation of keys",
	"RewrapSecrets":              "the rotation of keys",
	"LockJobCredentialsToRewrap": "the rotation of keys",
	"RewrapJobCredentials":       "the rotation of keys",
	"CountSealedByKey":           "the rotation of keys",
	"ListAuditChains":            "the verification of all records",

	"ListTenants":               "platform administrators",
	"ListDailyBounds":           "promoter",
	"ListAllowedHosts":          "whatever calls out for tenants",
	"CountExecutionsByTenants":  "promoter",
	"ReturnExecutionsByTenants": "promoter",
	"ListTenantsToHold":         "maintenance: tenants that are suspended or deleted",
	"ListTenantsToFree":         "maintenance",
	"ListDeletingTenants":       "maintenance",
	"ListCancellations":         "maintenance: what is to be cancelled in pieces",
	"CountNextWaiting":          "maintenance, one process at a time: admissions compare with it",
	"KeepWaiting":               "maintenance, likewise",
	"ListFullBacklogs":          "promoter",
	"ListSuspendedTenants":      "maintenance, likewise",

	"CountActiveExecutions": "the service's gauges",
	"CountDueSoon":          "the service's gauges",
	"MakePartition":         "partition maintenance",
	"DetachPartition":       "retention",
	"DropPartition":         "retention",
	"DeleteOldJobs":         "retention",
	"DeleteOldJobVersions":  "retention",
	"DeleteOldBackfills":    "retention",
	"DeleteFineMetrics":     "retention",
	"DeleteOldMetrics":      "retention",
	"TakeCancelTurn":        "cancelling in pieces; it reads no tables",
	"ListWriters":           "the passes that read what ended; it reads no tables of ours",
	"LockMetricCursor":      "the collector of metrics",
	"CountOutcomes":         "the collector of metrics",
	"FindIntervalEnd":       "the collector of metrics",
	"FindIntervalStart":     "the collector of metrics",
	"ListOutcomeCells":      "the collector of metrics",
	"InsertOutcomeDeltas":   "the collector of metrics",
	"ClaimFold":             "the process that folds what the collector counted",
	"DeleteOldRollups":      "retention",
	"ListAuditShards":       "retention",
	"TakeMetrics":           "the collector of metrics",
	"OldestDue":             "partition maintenance",

	"ListCollectingDeliveries":   "the pass that derives events",
	"UpdateCollectingDeliveries": "the pass that derives events",
	"ListLastDeliveries":         "the pass that derives events",
	"LockDeadLetterCursor":       "the pass that makes dead letters",
	"MoveDeadLetterCursor":       "the pass that makes dead letters",
	"FindFailedIntervalEnd":      "the pass that makes dead letters",
	"ListFailedExecutions":       "the pass that makes dead letters",
	"InsertDeadLetters":          "the pass that makes dead letters",
	"DeleteRetriedDeadLetters":   "the pass that counts dead letters",
	"CountDeadLetters":           "the pass that counts dead letters",
	"DeleteOldDeadLetters":       "retention",
	"ListDueReplays":             "the pass that replays dead letters",
	"DeleteOldDeadLetterReplays": "retention",

	"LockMonitorsByKeys":    "pings, whose key names no tenant",
	"FindOpenMonitorRuns":   "pings, of monitors that they hold",
	"UpdateMonitorStates":   "pings and the watcher, of monitors that they hold",
	"UpsertMonitorRuns":     "pings and the watcher, of monitors that they hold",
	"InsertMonitorEvents":   "pings and the watcher, of monitors that they hold",
	"TouchMonitorIntake":    "the processes that take pings",
	"EndMonitorTaker":       "the processes that take pings",
	"GetMonitorFront":       "the processes that take pings",
	"TouchMonitorFront":     "the processes that take pings",
	"GetMonitorIntake":      "the watcher",
	"ListDueMonitors":       "the watcher",
	"LockDueMonitors":       "the watcher",
	"PutOffMonitor":         "the watcher: one that fails alone",
	"ListMonitorGaps":       "the watcher",
	"ListMonitorEvents":     "the pass that tells what monitors found",
	"ReadMonitorEvents":     "the pass that tells what monitors found",
	"DeleteMonitorEvents":   "the pass that tells what monitors found",
	"CountMonitorsByStatus": "the service's gauges",
	"DeleteOldMonitorRuns":  "retention",
	"DeleteOldMonitorGaps":  "retention",

	"HasObjectives":            "the pass that counts for objectives",
	"LockObjectiveCursor":      "the pass that counts for objectives",
	"MoveObjectiveCursor":      "the pass that counts for objectives",
	"FindObjectiveIntervalEnd": "the pass that counts for objectives",
	"AddObjectiveCounts":       "the pass that counts for objectives",
	"MeasureObjectives":        "the pass that counts for objectives",
	"DeleteOldObjectiveCounts": "the pass that counts for objectives",

	"ListDueDeadlines": "the pass that finds what did not run in time",
	"LockDeadlines":    "the pass that finds what did not run in time",
	"CheckDeadlines":   "the pass that finds what did not run in time",
	"MoveDeadlines":    "the pass that finds what did not run in time",
	"DeleteDeadlines":  "the pass that finds what did not run in time",

	"LockNotificationCursor":          "the pass that derives events",
	"MoveNotificationCursor":          "the pass that derives events",
	"ListNotificationsOfTenants":      "the pass that derives events",
	"WakeNotifications":               "the pass that derives events",
	"ListNotableOutcomes":             "the pass that derives events",
	"ListDisabledJobs":                "the pass that derives events",
	"InsertNotificationDeliveries":    "the pass that derives events",
	"CountWaitingDeliveries":          "the pass that derives events",
	"ListJobFailures":                 "the pass that derives events",
	"UpsertJobFailures":               "the pass that derives events",
	"ListCompletedDurations":          "the pass that derives events",
	"ListJobDurations":                "the pass that derives events",
	"UpsertJobDurations":              "the pass that derives events",
	"DeleteStaleJobDurations":         "retention",
	"DeleteJobFailures":               "the pass that derives events",
	"ClaimNotifications":              "the pass that sends messages",
	"MeasureNotifications":            "the metrics",
	"DeleteOldDeliveries":             "retention",
	"DeleteStaleJobFailures":          "retention",
	"LockNotificationSecretsToRewrap": "the rotation of keys",
	"RewrapNotificationSecrets":       "the rotation of keys",
}

// sqlInGo are the places outside db/queries that hold SQL, each with the
// reason. Test set-up may hold some too.
var sqlInGo = map[string]string{
	"internal/postgres/postgres.go":            "asks the catalogue about the session's role",
	"internal/postgres/tx.go":                  "sets the tenant of a transaction",
	"internal/postgres/needs.go":               "asks the catalogue what a server and a login may do, before there is a schema",
	"internal/postgres/server.go":              "asks for the server's settings, in a catalogue that sqlc does not know",
	"internal/postgres/migrate.go":             "asks for the schema's version, whatever the schema",
	"internal/postgres/migrate_wait.go":        "watches a migration, whatever the schema",
	"internal/postgres/history_key.go":         "changes indexes one partition at a time, which no migration can",
	"internal/postgres/login.go":               "makes the login role, whatever the schema",
	"internal/proof/chaos/store.go":            "compares the records of all tenants with what the targets saw, on a database of its own",
	"internal/proof/chaos/store_server.go":     "promotes standbys, of servers of its own, refuses rows and plants backlogs",
	"internal/proof/bench/store.go":            "reads what a measurement left behind, of all tenants, on a database of its own",
	"internal/proof/bench/store_history.go":    "the same: what the API is measured with",
	"internal/proof/bench/store_statements.go": "the same: what PostgreSQL counted of its statements",
	"internal/proof/bench/bare/store.go":       "the rows of an API that is not the product",
	"internal/proof/bench/store_bounded.go":    "the same: what adversaries have",
	"internal/proof/seed/store.go":             "jobs and a history that nobody ran, on a development installation",
}

// query is one named query of db/queries.
type query struct {
	name    string
	at      string
	comment string // the comment lines under its name
	text    string // without comments
}

func readQueries(t *testing.T) []query {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "db/queries/*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no queries were found: %v", err)
	}
	var all []query
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, splitQueries(filepath.Base(file), string(text))...)
	}
	return all
}

func splitQueries(file, text string) []query {
	var all []query
	for i, line := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(line, "-- name: "); ok {
			name, _, _ := strings.Cut(rest, " ")
			all = append(all, query{name: name, at: "db/queries/" + file + ":" + strconv.Itoa(i+1)})
			continue
		}
		if len(all) == 0 {
			continue
		}
		last := &all[len(all)-1]
		code, comment, _ := strings.Cut(line, "--")
		last.text += code + "\n"
		last.comment += strings.TrimSpace(comment) + " "
	}
	return all
}

// tenantTables are the tables and views with a column tenant_id, read from
// the migrations.
func tenantTables(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "migrations/*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations were found: %v", err)
	}
	created := regexp.MustCompile(`(?ms)^CREATE (?:TABLE|(?:OR REPLACE )?VIEW) (?:IF NOT EXISTS )?(\w+)(.*?);`)
	var tables []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range created.FindAllStringSubmatch(string(text), -1) {
			if regexp.MustCompile(`\btenant_id\b`).MatchString(found[2]) {
				tables = append(tables, found[1])
			}
		}
	}
	return tables
}

func TestEveryQueryNamesTheTenant(t *testing.T) {
	t.Parallel()
	tables := tenantTables(t)
	for _, must := range []string{"scheduled_jobs", "active_executions", "job_executions", "executions"} {
		if !slices.Contains(tables, must) {
			t.Fatalf("%s was not recognised as a tenant's table among %v", must, tables)
		}
	}
	ofTenant := regexp.MustCompile(`\b(` + strings.Join(tables, "|") + `)\b`)
	named := regexp.MustCompile(`(?:@tenant_id\b|sqlc\.n?arg\('?tenant_id'?\))`)
	seen := make(map[string]bool)
	for _, q := range readQueries(t) {
		reason, listed := crossTenant[q.name]
		seen[q.name] = true
		marked := strings.Contains(q.comment, "Cross-tenant: ")
		switch {
		case listed && !marked:
			t.Errorf("%s: %s is listed as cross-tenant (%s), and its comment does not begin with \"Cross-tenant: \"", q.at, q.name, reason)
		case listed && named.MatchString(q.text):
			t.Errorf("%s: %s is listed as cross-tenant (%s), and it names a tenant: take it off the list", q.at, q.name, reason)
		case !listed && marked:
			t.Errorf("%s: %s says that it is cross-tenant and is not on the list", q.at, q.name)
		case !listed && ofTenant.MatchString(q.text) && !named.MatchString(q.text):
			t.Errorf("%s: %s reads or writes %v without naming @tenant_id", q.at, q.name, ofTenant.FindAllString(q.text, -1))
		}
	}
	for name := range crossTenant {
		if !seen[name] {
			t.Errorf("%s is on the list of cross-tenant queries and does not exist", name)
		}
	}
}

// TestQueriesAreSpacedSoThatParametersBind refuses "a=@b", which the
// generator takes for an operator "=@": it drops the parameter and says
// nothing.
func TestQueriesAreSpacedSoThatParametersBind(t *testing.T) {
	t.Parallel()
	glued := regexp.MustCompile(`[=<>!+\-*/|&~]@`)
	for _, q := range readQueries(t) {
		if found := glued.FindString(q.text); found != "" {
			t.Errorf("%s: %s has %q without a space", q.at, q.name, found)
		}
	}
}

// TestQueriesAreNamedForWhatTheyDo wants a verb and a noun.
func TestQueriesAreNamedForWhatTheyDo(t *testing.T) {
	t.Parallel()
	twoWords := regexp.MustCompile(`^([A-Z][a-z]+){2,}$`)
	for _, q := range readQueries(t) {
		if !twoWords.MatchString(q.name) {
			t.Errorf("%s: %s is not a verb and a noun", q.at, q.name)
		}
	}
}

func TestQueriesThatLockSayWhy(t *testing.T) {
	t.Parallel()
	locks := regexp.MustCompile(`(?i)\bFOR\s+(NO\s+KEY\s+)?UPDATE\b|\bSKIP\s+LOCKED\b|\bNOWAIT\b|\bFOR\s+(KEY\s+)?SHARE\b|\bpg_(try_)?advisory`)
	for _, q := range readQueries(t) {
		if locks.MatchString(q.text) && len(strings.Fields(q.comment)) < 5 {
			t.Errorf("%s: %s locks or skips rows and no comment says why", q.at, q.name)
		}
	}
}

func TestSQLStandsInQueries(t *testing.T) {
	t.Parallel()
	statement := regexp.MustCompile(`(?is)\bSELECT\b.+\bFROM\b|\bSELECT\s+\w+\s*\(|\bINSERT\s+INTO\b|\bUPDATE\s+\w+\s+SET\b|\bDELETE\s+FROM\b`)
	used := make(map[string]bool)
	for _, s := range tree(t) {
		if s.test || s.generated || forTests(s.pkg) || s.pkg == "db" || s.pkg == "migrations" {
			continue
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			literal, ok := node.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING || !statement.MatchString(literal.Value) {
				return true
			}
			if _, allowed := sqlInGo[s.path]; !allowed {
				t.Errorf("%s: SQL belongs into db/queries: %.60s", s.at(literal), literal.Value)
			}
			used[s.path] = true
			return true
		})
	}
	for place := range sqlInGo {
		if !used[place] {
			t.Errorf("%s may hold SQL and holds none: take it off the list", place)
		}
	}
}

// unplanned are lists of pages whose plans need no test, each with the reason.
var unplanned = map[string]string{
	"ListNextInLine":  "a piece of one job's line, in the order of an index with few rows behind it",
	"ListLiveWorkers": "the whole table is the live workers and those of the last day",
}

// A list that reads more than its page costs all tenants, and nobody sees it
// while tables are small: each has its plan looked at in some plan_test.go.
func TestListsHaveTheirPlansTested(t *testing.T) {
	t.Parallel()
	called := map[string]bool{}
	for _, s := range tree(t) {
		if !strings.HasSuffix(s.path, "plan_test.go") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if selected, ok := n.(*ast.SelectorExpr); ok {
				called[selected.Sel.Name] = true
			}
			return true
		})
	}
	for _, q := range readQueries(t) {
		paged := strings.Contains(q.text, "LIMIT @page_size")
		if _, exempt := unplanned[q.name]; paged && !called[q.name] && !exempt {
			t.Errorf("%s: %s answers pages, and no plan_test.go looks at its plan", q.at, q.name)
		}
	}
	for name := range unplanned {
		if called[name] {
			t.Errorf("the plan of %s is looked at: remove it from the list", name)
		}
	}
}
