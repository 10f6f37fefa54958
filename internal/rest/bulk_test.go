package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
)

// bulk makes a call and reads what came of it: the ids that were done, in
// order, and the codes of the others.
func (b *bundle) bulk(t *testing.T, path, body string, header ...string) (api.BulkResult, []uuid.UUID, map[uuid.UUID]string) {
	t.Helper()
	r := request{method: "POST", path: base + path, token: b.token(t, b.ours, identity.Operator), body: body, header: map[string]string{}}
	if len(header) == 2 {
		r.header[header[0]] = header[1]
	}
	result := read[api.BulkResult](t, b.do(t, r), http.StatusOK)
	var done []uuid.UUID
	for _, one := range result.Done {
		done = append(done, one.ID)
	}
	faults := map[uuid.UUID]string{}
	for _, one := range result.Faults {
		faults[one.ID] = one.Code
	}
	return result, done, faults
}

func ids(t *testing.T, list ...uuid.UUID) string {
	t.Helper()
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestBulkOnJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var jobs []uuid.UUID // newest first
	for range 5 {
		jobs = append([]uuid.UUID{b.makeJob(t, b.ours).ID}, jobs...)
	}
	theirs, nobody := b.makeJob(t, b.theirs).ID, uuid.New()
	status := func(id uuid.UUID) string {
		j, err := b.jobs.Get(t.Context(), b.ours, id)
		if err != nil {
			t.Fatal(err)
		}
		return string(j.Status) + " " + j.StatusReason
	}
	// By ids: each for itself, and another tenant's is as one that is not there.
	_, done, faults := b.bulk(t, "/jobs/bulk/pause", `{"reason":"moving","ids":`+ids(t, jobs[0], theirs, nobody, jobs[1])+`}`)
	if diff := cmp.Diff([]uuid.UUID{jobs[0], jobs[1]}, done); diff != "" || len(faults) != 2 || faults[theirs] != "JOB_NOT_FOUND" || faults[nobody] != "JOB_NOT_FOUND" {
		t.Errorf("done differs: %s; faults %v", diff, faults)
	}
	if got := status(jobs[0]); got != "paused moving" {
		t.Errorf("the job is %s", got)
	}
	if j, err := b.jobs.Get(t.Context(), b.theirs, theirs); err != nil || j.Status != "active" {
		t.Errorf("another tenant's job is %s: %v", j.Status, err)
	}
	// By filter, a few at a time; what was done does not fit any more.
	var all []uuid.UUID
	cursor := ""
	for range 5 {
		result, done, faults := b.bulk(t, "/jobs/bulk/pause", `{"filter":{"status":["active"]},"limit":2`+cursor+`}`)
		if all = append(all, done...); len(faults) > 0 {
			t.Errorf("faults %v", faults)
		}
		if result.NextCursor == nil {
			break
		}
		cursor = fmt.Sprintf(`,"cursor":%q`, *result.NextCursor)
	}
	if diff := cmp.Diff(jobs[2:], all); diff != "" {
		t.Errorf("paused by filter (-want +got):\n%s", diff)
	}
	// A dry run changes nothing.
	result, done, faults := b.bulk(t, "/jobs/bulk/resume", `{"filter":{"q":"STORED"},"dryRun":true}`)
	if len(done) != 5 || len(faults) != 0 || !result.DryRun || status(jobs[0]) != "paused moving" {
		t.Errorf("a dry run does %v and refuses %v; the job is %s", done, faults, status(jobs[0]))
	}
	if _, done, faults := b.bulk(t, "/jobs/bulk/resume", `{"dryRun":true,"ids":`+ids(t, jobs[0], theirs)+`}`); len(done) != 1 || faults[theirs] != "JOB_NOT_FOUND" {
		t.Errorf("a dry run by ids does %v and refuses %v", done, faults)
	}
	if _, done, _ := b.bulk(t, "/jobs/bulk/resume", `{"all":true}`); len(done) != 5 || status(jobs[4]) != "active " {
		t.Errorf("resumed %d", len(done))
	}
	// A key makes each run once, also when the call is another.
	first, _, _ := b.bulk(t, "/jobs/bulk/trigger", `{"ids":`+ids(t, jobs[0], jobs[1])+`}`, "Idempotency-Key", "k")
	second, _, _ := b.bulk(t, "/jobs/bulk/trigger", `{"ids":`+ids(t, jobs[1], jobs[2])+`}`, "Idempotency-Key", "k")
	if *first.Done[1].ExecutionID != *second.Done[0].ExecutionID || b.stored(t)["active_executions"] != 3 || len(b.hinted) != 3 {
		t.Errorf("triggered %+v and %+v, %d hints", first.Done, second.Done, len(b.hinted))
	}
	if _, done, _ := b.bulk(t, "/jobs/bulk/stop", `{"ids":`+ids(t, jobs...)+`}`); len(done) != 5 || status(jobs[0]) != "inactive stopped" || b.stored(t)["active_executions"] != 0 {
		t.Errorf("stopped %d, the first is %s", len(done), status(jobs[0]))
	}
	if _, _, faults := b.bulk(t, "/jobs/bulk/pause", `{"ids":`+ids(t, jobs[0])+`}`); faults[jobs[0]] != "CONFLICT" {
		t.Errorf("pausing a stopped job: %v", faults)
	}
}

