package rest_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
)

// changeless are operations that are no GET and change nothing.
var changeless = map[string]string{
	"validateJob":           "it says what POST /jobs would",
	"validateStoredJob":     "it says what PUT /jobs/{id} would",
	"planSet":               "it says what applying would",
	"claimRemoteExecutions": "an attempt that starts is no change of what somebody made",
	"sendRemoteHeartbeat":   "nor is a sign of life",
}

// From the contract: every operation that changes something leaves an entry
// with who did it, and no other operation leaves any.
func TestEveryChangeIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, operation := range operations(t) {
		if needsNoCaller(operation) {
			continue
		}
		sample, id := b.sampleOf(t, operation, b.ours)
		b.makeReady(t, operation.ID, id)
		before := b.recorded(t, "")
		header := map[string]string{"X-Request-Id": "audit-" + operation.ID}
		maps.Copy(header, sample.header)
		if sample.header = header; operation.Permission == contract.Service {
			header["X-Service-Token"], header["X-Tenant-ID"] = serviceToken, b.ours.TenantID.String()
		} else {
			sample.token = b.token(t, b.ours, identity.PlatformAdmin)
		}
		got := b.do(t, sample)
		if got.status >= 300 {
			t.Errorf("%s answered %d %s", name, got.status, got.body)
			continue
		}
		changed := b.recorded(t, "") - before
		kind := "user"
		if operation.Permission == contract.Service {
			kind = "service"
		}
		named := b.recorded(t, fmt.Sprintf("WHERE action = '%s' AND request_id = 'audit-%[1]s' AND actor_kind = '%s' AND address <> '' AND actor <> ''", operation.ID, kind))
		_, none := changeless[operation.ID]
		none = none || strings.HasPrefix(name, "GET ")
		switch {
		case none && changed != 0:
			t.Errorf("%s changes nothing and left %d entries", name, changed)
		case !none && (changed == 0 || named != changed):
			t.Errorf("%s left %d entries, %d of them in its name", name, changed, named)
		}
	}
	admin := b.token(t, b.ours, identity.Admin)
	v := read[api.AuditVerification](t, b.do(t, request{method: "GET", path: base + "/audit/verify", token: admin}), http.StatusOK)
	if !v.Valid || !v.Complete || v.Checked != b.recorded(t, "WHERE tenant_id = '"+b.ours.TenantID.String()+"'") {
		t.Errorf("verified %+v", v)
	}
}

