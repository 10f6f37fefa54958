package schedctl

import "net/http"

const base = "/api/v1/scheduler"

// group is a noun and what can be done with it.
type group struct {
	name, about string
	calls       []call
}

// call is one operation of the contract as a command.
type call struct {
	// use is the verb and the names of its arguments; they fill path in this order.
	use, about   string
	method, path string
	// query are the parameters of the path's query that become flags.
	query []string
	// file: the body is a file of YAML or JSON. Fields are single parts of a body, each
	// a flag; of them, those in values are JSON.
	file   bool
	fields []string
	values []string
	// last is the field of a body that the argument behind those of the path fills.
	last string
	// media: the file is sent as it is, as this type.
	media string
	// key: the call makes something, and carries an Idempotency-Key.
	key bool
	// match: --if-match names the version that is changed.
	match bool
	// items: the answer is a list, which is read page by page.
	items bool
	// wait: what the call makes can be waited for; nil: it cannot.
	wait    *awaited
	columns []column
}

// column is one of a table: a title and the path of its value in an item.
type column struct{ title, path string }

// columns are written as "TITLE path, TITLE path".
var (
	jobColumns = []column{
		{"ID", "id"},
		{"NAME", "name"},
		{"STATUS", "status"},
		{"TYPE", "jobType"},
		{"SCHEDULE", "cronExpression|interval|runAt|trigger"},
		{"ZONE", "timezone"},
		{"NEXT", "nextExecutionAt"},
		{"LAST", "lastExecutionAt"},
	}
	timelineColumns = []column{
		{"EXECUTION", "executionId"},
		{"STATUS", "status"},
		{"SCHEDULED", "scheduledAt"},
		{"STARTED", "startedAt"},
		{"LATE MS", "lateMs"},
		{"SUMMARY", "summary"},
	}
	executionColumns = []column{
		{"ID", "id"},
		{"JOB", "jobName|jobId"},
		{"STATUS", "status"},
		{"TRIGGER", "triggerType"},
		{"SCHEDULED", "scheduledAt"},
		{"STARTED", "startedAt"},
		{"MS", "durationMs"},
		{"RETRIES", "retryCount"},
		{"ERROR", "errorType"},
		{"MESSAGE", "errorMessage|reason"},
	}
	versionColumns  = []column{{"VERSION", "version"}, {"BY", "createdBy"}, {"AT", "createdAt"}, {"CHANGED", "changedFields"}}
	backfillColumns = []column{
		{"ID", "id"}, {"STATUS", "status"}, {"FROM", "from"}, {"TO", "to"}, {"CREATED", "created"}, {"TOTAL", "total"}, {"BY", "createdBy"},
	}
	calendarColumns   = []column{{"ID", "id"}, {"NAME", "name"}, {"ZONE", "timezone"}, {"DAYS", "dayCount"}, {"UPDATED", "updatedAt"}}
	secretColumns     = []column{{"NAME", "name"}, {"VERSION", "version"}, {"DESCRIPTION", "description"}, {"UPDATED", "updatedAt"}, {"BY", "updatedBy"}}
	keyColumns        = []column{{"ID", "id"}, {"NAME", "name"}, {"PREFIX", "prefix"}, {"SCOPES", "scopes"}, {"EXPIRES", "expiresAt"}, {"LAST USED", "lastUsedAt"}}
	tenantColumns     = []column{{"ID", "id"}, {"NAME", "name"}, {"STATUS", "status"}, {"REASON", "statusReason"}, {"CREATED", "createdAt"}}
	auditColumns      = []column{{"AT", "at"}, {"ACTOR", "actor"}, {"ACTION", "action"}, {"OBJECT", "objectType"}, {"ID", "objectId"}, {"FROM", "address"}}
	breakerColumns    = []column{{"ID", "id"}, {"HOST", "host"}, {"STATE", "state"}, {"FAILURES", "failures"}, {"NEXT PROBE", "retryAt"}, {"REASON", "reason"}}
	monitorColumns    = []column{{"ID", "id"}, {"NAME", "name"}, {"STATUS", "status"}, {"REASON", "reason"}, {"EXPECTED", "expectedAt"}, {"LAST PING", "lastPingAt"}, {"PING URL", "pingUrl"}}
	monitorRunColumns = []column{{"NUMBER", "number"}, {"OUTCOME", "outcome"}, {"REASON", "reason"}, {"EXPECTED", "expectedAt"}, {"STARTED", "startedAt"}, {"ENDED", "endedAt"}, {"EXIT", "exitCode"}}
	objectiveColumns  = []column{{"ID", "id"}, {"NAME", "name"}, {"KIND", "kind"}, {"TARGET", "target"}, {"DAYS", "windowDays"}, {"GOOD", "good"}, {"BAD", "bad"}, {"BUDGET LEFT", "budgetLeft"}, {"BURN 1 H", "burnRateHour"}, {"BURN 6 H", "burnRateSixHours"}}
	settingColumns    = []column{{"NAME", "name"}, {"VALUE", "value"}, {"SOURCE", "source"}, {"DEFAULT", "default"}, {"UNIT", "unit"}, {"CHANGED", "changedAt"}, {"BY", "changedBy"}}
	functionColumns   = []column{{"NAME", "name"}, {"VERSION", "version"}, {"BYTES", "sizeBytes"}, {"UPDATED", "updatedAt"}, {"BY", "updatedBy"}}

	deadLetterColumns      = []column{{"EXECUTION", "executionId"}, {"JOB", "jobName|jobId"}, {"FAILED", "failedAt"}, {"GROUP", "fingerprint"}, {"ERROR", "errorType"}, {"MESSAGE", "errorMessage"}}
	replayColumns          = []column{{"ID", "id"}, {"STATUS", "status"}, {"TOTAL", "total"}, {"REPLAYED", "replayedCount"}, {"REFUSED", "refusedCount"}, {"A MINUTE", "ratePerMinute"}, {"CREATED", "createdAt"}, {"REASON", "reason"}}
	deadLetterGroupColumns = []column{{"GROUP", "fingerprint"}, {"COUNT", "count"}, {"JOBS", "jobCount"}, {"FIRST", "firstFailedAt"}, {"LAST", "lastFailedAt"}, {"ERROR", "errorType"}, {"EXAMPLE", "errorMessage"}}

	notificationColumns = []column{{"ID", "id"}, {"NAME", "name"}, {"KIND", "kind"}, {"URL", "url"}, {"EVENTS", "events"}, {"ENABLED", "enabled"}, {"WHY NOT", "disabledReason"}}

	deliveryColumns = []column{{"ID", "id"}, {"STATUS", "status"}, {"EVENTS", "eventCount"}, {"ATTEMPTS", "attempts"}, {"CREATED", "createdAt"}, {"ANSWER", "responseStatus"}, {"ERROR", "error"}}

	remoteWorkerColumns = []column{{"ID", "id"}, {"NAME", "name"}, {"FUNCTIONS", "functions"}, {"SLOTS", "slots"}, {"RUNNING", "running"}, {"HEARTBEAT", "heartbeatAt"}}

	workerColumns = []column{
		{"ID", "id"}, {"SLOTS", "slots"}, {"RUNNING", "running"}, {"TYPES", "jobTypes"}, {"STARTED", "startedAt"}, {"HEARTBEAT AGE S", "heartbeatAgeSeconds"},
	}
)

