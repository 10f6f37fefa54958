package rest_test

import (
	"encoding/base64"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/objective"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// samples is one good request for each operation of the contract, with the id
// that it acts on as {id}. An operation without a line fails the tests below,
// so a new one cannot be forgotten.
var samples = map[string]request{
	"sendHeartbeat":       {method: "POST", path: "/callbacks/{token}/heartbeat"},
	"reportProgress":      {method: "POST", path: "/callbacks/{token}/progress", body: `{"progress":40,"message":"copying"}`},
	"reportOutput":        {method: "POST", path: "/callbacks/{token}/output", body: `{"firstLine":1,"lines":[{"stream":"stderr","text":"x"}]}`},
	"reportCompletion":    {method: "POST", path: "/callbacks/{token}/complete", body: `{"result":{"rows":7}}`},
	"createJob":           {method: "POST", path: base + "/jobs", body: webhook},
	"listJobs":            {method: "GET", path: base + "/jobs"},
	"getJob":              {method: "GET", path: base + "/jobs/{id}"},
	"updateJob":           {method: "PUT", path: base + "/jobs/{id}", body: webhook},
	"deleteJob":           {method: "DELETE", path: base + "/jobs/{id}"},
	"validateJob":         {method: "POST", path: base + "/jobs/validate", body: webhook},
	"validateStoredJob":   {method: "POST", path: base + "/jobs/{id}/validate", body: webhook},
	"previewSchedule":     {method: "GET", path: base + "/jobs/{id}/schedule?count=3"},
	"triggerJob":          {method: "POST", path: base + "/jobs/{id}/trigger", body: `{"parameters":{"a":1}}`},
	"pauseJob":            {method: "POST", path: base + "/jobs/{id}/pause", body: `{"reason":"x"}`},
	"resumeJob":           {method: "POST", path: base + "/jobs/{id}/resume"},
	"stopJob":             {method: "POST", path: base + "/jobs/{id}/stop", body: `{"reason":"x"}`},
	"cancelExecution":     {method: "POST", path: base + "/executions/{id}/cancel"},
	"retryExecution":      {method: "POST", path: base + "/executions/{id}/retry"},
	"listJobExecutions":   {method: "GET", path: base + "/jobs/{id}/executions"},
	"createBackfill":      {method: "POST", path: base + "/jobs/{id}/backfills", body: `{"from":"{year}-01-01T00:00:00Z","to":"{year}-01-01T00:00:01Z"}`},
	"listBackfills":       {method: "GET", path: base + "/jobs/{id}/backfills"},
	"getBackfill":         {method: "GET", path: base + "/jobs/{id}/backfills/{backfill}"},
	"cancelBackfill":      {method: "POST", path: base + "/jobs/{id}/backfills/{backfill}/cancel"},
	"createCalendar":      {method: "POST", path: base + "/calendars", body: `{"name":"{new}","days":[{"start":"2026-12-25","yearly":true}]}`},
	"importCalendar":      {method: "POST", path: base + "/calendars/import?name={new}", body: holidays, header: map[string]string{"Content-Type": "text/calendar"}},
	"listCalendars":       {method: "GET", path: base + "/calendars"},
	"getCalendar":         {method: "GET", path: base + "/calendars/{id}"},
	"importCalendarAgain": {method: "PUT", path: base + "/calendars/{id}/import", body: holidays, header: map[string]string{"Content-Type": "text/calendar"}},
	"updateCalendar":      {method: "PUT", path: base + "/calendars/{id}", body: `{"name":"{new}","days":[]}`},
	"deleteCalendar":      {method: "DELETE", path: base + "/calendars/{id}"},
	"listAudit":           {method: "GET", path: base + "/audit?limit=5"},
	"verifyAudit":         {method: "GET", path: base + "/audit/verify"},
	"putSecret":           {method: "PUT", path: base + "/secrets/{new}", body: `{"value":"0123456789"}`},
	"listSecrets":         {method: "GET", path: base + "/secrets"},
	"getSecret":           {method: "GET", path: base + "/secrets/{id}"},
	"deleteSecret":        {method: "DELETE", path: base + "/secrets/{id}"},
	"putFunction":         {method: "PUT", path: base + "/functions/{new}", body: "\x00asm", header: map[string]string{"Content-Type": "application/wasm"}},
	"listFunctions":       {method: "GET", path: base + "/functions"},
	"getFunction":         {method: "GET", path: base + "/functions/{id}"},
	"deleteFunction":      {method: "DELETE", path: base + "/functions/{id}"},
	"listExecutions":      {method: "GET", path: base + "/executions"},
	"getExecution":        {method: "GET", path: base + "/executions/{id}"},
	// Its answer repeats the ids of the query: TestRecentRuns asks for another tenant's job.
	"listRecentRuns":       {method: "GET", path: base + "/recent-runs?jobId=0192f0a1-7b3c-7d4e-8f5a-000000000000"}, // a job that is not there has none
	"getRunCalendar":       {method: "GET", path: base + "/run-calendar?from=2026-03-01T00:00:00Z&to=2026-03-02T00:00:00Z"},
	"listUpcomingRuns":     {method: "GET", path: base + "/upcoming-runs?bucket=hour"},
	"getExecutionTimeline": {method: "GET", path: base + "/executions/{id}/timeline"},
	"listExecutionLogs":    {method: "GET", path: base + "/executions/{id}/logs?stream=stdout&limit=10"},
	"createApiKey":         {method: "POST", path: base + "/api-keys", body: `{"name":"deployment","scopes":["jobs:read"]}`},
	"listApiKeys":          {method: "GET", path: base + "/api-keys"},
	"getApiKey":            {method: "GET", path: base + "/api-keys/{id}"},
	"deleteApiKey":         {method: "DELETE", path: base + "/api-keys/{id}"},
	"rotateApiKey":         {method: "POST", path: base + "/api-keys/{id}/rotate", body: `{"graceSeconds":60}`},
	"getHealth":            {method: "GET", path: "/health"},
	"getLiveness":          {method: "GET", path: "/health/live"},
	"getReadiness":         {method: "GET", path: "/health/ready"},

	"listDeadLetters":        {method: "GET", path: base + "/dead-letters"},
	"listDeadLetterGroups":   {method: "GET", path: base + "/dead-letters/groups"},
	"getDeadLetter":          {method: "GET", path: base + "/dead-letters/{id}"},
	"replayDeadLetter":       {method: "POST", path: base + "/dead-letters/{id}/replay"},
	"discardDeadLetter":      {method: "DELETE", path: base + "/dead-letters/{id}"},
	"listDeadLetterReplays":  {method: "GET", path: base + "/dead-letter-replays"},
	"createDeadLetterReplay": {method: "POST", path: base + "/dead-letter-replays", body: `{"filter":{"jobId":"{id}"},"ratePerMinute":600}`},
	"getDeadLetterReplay":    {method: "GET", path: base + "/dead-letter-replays/{id}"},
	"cancelDeadLetterReplay": {method: "POST", path: base + "/dead-letter-replays/{id}/cancel"},
	"discardDeadLetters":     {method: "POST", path: base + "/dead-letters/discard", body: `{"filter":{"jobId":"{id}"}}`},

	"registerRemoteWorker":   {method: "POST", path: base + "/remote-workers", body: `{"name":"{new}","protocol":1,"functions":[{"name":"invoice"}]}`},
	"listRemoteWorkers":      {method: "GET", path: base + "/remote-workers"},
	"deregisterRemoteWorker": {method: "DELETE", path: base + "/remote-workers/{id}"},
	"claimRemoteExecutions":  {method: "POST", path: base + "/remote-workers/{id}/claim", body: `{"waitSeconds":0}`},
	"sendRemoteHeartbeat":    {method: "POST", path: base + "/remote-workers/{id}/heartbeat", body: `{"tokens":[]}`},

	"listNotifications":          {method: "GET", path: base + "/notifications"},
	"createNotification":         {method: "POST", path: base + "/notifications", body: `{"name":"{new}","kind":"webhook","url":"https://example.com/","events":["job.failed"]}`},
	"getNotification":            {method: "GET", path: base + "/notifications/{id}"},
	"updateNotification":         {method: "PUT", path: base + "/notifications/{id}", body: `{"name":"{new}","kind":"webhook","url":"https://example.com/b","events":["job.failed"]}`},
	"deleteNotification":         {method: "DELETE", path: base + "/notifications/{id}"},
	"rotateNotificationSecret":   {method: "POST", path: base + "/notifications/{id}/rotate-secret", body: `{"graceSeconds":60}`},
	"testNotification":           {method: "POST", path: base + "/notifications/{id}/test"},
	"listNotificationDeliveries": {method: "GET", path: base + "/notifications/{id}/deliveries"},
	"resendNotificationDelivery": {method: "POST", path: base + "/notifications/{id}/deliveries/{delivery}/resend"},

	"listCircuitBreakers": {method: "GET", path: base + "/circuit-breakers"},
	"listMonitors":        {method: "GET", path: base + "/monitors"},
	"countMonitorRuns":    {method: "GET", path: base + "/monitor-runs?bucket=day"},
	"createMonitor":       {method: "POST", path: base + "/monitors", body: `{"name":"{new}","cronExpression":"0 2 * * *"}`},
	"getMonitor":          {method: "GET", path: base + "/monitors/{id}"},
	"updateMonitor":       {method: "PUT", path: base + "/monitors/{id}", body: `{"name":"{new}","intervalSeconds":60}`},
	"deleteMonitor":       {method: "DELETE", path: base + "/monitors/{id}"},
	"pauseMonitor":        {method: "POST", path: base + "/monitors/{id}/pause"},
	"resumeMonitor":       {method: "POST", path: base + "/monitors/{id}/resume"},
	"rotateMonitorKey":    {method: "POST", path: base + "/monitors/{id}/rotate-key"},
	"listMonitorRuns":     {method: "GET", path: base + "/monitors/{id}/runs"},
	"pingMonitor":         {method: "POST", path: "/ping/{key}", body: "copied 1204 rows"},
	"pingMonitorByGet":    {method: "GET", path: "/ping/{key}"},
	"signalMonitor":       {method: "POST", path: "/ping/{key}/start?rid=a", body: "copying"},
	"signalMonitorByGet":  {method: "GET", path: "/ping/{key}/0"},
	"listObjectives":      {method: "GET", path: base + "/objectives"},
	"createObjective":     {method: "POST", path: base + "/objectives", body: `{"name":"reports","kind":"onTime","tag":"report","thresholdMs":5000,"target":0.99}`},
	"getObjective":        {method: "GET", path: base + "/objectives/{id}"},
	"updateObjective":     {method: "PUT", path: base + "/objectives/{id}", body: `{"name":"{new}","kind":"success","tag":"x","target":0.95,"windowDays":2}`},
	"deleteObjective":     {method: "DELETE", path: base + "/objectives/{id}"},
	"listSettings":        {method: "GET", path: base + "/settings"},
	"putSetting":          {method: "PUT", path: base + "/settings/TENANT_MAX_JOBS", body: `{"value":"90000"}`},
	"resetSetting":        {method: "DELETE", path: base + "/settings/TENANT_MAX_WAITING"},
	"closeCircuitBreaker": {method: "DELETE", path: base + "/circuit-breakers/{id}"},

	"getExecutionStats":    {method: "GET", path: base + "/executions/stats?groupBy=hour"},
	"getMetrics":           {method: "GET", path: base + "/metrics"},
	"listMetrics":          {method: "GET", path: base + "/metrics/history?limit=5"},
	"bulkPauseJobs":        {method: "POST", path: base + "/jobs/bulk/pause", body: `{"ids":["{id}"]}`},
	"bulkDeleteJobs":       {method: "POST", path: base + "/jobs/bulk/delete", body: `{"ids":["{id}"]}`},
	"bulkResumeJobs":       {method: "POST", path: base + "/jobs/bulk/resume", body: `{"ids":["{id}"]}`},
	"bulkStopJobs":         {method: "POST", path: base + "/jobs/bulk/stop", body: `{"ids":["{id}"]}`},
	"bulkTriggerJobs":      {method: "POST", path: base + "/jobs/bulk/trigger", body: `{"ids":["{id}"]}`},
	"bulkCancelExecutions": {method: "POST", path: base + "/executions/bulk/cancel", body: `{"ids":["{id}"]}`},
	"bulkRetryExecutions":  {method: "POST", path: base + "/executions/bulk/retry", body: `{"ids":["{id}"]}`},
	"listSets":             {method: "GET", path: base + "/sets"},
	"planSet":              {method: "POST", path: base + "/sets/{new}/plan", body: `{"jobs":[` + webhook + `]}`},
	"applySet":             {method: "POST", path: base + "/sets/{new}/apply", body: `{"jobs":[` + webhook + `]}`},
	"getStatus":            {method: "GET", path: base + "/status"},
	"getOverview":          {method: "GET", path: base + "/overview"},
	"listQueues":           {method: "GET", path: base + "/queues"},
	"listWorkers":          {method: "GET", path: base + "/workers"},
	"patchJob":             {method: "PATCH", path: base + "/jobs/{id}", body: `{"name":"{new}"}`, header: map[string]string{"Content-Type": mergePatch}},
	"listJobVersions":      {method: "GET", path: base + "/jobs/{id}/versions"},
	"getJobVersion":        {method: "GET", path: base + "/jobs/{id}/versions/1"},
	"compareJobVersions":   {method: "GET", path: base + "/jobs/{id}/versions/1/compare/1"},
	"restoreJobVersion":    {method: "POST", path: base + "/jobs/{id}/versions/1/restore"},

	"getOwnTenant":   {method: "GET", path: base + "/tenant"},
	"createTenant":   {method: "POST", path: base + "/tenants", body: `{"name":"Example Ltd","limits":{"maxJobs":10},"allowedIps":["203.0.113.0/24"]}`},
	"listTenants":    {method: "GET", path: base + "/tenants"},
	"getTenant":      {method: "GET", path: base + "/tenants/{id}"},
	"updateTenant":   {method: "PUT", path: base + "/tenants/{id}", body: `{"name":"Example Ltd"}`},
	"deleteTenant":   {method: "DELETE", path: base + "/tenants/{id}"},
	"suspendTenant":  {method: "POST", path: base + "/tenants/{id}/suspend", body: `{"reason":"unpaid"}`},
	"activateTenant": {method: "POST", path: base + "/tenants/{id}/activate"},

	"internalCreateJob":       {method: "POST", path: "/internal/jobs/create", body: webhook},
	"internalBatchCreateJobs": {method: "POST", path: "/internal/jobs/batch-create", body: `{"jobs":[` + webhook + `,` + webhook + `]}`},
	"internalTriggerJob":      {method: "POST", path: "/internal/jobs/{id}/trigger", body: `{"parameters":{"a":1}}`},
	"internalGetJobStatus":    {method: "GET", path: "/internal/jobs/{id}/status"},
	"internalPauseJob":        {method: "POST", path: "/internal/jobs/{id}/pause", body: `{"reason":"x"}`},
	"internalResumeJob":       {method: "POST", path: "/internal/jobs/{id}/resume"},
	"internalHealth":          {method: "GET", path: "/internal/health"},
}

// sampleOf is the good request for an operation, with the id of a thing of an
// actor's that is there.
func (b *bundle) sampleOf(t *testing.T, operation *contract.Operation, owner tenant.Actor) (request, uuid.UUID) {
	t.Helper()
	sample, ok := samples[operation.ID]
	if !ok {
		t.Fatalf("there is no sample of the operation %s: add one", operation.ID)
	}
	made := b.makeJob(t, owner)
	id := made.ID
	switch operation.ID {
	case "getExecution", "getExecutionTimeline", "listExecutionLogs", "cancelExecution", "bulkCancelExecutions":
		id = b.makeExecution(t, owner, made.ID).ID
	case "retryExecution", "bulkRetryExecutions":
		id = b.makeExecution(t, owner, made.ID).ID
		if _, _, err := b.executions.Cancel(t.Context(), owner, id, ""); err != nil {
			t.Fatal(err)
		}
	case "applySet":
		sample.path = strings.Replace(sample.path, "{new}", uuid.NewString(), 1)
		sample.body = strings.Replace(sample.body, `"report"`, strconv.Quote(uuid.NewString()), 1)
		plan := b.send(request{method: "POST", path: strings.Replace(sample.path, "/apply", "/plan", 1), token: b.token(t, owner, identity.Developer), body: sample.body})
		sample.body = hashed(sample.body, read[api.SetPlan](t, plan, http.StatusOK).Hash)
	case "getTenant", "updateTenant", "deleteTenant", "suspendTenant", "activateTenant":
		made, err := b.deps.Tenants.Create(t.Context(), uuid.New(), tenant.Spec{Name: "stored"})
		if err != nil {
			t.Fatal(err)
		}
		id = made.ID
	case "getApiKey", "deleteApiKey", "rotateApiKey":
		key, _ := b.makeKey(t, owner, "jobs:read")
		id = key.ID
	case "getCalendar", "updateCalendar", "importCalendarAgain", "deleteCalendar":
		id = b.makeCalendar(t, owner, calendar.Day{Start: "2026-12-25"}).ID
	case "getDeadLetter", "replayDeadLetter", "discardDeadLetter":
		id = b.dead(t, owner, made.ID, "TIMEOUT", "it took too long", 0)
	case "getDeadLetterReplay", "cancelDeadLetterReplay":
		b.dead(t, owner, made.ID, "TIMEOUT", "it took too long", 0)
		id = b.makeReplay(t, owner, made.ID)
	case "createDeadLetterReplay":
		b.endReplays(t)
		b.dead(t, owner, made.ID, "TIMEOUT", "it took too long", time.Second)
	case "discardDeadLetters":
		b.dead(t, owner, made.ID, "TIMEOUT", "it took too long", 0)
	case "getNotification", "updateNotification", "deleteNotification", "rotateNotificationSecret", "testNotification", "listNotificationDeliveries", "resendNotificationDelivery":
		made, delivery := b.makeNotification(t, owner)
		id = made
		sample.path = strings.Replace(sample.path, "{delivery}", delivery.String(), 1)
	case "getFunction", "deleteFunction":
		if _, _, err := b.deps.Functions.Put(t.Context(), owner, id.String(), []byte("module")); err != nil {
			t.Fatal(err)
		}
	case "deregisterRemoteWorker", "claimRemoteExecutions", "sendRemoteHeartbeat":
		id = b.registerWorker(t, owner, "invoice").ID
	case "resetSetting":
		if _, err := b.deps.Settings.Set(t.Context(), owner, "TENANT_MAX_WAITING", "90000"); err != nil {
			t.Fatal(err)
		}
	case "getObjective", "updateObjective", "deleteObjective":
		made, err := b.deps.Objectives.Create(t.Context(), owner, objective.Spec{Name: "stored", Kind: objective.Success, Tag: "x", Target: 0.9, WindowDays: 1})
		if err != nil {
			t.Fatal(err)
		}
		id = made.ID
	case "getMonitor", "updateMonitor", "deleteMonitor", "pauseMonitor", "resumeMonitor", "rotateMonitorKey", "listMonitorRuns", "pingMonitor", "pingMonitorByGet", "signalMonitor", "signalMonitorByGet":
		made := b.makeMonitor(t, owner)
		if operation.ID == "resumeMonitor" {
			if _, err := b.deps.Monitors.Pause(t.Context(), owner, made.ID, true); err != nil {
				t.Fatal(err)
			}
		}
		id = made.ID
		sample.path = strings.Replace(sample.path, "{key}", made.PingKey, 1)
	case "closeCircuitBreaker":
		b.makeBreaker(t, owner, id)
	case "getSecret", "deleteSecret":
		b.makeSecret(t, owner, id.String(), "0123456789")
	case "sendHeartbeat", "reportProgress", "reportOutput", "reportCompletion":
		sample.path = strings.Replace(sample.path, "{token}", b.awaits(t, b.makeExecution(t, owner, made.ID)), 1)
	case "getBackfill", "cancelBackfill":
		sample.path = strings.Replace(sample.path, "{backfill}", b.makeBackfill(t, owner, id).ID.String(), 1)
	}
	sample.path = strings.NewReplacer("{id}", id.String(), "{new}", uuid.NewString()).Replace(sample.path)
	sample.body = strings.NewReplacer("{id}", id.String(), "{new}", uuid.NewString(), "{year}", b.now.UTC().Format("2006")).Replace(sample.body)
	return sample, id
}

// asService adds to a header what another service sends, where the operation
// is for those.
func (b *bundle) asService(operation *contract.Operation, who tenant.Actor, header map[string]string) map[string]string {
	if operation.Permission != contract.Service {
		return header
	}
	added := map[string]string{"X-Service-Token": serviceToken, "X-Tenant-ID": who.TenantID.String()}
	for name, value := range header {
		added[name] = value
	}
	return added
}

// needsNoCaller says that an operation is for everybody, or for those who have its path.
func needsNoCaller(o *contract.Operation) bool {
	return o.Permission == contract.Public || o.HasSecretPath()
}

func operations(t *testing.T) map[string]*contract.Operation {
	t.Helper()
	loaded, err := contract.Load()
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Operations()
}

// Permissions: every operation for every kind of caller.
func TestEveryOperationForEveryCaller(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := b.token(t, b.ours, identity.Admin)
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + parts[1] + "."
	mint := func(key []byte, change func(*identity.Claims), at time.Time) string {
		claims := identity.Claims{Subject: "ada", Tenant: b.ours.TenantID, Roles: []identity.Role{identity.Admin}, Issuer: issuer, Audience: "scheduler"}
		change(&claims)
		token, err := identity.Mint(key, claims, at, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	same := func(*identity.Claims) {}
	strangers := map[string]string{
		"no token":       "",
		"expired":        mint(secret, same, b.now.Add(-2*time.Hour)),
		"alg none":       none,
		"wrong secret":   mint([]byte("another-secret-of-32-bytes-or-so"), same, b.now),
		"wrong issuer":   mint(secret, func(c *identity.Claims) { c.Issuer = "https://evil.example" }, b.now),
		"wrong audience": mint(secret, func(c *identity.Claims) { c.Audience = "billing" }, b.now),
		"no tenant":      mint(secret, func(c *identity.Claims) { c.Tenant = uuid.Nil }, b.now),
		"not a token":    "sk_live_0123456789",
	}
	roles := []identity.Role{"", "superuser", identity.Viewer, identity.Operator, identity.Developer, identity.Admin, identity.PlatformAdmin}
	for name, operation := range operations(t) {
		for stranger, token := range strangers {
			sample, _ := b.sampleOf(t, operation, b.ours)
			sample.token = token
			got := b.do(t, sample)
			if needsNoCaller(operation) {
				if got.status == http.StatusUnauthorized || got.status == http.StatusForbidden {
					t.Errorf("%s: %s: answered %d", name, stranger, got.status)
				}
				continue
			}
			want := `Bearer error="invalid_token"`
			if token == "" {
				want = "Bearer"
			}
			if operation.Permission == contract.Service {
				want = "ServiceToken"
				refusedService(t, got, http.StatusUnauthorized, "UNAUTHORIZED")
			} else {
				refused(t, got, http.StatusUnauthorized, "UNAUTHORIZED")
			}
			if got.header.Get("WWW-Authenticate") != want {
				t.Errorf("%s: %s: WWW-Authenticate is %q, want %q", name, stranger, got.header.Get("WWW-Authenticate"), want)
			}
		}
		if needsNoCaller(operation) || operation.Permission == contract.Service {
			continue
		}
		for _, role := range roles {
			sample, _ := b.sampleOf(t, operation, b.ours)
			sample.token = b.token(t, b.ours, role)
			got := b.do(t, sample)
			if (identity.Principal{Roles: []identity.Role{role}}).May(identity.Permission(operation.Permission)) {
				if got.status >= 300 {
					t.Errorf("%s: %s was answered %d %s", name, role, got.status, got.body)
				}
				continue
			}
			refused(t, got, http.StatusForbidden, "FORBIDDEN")
		}
	}
}

// A tenant's id in a header, a parameter or a body changes nothing.
func TestTheTokenAloneNamesTheTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.makeJob(t, b.ours)
	theirs := b.token(t, b.theirs, identity.PlatformAdmin)
	header := map[string]string{"X-Tenant-Id": b.ours.TenantID.String(), "X-Tenant-ID": b.ours.TenantID.String(), "Tenant": b.ours.TenantID.String()}
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs/" + made.ID.String(), token: theirs, header: header}), http.StatusNotFound, "JOB_NOT_FOUND")
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs?tenantId=" + b.ours.TenantID.String(), token: theirs, header: header}), http.StatusBadRequest, "VALIDATION_FAILED")
	body := strings.Replace(webhook, "{", `{"tenantId":"`+b.ours.TenantID.String()+`",`, 1)
	refused(t, b.do(t, request{method: "POST", path: base + "/jobs", token: theirs, header: header, body: body}), http.StatusBadRequest, "VALIDATION_FAILED")
	for path, total := range map[string]string{"/jobs": "0", "/executions": "null"} {
		if got := b.do(t, request{method: "GET", path: base + path, token: theirs, header: header}); got.body != `{"hasMore":false,"items":[],"nextCursor":null,"total":`+total+"}\n" {
			t.Errorf("GET %s answered %s", path, got.body)
		}
	}
}

// Another tenant's things answer byte for byte as things that do not exist, on every
// operation that takes an id, and are not changed.
func TestAnotherTenantsThingsDoNotExist(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := tenant.NewStore(b.db, true).Admit(t.Context(), b.theirs.TenantID); err != nil {
		t.Fatal(err)
	}
	theirs := b.token(t, b.theirs, identity.Admin)
	tried := 0
	for name, operation := range operations(t) {
		sample, id := b.sampleOf(t, operation, b.ours)
		if !strings.Contains(sample.path, id.String()) || strings.HasPrefix(operation.Permission, "tenants:") {
			continue // platform administrators see all tenants
		}
		tried++
		before := b.snapshot(t)
		for _, header := range []map[string]string{nil, {"If-Match": `"1"`, "Idempotency-Key": "k"}} {
			foreign, unknown := sample, sample
			foreign.token, unknown.token = theirs, theirs
			header := maps.Clone(header)
			if header == nil {
				header = map[string]string{}
			}
			maps.Copy(header, sample.header)
			header = b.asService(operation, b.theirs, header)
			foreign.header, unknown.header = header, header
			nobody := uuid.NewString()
			unknown.path = strings.Replace(sample.path, id.String(), nobody, 1)
			a, z := b.do(t, foreign), b.do(t, unknown)
			if a.status != http.StatusNotFound || z.status != http.StatusNotFound {
				t.Errorf("%s: answered %d %s and %d %s", name, a.status, a.body, z.status, z.body)
			}
			if got := strings.ReplaceAll(z.body, nobody, id.String()); got != a.body {
				t.Errorf("%s: another tenant's answers\n%s, what is not there\n%s", name, a.body, got)
			}
			for _, changing := range []string{"X-Request-Id", "RateLimit"} {
				a.header.Del(changing)
				z.header.Del(changing)
			}
			if diff := cmp.Diff(a.header, z.header); diff != "" {
				t.Errorf("%s: the headers differ (-another's +unknown):\n%s", name, diff)
			}
		}
		if diff := cmp.Diff(before, b.snapshot(t)); diff != "" {
			t.Errorf("%s changed another tenant's rows (-before +after):\n%s", name, diff)
		}
	}
	if tried < 8 {
		t.Errorf("only %d operations take an id", tried)
	}
	// As a filter it selects nothing, as an unknown one does.
	mine := b.makeJob(t, b.ours)
	b.makeExecution(t, b.ours, mine.ID)
	got := b.do(t, request{method: "GET", path: base + "/executions?jobId=" + mine.ID.String(), token: theirs})
	none := b.do(t, request{method: "GET", path: base + "/executions?jobId=" + uuid.NewString(), token: theirs})
	if got.status != http.StatusOK || got.body != none.body {
		t.Errorf("the filter answers %d %s, and for an unknown job %d %s", got.status, got.body, none.status, none.body)
	}
}

// snapshot is everything that is stored, as text.
func (b *bundle) snapshot(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, table := range []string{"scheduled_jobs", "active_executions", "job_executions", "idempotency_keys", "calendars", "backfills", "api_keys", "secrets", "job_credentials", "functions", "function_versions", "function_modules", "dead_letters", "dead_letter_replays", "notifications", "notification_secrets", "notification_deliveries", "circuit_breakers", "objectives", "monitors", "workers", "remote_functions"} {
		var text string
		if err := b.engine.Pool().QueryRow(t.Context(), "SELECT coalesce(json_agg(t ORDER BY t::text)::text, '') FROM "+table+" t").Scan(&text); err != nil {
			t.Fatal(err)
		}
		all[table] = text
	}
	return all
}

func TestATenantThatMayNotAct(t *testing.T) {
	t.Parallel()
	b := setup(t)
	closed := b.deps
	closed.Tenants = tenant.NewStore(b.db, false)
	strict := *b
	strict.deps = closed
	strict.handler = newHandler(t, closed)
	e := refused(t, strict.do(t, request{method: "GET", path: base + "/jobs", token: b.token(t, b.ours, identity.Viewer)}), http.StatusForbidden, "FORBIDDEN")
	if !strings.Contains(e.Error.Message, "tenant") {
		t.Errorf("the message is %q", e.Error.Message)
	}
	// Somebody without a role does not make a tenant come to life.
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs", token: b.token(t, b.ours)}), http.StatusForbidden, "FORBIDDEN")
	refused(t, strict.do(t, request{method: "GET", path: base + "/jobs", token: b.token(t, b.ours, identity.Viewer)}), http.StatusForbidden, "FORBIDDEN")
	// With one, it does.
	if got := b.do(t, request{method: "GET", path: base + "/jobs", token: b.token(t, b.ours, identity.Viewer)}); got.status != http.StatusOK {
		t.Errorf("answered %d %s", got.status, got.body)
	}
	closed.Tenants = tenant.NewStore(b.db, false) // as the other one two seconds later
	strict.handler = newHandler(t, closed)
	if got := strict.do(t, request{method: "GET", path: base + "/jobs", token: b.token(t, b.ours, identity.Viewer)}); got.status != http.StatusOK {
		t.Errorf("answered %d %s", got.status, got.body)
	}
}