func TestBulkOnExecutions(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) { d.Hint = func(context.Context, int, uuid.UUID) {} })
	made, worker := b.wide(t, b.ours).ID, b.claimer(t)
	runs, failed, waits := b.makeExecution(t, b.ours, made).ID, b.makeExecution(t, b.ours, made).ID, b.makeExecution(t, b.ours, made).ID
	theirs := b.makeExecution(t, b.theirs, b.wide(t, b.theirs).ID).ID
	worker.claim(runs, failed)
	worker.complete(false, failed)
	_, done, faults := b.bulk(t, "/executions/bulk/cancel", `{"ids":`+ids(t, failed, theirs)+`}`)
	if len(done) != 0 || faults[failed] != "EXECUTION_FINISHED" || faults[theirs] != "EXECUTION_NOT_FOUND" {
		t.Errorf("done %v, faults %v", done, faults)
	}
	_, done, faults = b.bulk(t, "/executions/bulk/cancel", `{"filter":{"jobId":"`+made.String()+`"}}`)
	if diff := cmp.Diff([]uuid.UUID{waits, runs}, done); diff != "" || len(faults) != 0 {
		t.Errorf("cancelled by filter: %s; faults %v", diff, faults)
	}
	result, done, _ := b.bulk(t, "/executions/bulk/retry", `{"all":true}`)
	if len(done) != 1 || done[0] != failed || result.Done[0].ExecutionID == nil {
		t.Errorf("made again: %+v", result)
	}
	if _, done, _ := b.bulk(t, "/executions/bulk/retry", `{"filter":{"jobId":"`+uuid.NewString()+`"}}`); len(done) != 0 {
		t.Errorf("of a job that is not there: %v", done)
	}
}

func TestBulkRefusesWhatItCannotMean(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Operator)
	var many []uuid.UUID
	for range 1001 {
		many = append(many, uuid.New())
	}
	for body, field := range map[string]string{
		`{}`:                                         "ids",
		`{"all":false}`:                              "ids",
		`{"filter":{}}`:                              "filter",
		`{"filter":{},"all":true}`:                   "filter",
		`{"all":"true"}`:                             "all",
		`{"ids":[],"filter":{"q":"x"}}`:              "ids",
		`{"filter":{"tagMatch":"any"}}`:              "filter",
		`{"filter":{"q":"x"},"all":true}`:            "all",
		`{"all":true,"ids":` + ids(t, many[0]) + `}`: "all",
		`{"filter":{"q":"x"},"ids":` + ids(t, many[0]) + `}`: "ids",
		`{"ids":` + ids(t, many...) + `}`:                    "ids",
		`{"filter":{"name":"x"}}`:                            "filter.name",
		`{"filter":{"q":"x"},"cursor":"x"}`:                  "cursor",
		`{"all":true,"cursor":"x"}`:                          "cursor",
		`{"ids":` + ids(t, many[0]) + `,"cursor":"x"}`:       "cursor",
		`{"filter":{"q":"x"},"limit":100001}`:                "limit",
		`{"filter":{"q":"x"},"misfirePolicy":"skip"}`:        "misfirePolicy",
	} {
		e := refused(t, b.do(t, request{method: "POST", path: base + "/jobs/bulk/stop", token: token, body: body}), http.StatusBadRequest, "VALIDATION_FAILED")
		if len(e.Error.Details) != 1 || e.Error.Details[0].Field != field {
			t.Errorf("%.60s: details are %+v", body, e.Error.Details)
		}
	}
	e := refused(t, b.do(t, request{method: "POST", path: base + "/jobs/bulk/trigger", token: token, body: `{"all":true,"limit":1001}`}), http.StatusBadRequest, "VALIDATION_FAILED")
	if len(e.Error.Details) != 1 || e.Error.Details[0].Field != "limit" {
		t.Errorf("a trigger of 1001: details are %+v", e.Error.Details)
	}
	for body, field := range map[string]string{`{}`: "ids", `{"filter":{}}`: "filter", `{"filter":{"status":["pending"]},"all":true}`: "all"} {
		e := refused(t, b.do(t, request{method: "POST", path: base + "/executions/bulk/cancel", token: token, body: body}), http.StatusBadRequest, "VALIDATION_FAILED")
		if len(e.Error.Details) != 1 || e.Error.Details[0].Field != field {
			t.Errorf("%s: details are %+v", body, e.Error.Details)
		}
	}
	e = refused(t, b.do(t, request{
		method: "POST", path: base + "/executions/bulk/cancel", token: token,
		body: `{"filter":{"from":"2026-01-02T00:00:00Z","to":"2026-01-01T00:00:00Z"}}`,
	}), http.StatusBadRequest, "VALIDATION_FAILED")
	if !strings.HasPrefix(e.Error.Details[0].Field, "filter.to") {
		t.Errorf("details are %+v", e.Error.Details)
	}
}