// executionFilters are what both lists of executions take.
var executionFilters = []string{"status", "triggerType", "jobType", "errorType", "triggeredBy", "from", "to", "createdFrom", "createdTo", "sort"}

// deadLetterFilters are what both lists of dead letters take.
var deadLetterFilters = []string{"jobId", "errorType", "fingerprint", "from", "to"}

// groups are all commands that are one call of the contract.
var groups = []group{
	{"jobs", "What to run, and when", []call{
		{
			use: "list", about: "List jobs", method: http.MethodGet, path: "/jobs", items: true, columns: jobColumns,
			query: []string{"status", "jobType", "tags", "tagMatch", "q", "set", "createdBy", "createdFrom", "createdTo", "nextExecutionFrom", "nextExecutionTo", "sort"},
		},
		{use: "get ID", about: "Show a job", method: http.MethodGet, path: "/jobs/{id}", columns: jobColumns},
		{use: "create", about: "Create a job from a file", method: http.MethodPost, path: "/jobs", file: true, key: true, columns: jobColumns},
		{use: "replace ID", about: "Replace the definition of a job by that of a file", method: http.MethodPut, path: "/jobs/{id}", file: true, match: true, columns: jobColumns},
		{use: "patch ID", about: "Change some fields of a job, as a JSON merge patch from a file", method: http.MethodPatch, path: "/jobs/{id}", file: true, match: true, columns: jobColumns},
		{use: "delete ID", about: "Delete a job; what runs is cancelled first", method: http.MethodDelete, path: "/jobs/{id}", query: []string{"reason"}, match: true},
		{use: "validate", about: "Say what is wrong with the job of a file, and when it would run", method: http.MethodPost, path: "/jobs/validate", file: true},
		{use: "next ID", about: "Show the next scheduled times of a job", method: http.MethodGet, path: "/jobs/{id}/schedule", query: []string{"count", "from"}},
		{use: "calendar", about: "Count what ran and what will run of all jobs and monitors", method: http.MethodGet, path: "/run-calendar", query: []string{"from", "to", "bucket", "timezone", "kind", "named"}},
		{use: "upcoming", about: "Count the runs to come of all jobs and monitors", method: http.MethodGet, path: "/upcoming-runs", query: []string{"kind", "from", "to", "bucket", "timezone", "named"}},
		{use: "pause ID", about: "Stop new scheduled runs; what runs goes on", method: http.MethodPost, path: "/jobs/{id}/pause", fields: []string{"reason", "until"}, columns: jobColumns},
		{use: "resume ID", about: "Let the schedule of a job go on", method: http.MethodPost, path: "/jobs/{id}/resume", fields: []string{"misfirePolicy"}, columns: jobColumns},
		{use: "stop ID", about: "Cancel what runs or waits and make the job inactive", method: http.MethodPost, path: "/jobs/{id}/stop", fields: []string{"reason"}, columns: jobColumns},
		{use: "trigger ID", about: "Run a job now", method: http.MethodPost, path: "/jobs/{id}/trigger", values: []string{"parameters"}, key: true, wait: awaitExecution, columns: executionColumns},
		{use: "executions ID", about: "List the executions of a job", method: http.MethodGet, path: "/jobs/{id}/executions", items: true, query: executionFilters, columns: executionColumns},
		{use: "versions ID", about: "List the versions of a job's definition", method: http.MethodGet, path: "/jobs/{id}/versions", items: true, columns: versionColumns},
		{use: "version ID VERSION", about: "Show one version", method: http.MethodGet, path: "/jobs/{id}/versions/{version}"},
		{use: "diff ID VERSION OTHER", about: "Show what changed between two versions", method: http.MethodGet, path: "/jobs/{id}/versions/{version}/compare/{other}"},
		{use: "restore ID VERSION", about: "Make an earlier version the present one", method: http.MethodPost, path: "/jobs/{id}/versions/{version}/restore", match: true, columns: jobColumns},
	}},
	{"executions", "What ran, runs and waits", []call{
		{use: "list", about: "List executions, newest first", method: http.MethodGet, path: "/executions", items: true, query: append([]string{"jobId"}, executionFilters...), columns: executionColumns},
		{use: "get ID", about: "Show an execution", method: http.MethodGet, path: "/executions/{id}", columns: executionColumns},
		{use: "timeline ID", about: "Say why an execution started late", method: http.MethodGet, path: "/executions/{id}/timeline", columns: timelineColumns},
		{use: "cancel ID", about: "Cancel an execution", method: http.MethodPost, path: "/executions/{id}/cancel", fields: []string{"reason"}, columns: executionColumns},
		{use: "retry ID", about: "Run the same again, as a new execution", method: http.MethodPost, path: "/executions/{id}/retry", key: true, wait: awaitExecution, columns: executionColumns},
		{use: "stats", about: "Count executions by group", method: http.MethodGet, path: "/executions/stats", query: []string{"from", "to", "groupBy", "timezone", "jobId", "jobType", "triggerType"}},
	}},
	{"deadletters", "Executions that failed for good", []call{
		{use: "list", about: "List dead letters, those that failed last first", method: http.MethodGet, path: "/dead-letters", items: true, query: deadLetterFilters, columns: deadLetterColumns},
		{use: "groups", about: "Show which errors they are of, the largest groups first", method: http.MethodGet, path: "/dead-letters/groups", query: deadLetterFilters, columns: deadLetterGroupColumns},
		{use: "get ID", about: "Show a dead letter", method: http.MethodGet, path: "/dead-letters/{id}", columns: deadLetterColumns},
		{use: "replay ID", about: "Run a dead letter again, as a new execution", method: http.MethodPost, path: "/dead-letters/{id}/replay", key: true, wait: awaitExecution, columns: executionColumns},
		{use: "discard ID", about: "Take a dead letter off the list", method: http.MethodDelete, path: "/dead-letters/{id}"},
		{
			use: "replay-all", about: "Run those that fit again at a bounded rate, one first", method: http.MethodPost, path: "/dead-letter-replays", key: true,
			values: []string{"filter", "ratePerMinute", "canary"}, columns: replayColumns,
		},
		{use: "replays", about: "List replays of many, newest first", method: http.MethodGet, path: "/dead-letter-replays", items: true, columns: replayColumns},
		{use: "replayed ID", about: "Show how far a replay of many is", method: http.MethodGet, path: "/dead-letter-replays/{id}", columns: replayColumns},
		{use: "cancel-replay ID", about: "End a replay of many", method: http.MethodPost, path: "/dead-letter-replays/{id}/cancel", columns: replayColumns},
		{use: "discard-all", about: "Take those that fit off the list, 10,000 at most", method: http.MethodPost, path: "/dead-letters/discard", values: []string{"filter"}},
	}},
	{"backfills", "Runs for scheduled times that are past", []call{
		{use: "list JOB", about: "List the backfills of a job", method: http.MethodGet, path: "/jobs/{id}/backfills", items: true, query: []string{"outcomes"}, columns: backfillColumns},
		{use: "get JOB ID", about: "Show a backfill", method: http.MethodGet, path: "/jobs/{id}/backfills/{backfillId}", columns: backfillColumns},
		{
			use: "create JOB", about: "Run a job for the scheduled times of a period", method: http.MethodPost, path: "/jobs/{id}/backfills", key: true,
			fields: []string{"from", "to"}, values: []string{"ratePerMinute", "dailyShare", "parameters", "dryRun"}, wait: awaitBackfill, columns: backfillColumns,
		},
		{use: "cancel JOB ID", about: "End a backfill", method: http.MethodPost, path: "/jobs/{id}/backfills/{backfillId}/cancel", fields: []string{"reason"}, columns: backfillColumns},
	}},
	{"calendars", "Days on which jobs do not run, or only run", []call{
		{use: "list", about: "List calendars", method: http.MethodGet, path: "/calendars", items: true, columns: calendarColumns},
		{use: "get ID", about: "Show a calendar with its days", method: http.MethodGet, path: "/calendars/{id}"},
		{use: "create", about: "Create a calendar from a file", method: http.MethodPost, path: "/calendars", file: true, key: true},
		{use: "replace ID", about: "Replace a calendar by that of a file", method: http.MethodPut, path: "/calendars/{id}", file: true, match: true},
		{use: "delete ID", about: "Delete a calendar that no job names", method: http.MethodDelete, path: "/calendars/{id}", match: true},
	}},
	{"secrets", "Values that jobs use and nobody reads again", []call{
		{use: "list", about: "List the names of secrets", method: http.MethodGet, path: "/secrets", items: true, columns: secretColumns},
		{use: "get NAME", about: "Show a secret without its value", method: http.MethodGet, path: "/secrets/{name}", columns: secretColumns},
		{use: "put NAME", about: "Keep a value under a name, from a file with value and description", method: http.MethodPut, path: "/secrets/{name}", file: true, match: true, columns: secretColumns},
		{use: "delete NAME", about: "Delete a secret", method: http.MethodDelete, path: "/secrets/{name}", match: true},
	}},
	{"keys", "API keys", []call{
		{use: "list", about: "List API keys", method: http.MethodGet, path: "/api-keys", items: true, columns: keyColumns},
		{use: "get ID", about: "Show an API key without its text", method: http.MethodGet, path: "/api-keys/{id}", columns: keyColumns},
		{use: "create", about: "Make an API key; its text is shown once, with -o json", method: http.MethodPost, path: "/api-keys", fields: []string{"name", "expiresAt"}, values: []string{"scopes"}},
		{use: "rotate ID", about: "Make a new text for an API key; the old one stays good for a while", method: http.MethodPost, path: "/api-keys/{id}/rotate", values: []string{"graceSeconds"}},
		{use: "delete ID", about: "Take an API key back", method: http.MethodDelete, path: "/api-keys/{id}"},
	}},
	{"tenants", "Tenants, for administrators of the platform", []call{
		{use: "list", about: "List tenants", method: http.MethodGet, path: "/tenants", items: true, query: []string{"status"}, columns: tenantColumns},
		{use: "get ID", about: "Show a tenant with its limits", method: http.MethodGet, path: "/tenants/{id}"},
		{use: "own", about: "Show the tenant of the token, with its limits and their use", method: http.MethodGet, path: "/tenant"},
		{use: "create", about: "Create a tenant from a file", method: http.MethodPost, path: "/tenants", file: true, columns: tenantColumns},
		{use: "replace ID", about: "Replace name and limits of a tenant by those of a file", method: http.MethodPut, path: "/tenants/{id}", file: true, match: true, columns: tenantColumns},
		{use: "suspend ID", about: "Stop everything of a tenant", method: http.MethodPost, path: "/tenants/{id}/suspend", fields: []string{"reason"}, columns: tenantColumns},
		{use: "activate ID", about: "Let a suspended tenant go on", method: http.MethodPost, path: "/tenants/{id}/activate", columns: tenantColumns},
		{use: "delete ID", about: "Delete a tenant and, after a while, all that it has", method: http.MethodDelete, path: "/tenants/{id}", match: true},
	}},
	{"audit", "Who changed what", []call{
		{
			use: "list", about: "List changes, newest first", method: http.MethodGet, path: "/audit", items: true,
			query: []string{"actor", "action", "objectType", "objectId", "from", "to"}, columns: auditColumns,
		},
		{use: "verify", about: "Check that nobody changed the log", method: http.MethodGet, path: "/audit/verify", query: []string{"anchor"}},
	}},
	{"sets", "Jobs that files own (see plan and apply)", []call{
		{use: "list", about: "List sets with the number of their jobs", method: http.MethodGet, path: "/sets", items: true, columns: []column{{"NAME", "name"}, {"JOBS", "jobs"}}},
	}},
	{"objectives", "Which share has to succeed or to start on time", []call{
		{use: "list", about: "List objectives with what is left of their budgets", method: http.MethodGet, path: "/objectives", columns: objectiveColumns},
		{use: "get ID", about: "Show an objective with its burn rates", method: http.MethodGet, path: "/objectives/{id}", columns: objectiveColumns},
		{use: "create", about: "Create an objective from a file", method: http.MethodPost, path: "/objectives", file: true, columns: objectiveColumns},
		{use: "update ID", about: "Change an objective's name, target and window from a file", method: http.MethodPut, path: "/objectives/{id}", file: true, match: true, columns: objectiveColumns},
		{use: "delete ID", about: "Delete an objective", method: http.MethodDelete, path: "/objectives/{id}"},
	}},
	{"monitors", "Crons that run elsewhere", []call{
		{use: "list", about: "List monitors with their statuses", method: http.MethodGet, path: "/monitors", items: true, query: []string{"tag", "status"}, columns: monitorColumns},
		{use: "get ID", about: "Show a monitor", method: http.MethodGet, path: "/monitors/{id}", columns: monitorColumns},
		{use: "create", about: "Create a monitor from a file", method: http.MethodPost, path: "/monitors", file: true, columns: monitorColumns},
		{use: "replace ID", about: "Replace a monitor by that of a file", method: http.MethodPut, path: "/monitors/{id}", file: true, match: true, columns: monitorColumns},
		{use: "pause ID", about: "Judge a monitor's pings no more", method: http.MethodPost, path: "/monitors/{id}/pause", columns: monitorColumns},
		{use: "resume ID", about: "Expect a paused monitor's next run from now on", method: http.MethodPost, path: "/monitors/{id}/resume", columns: monitorColumns},
		{use: "rotate-key ID", about: "Give a monitor another ping key", method: http.MethodPost, path: "/monitors/{id}/rotate-key", columns: monitorColumns},
		{use: "runs ID", about: "List what a monitor's pings told, newest first", method: http.MethodGet, path: "/monitors/{id}/runs", items: true, columns: monitorRunColumns},
		{use: "count", about: "Count the runs of all monitors by hour or day", method: http.MethodGet, path: "/monitor-runs", query: []string{"from", "to", "bucket", "timezone"}},
		{use: "delete ID", about: "Delete a monitor with its runs", method: http.MethodDelete, path: "/monitors/{id}", match: true},
	}},
	{"breakers", "Circuit breakers of hosts that calls fail at", []call{
		{use: "list", about: "List circuit breakers", method: http.MethodGet, path: "/circuit-breakers", items: true, columns: breakerColumns},
		{use: "close ID", about: "Let calls to the host of a circuit breaker go out again", method: http.MethodDelete, path: "/circuit-breakers/{circuitBreakerId}"},
	}},
	{"settings", "What changes while the processes run, for administrators of the platform", []call{
		{use: "list", about: "List settings with their values", method: http.MethodGet, path: "/settings", columns: settingColumns},
		{use: "set NAME VALUE", about: "Change a setting in all processes", method: http.MethodPut, path: "/settings/{name}", last: "value", columns: settingColumns},
		{use: "reset NAME", about: "Let processes go by their environments again", method: http.MethodDelete, path: "/settings/{name}"},
	}},
	{"functions", "WebAssembly modules that jobs run", []call{
		{use: "list", about: "List modules", method: http.MethodGet, path: "/functions", items: true, columns: functionColumns},
		{use: "get NAME", about: "Show a module with its versions", method: http.MethodGet, path: "/functions/{name}"},
		{use: "put NAME", about: "Upload a module from a file, as a further version", method: http.MethodPut, path: "/functions/{name}", file: true, media: "application/wasm"},
		{use: "delete NAME", about: "Delete a module that no job names", method: http.MethodDelete, path: "/functions/{name}"},
	}},
	{"remote-workers", "A tenant's own workers", []call{
		{use: "list", about: "List those that live", method: http.MethodGet, path: "/remote-workers", columns: remoteWorkerColumns},
		{use: "deregister ID", about: "End the lease of one", method: http.MethodDelete, path: "/remote-workers/{id}"},
	}},
	{"notifications", "Who is told of failures and recoveries", []call{
		{use: "list", about: "List notifications", method: http.MethodGet, path: "/notifications", items: true, columns: notificationColumns},
		{use: "get ID", about: "Show a notification", method: http.MethodGet, path: "/notifications/{id}"},
		{use: "create", about: "Create a notification from a file; its secret is shown once", method: http.MethodPost, path: "/notifications", file: true},
		{use: "replace ID", about: "Replace a notification by that of a file", method: http.MethodPut, path: "/notifications/{id}", file: true, match: true},
		{use: "test ID", about: "Send a message that says that it is a test", method: http.MethodPost, path: "/notifications/{id}/test"},
		{use: "deliveries ID", about: "List the messages of a notification, newest first", method: http.MethodGet, path: "/notifications/{id}/deliveries", items: true, query: []string{"status"}, columns: deliveryColumns},
		{use: "resend ID DELIVERY", about: "Send a message again", method: http.MethodPost, path: "/notifications/{id}/deliveries/{deliveryId}/resend"},
		{use: "delete ID", about: "Delete a notification", method: http.MethodDelete, path: "/notifications/{id}", match: true},
	}},
	{"status", "How the service is", []call{
		{use: "show", about: "Show what runs, what waits and how late it is", method: http.MethodGet, path: "/status"},
		{use: "overview", about: "Show the same with the last 24 hours, the newest failures and the next hour", method: http.MethodGet, path: "/overview"},
		{use: "metrics", about: "Show the numbers of the last half minute", method: http.MethodGet, path: "/metrics", query: []string{"scope"}},
		{use: "queues", about: "Show what waits, by type and priority", method: http.MethodGet, path: "/queues"},
		{use: "workers", about: "List workers", method: http.MethodGet, path: "/workers", columns: workerColumns},
	}},
}