// makeReady brings a thing into a state in which the operation changes it.
func (b *bundle) makeReady(t *testing.T, operation string, id uuid.UUID) {
	t.Helper()
	var err error
	switch operation {
	case "activateTenant":
		_, err = b.deps.Tenants.Suspend(t.Context(), id, "")
	case "resumeJob", "internalResumeJob", "bulkResumeJobs":
		_, err = b.jobs.Pause(t.Context(), b.ours, id, "", nil)
	case "restoreJobVersion":
		found, failed := b.jobs.Get(t.Context(), b.ours, id)
		if failed != nil {
			t.Fatal(failed)
		}
		found.Name = "another"
		_, err = b.jobs.Update(t.Context(), b.ours, id, found.Spec, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// recorded counts entries of the audit log.
func (b *bundle) recorded(t *testing.T, where string) (n int) {
	t.Helper()
	if err := b.engine.Pool().QueryRow(t.Context(), "SELECT count(*) FROM audit_log "+where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAudit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin, ada := b.token(t, b.ours, identity.Admin), b.token(t, b.ours, identity.Developer)
	key, text := b.makeKey(t, b.ours, "jobs:control")
	made := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: ada, body: webhook}), http.StatusCreated)
	path := "/jobs/" + made.ID.String()
	b.do(t, request{method: "POST", path: base + path + "/pause", token: text, body: `{"reason":"a break"}`, header: map[string]string{"X-Request-Id": "pause-1"}})
	b.do(t, request{method: "DELETE", path: base + path, token: ada})
	list := func(query string) []api.AuditEntry {
		t.Helper()
		return read[api.AuditPage](t, b.do(t, request{method: "GET", path: base + "/audit" + query, token: admin}), http.StatusOK).Items
	}
	var got []string
	for _, e := range list("?objectId=" + made.ID.String()) {
		got = append(got, fmt.Sprintf("%s %s %s %s by %s %s", e.Action, e.Change, e.ObjectType, e.ActorKind, e.Actor, e.Address))
	}
	want := []string{
		"deleteJob delete job user by ada 192.0.2.1", "pauseJob update job apiKey by api-key:" + key.ID.String() + " 192.0.2.1", "createJob create job user by ada 192.0.2.1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	paused := list("?action=pauseJob")
	if len(paused) != 1 || paused[0].RequestID != "pause-1" {
		t.Fatalf("paused %+v", paused)
	}
	if diff := cmp.Diff(decoded(t, `{"status":"paused","statusReason":"a break"}`), decoded(t, string(*paused[0].After))); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	if n := len(list("?actor=ada&objectType=job&from=2020-01-01T00:00:00Z&to=2100-01-01T00:00:00Z")); n != 2 {
		t.Errorf("%d changes of jobs by ada", n)
	}
	// Page by page it is the same list.
	var paged []api.AuditEntry
	for cursor := ""; ; {
		page := read[api.AuditPage](t, b.do(t, request{method: "GET", path: base + "/audit?limit=1" + cursor, token: admin}), http.StatusOK)
		paged = append(paged, page.Items...)
		if !page.HasMore {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if diff := cmp.Diff(list(""), paged); diff != "" {
		t.Errorf("paged (-want +got):\n%s", diff)
	}
	refused(t, b.do(t, request{method: "GET", path: base + "/audit?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", token: admin}), http.StatusBadRequest, "VALIDATION_FAILED")
	theirs := read[api.AuditPage](t, b.do(t, request{method: "GET", path: base + "/audit", token: b.token(t, b.theirs, identity.Admin)}), http.StatusOK)
	for _, e := range theirs.Items {
		if e.ObjectType != api.AuditObjectType("tenant") {
			t.Errorf("another tenant sees %+v", e)
		}
	}
}

// A filter that nothing can fit is a mistake, and the answer says what fits.
func TestAuditOfAnUnknownOperation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Admin)
	ask := func(action string) answer {
		return b.do(t, request{method: "GET", path: base + "/audit?action=" + action, token: token})
	}
	for _, action := range []string{"nope", "PauseJob", "get"} {
		got := ask(action)
		e := refused(t, got, http.StatusBadRequest, "VALIDATION_FAILED")
		if len(e.Error.Details) != 1 || e.Error.Details[0].Field != "action" || !strings.Contains(e.Error.Details[0].Message, ", pauseJob, ") {
			t.Errorf("%s: %s", action, got.body)
		}
	}
	for _, action := range []string{"create", "update", "delete", "pauseJob", "internalPauseJob", "putSecret", "listAudit"} {
		read[api.AuditPage](t, ask(action), http.StatusOK)
	}
}

func TestVerifyAudit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin := b.token(t, b.ours, identity.Admin)
	b.makeJob(t, b.ours)
	verify := func(query string) api.AuditVerification {
		t.Helper()
		return read[api.AuditVerification](t, b.do(t, request{method: "GET", path: base + "/audit/verify" + query, token: admin}), http.StatusOK)
	}
	first := verify("")
	if !first.Valid || !first.Complete || first.Checked != 2 || len(first.Anchors) != 1 || len(first.Problems) != 0 {
		t.Fatalf("verified %+v", first)
	}
	b.makeJob(t, b.ours)
	if again := verify("?anchor=" + first.Anchors[0]); !again.Valid || again.Checked != 2 || again.Anchors[0] == first.Anchors[0] {
		t.Errorf("from the anchor: %+v", again)
	}
	forged := first.Anchors[0][:len(first.Anchors[0])-4] + "0000"
	if r := verify("?anchor=" + forged); r.Valid || len(r.Problems) != 1 || r.Problems[0].Kind != "anchor" {
		t.Errorf("a forged anchor: %+v", r)
	}
	for _, query := range []string{
		"?anchor=x", "?anchor=0.0." + strings.Repeat("00", 32), "?anchor=8.1." + strings.Repeat("00", 32), "?anchor=" + first.Anchors[0] + "&anchor=" + first.Anchors[0],
		"?anchor=" + uuid.NewString(),
	} {
		refused(t, b.do(t, request{method: "GET", path: base + "/audit/verify" + query, token: admin}), http.StatusBadRequest, "VALIDATION_FAILED")
	}
}
