package rest_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// walk follows a list to its end and gives the ids of each page.
func (b *bundle) walk(t *testing.T, token, path string) [][]uuid.UUID {
	t.Helper()
	var pages [][]uuid.UUID
	next := ""
	for range 50 {
		got := read[struct {
			Items      []struct{ ID uuid.UUID }
			NextCursor *string
			HasMore    bool
		}](t, b.do(t, request{method: "GET", path: path + next, token: token}), http.StatusOK)
		var ids []uuid.UUID
		for _, item := range got.Items {
			ids = append(ids, item.ID)
		}
		pages = append(pages, ids)
		if (got.NextCursor != nil) != got.HasMore {
			t.Fatalf("hasMore is %v and nextCursor %v", got.HasMore, got.NextCursor)
		}
		if !got.HasMore {
			return pages
		}
		next = "&cursor=" + url.QueryEscape(*got.NextCursor)
	}
	t.Fatal("the list has no end")
	return nil
}

func TestListsPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	var jobs, runs []uuid.UUID // newest first
	for range 7 {
		made := b.makeJob(t, b.ours)
		jobs = append([]uuid.UUID{made.ID}, jobs...)
		runs = append([]uuid.UUID{b.makeExecution(t, b.ours, made.ID).ID}, runs...)
	}
	for range 2 {
		runs = append([]uuid.UUID{b.makeExecution(t, b.ours, jobs[0]).ID}, runs...)
	}
	b.makeExecution(t, b.theirs, b.makeJob(t, b.theirs).ID)
	for _, test := range []struct {
		name, path string
		want       [][]uuid.UUID
	}{
		{"jobs by three", "/jobs?limit=3", [][]uuid.UUID{jobs[:3], jobs[3:6], jobs[6:]}},
		{"jobs by seven, which is all", "/jobs?limit=7", [][]uuid.UUID{jobs}},
		{"jobs by one hundred", "/jobs?limit=100", [][]uuid.UUID{jobs}},
		{"jobs without a limit", "/jobs?status=active", [][]uuid.UUID{jobs}},
		{"no jobs", "/jobs?status=paused", [][]uuid.UUID{nil}},
		{"no jobs of a type", "/jobs?jobType=function", [][]uuid.UUID{nil}},
		{"executions by four", "/executions?limit=4", [][]uuid.UUID{runs[:4], runs[4:8], runs[8:]}},
		{"executions of two states", "/executions?limit=5&status=pending&status=running", [][]uuid.UUID{runs[:5], runs[5:]}},
		{"executions of another state", "/executions?status=failed", [][]uuid.UUID{nil}},
		{"executions by trigger", "/executions?triggerType=manual&limit=100", [][]uuid.UUID{runs}},
		{"executions by another trigger", "/executions?triggerType=scheduled", [][]uuid.UUID{nil}},
		{"executions of a job", "/executions?limit=2&jobId=" + jobs[0].String(), [][]uuid.UUID{runs[:2], runs[2:3]}},
		{"a job's executions", "/jobs/" + jobs[0].String() + "/executions?limit=2", [][]uuid.UUID{runs[:2], runs[2:3]}},
		{"executions from then on", "/executions?from=2020-01-01T00:00:00Z&limit=100", [][]uuid.UUID{runs}},
		{"executions until then", "/executions?to=2020-01-01T00:00:00Z", [][]uuid.UUID{nil}},
		{"executions in the year 0", "/executions?from=0000-01-01T00:00:00Z&to=0001-01-01T00:00:00Z", [][]uuid.UUID{nil}},
		{"executions in the year 9999", "/executions?from=9999-12-31T00:00:00Z&to=9999-12-31T23:59:59.999999999Z", [][]uuid.UUID{nil}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, b.walk(t, token, base+test.path)); diff != "" {
				t.Errorf("pages differ (-want +got):\n%s", diff)
			}
		})
	}
	for _, order := range []string{"from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z", "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"} {
		e := refused(t, b.do(t, request{method: "GET", path: base + "/executions?" + order, token: token}), http.StatusBadRequest, "VALIDATION_FAILED")
		if len(e.Error.Details) != 1 || e.Error.Details[0].Field != "to" {
			t.Errorf("details are %+v", e.Error.Details)
		}
	}
}

// A cursor opens only the list that it is of: same tenant, path and filters.
func TestCursorsOpenOneList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ours, theirs := b.token(t, b.ours, identity.Viewer), b.token(t, b.theirs, identity.Viewer)
	var of uuid.UUID
	for range 3 {
		of = b.makeJob(t, b.ours).ID
		b.makeJob(t, b.theirs)
		b.makeExecution(t, b.ours, of)
	}
	first := read[api.JobPage](t, b.do(t, request{method: "GET", path: base + "/jobs?limit=1&status=active&jobType=http", token: ours}), http.StatusOK)
	cursor := *first.NextCursor
	get := func(token, path, cursor string) answer {
		return b.do(t, request{method: "GET", path: base + path + "cursor=" + url.QueryEscape(cursor), token: token})
	}
	for _, fine := range []string{"/jobs?limit=1&status=active&jobType=http&", "/jobs?jobType=http&limit=50&status=active&"} {
		if got := get(ours, fine, cursor); got.status != http.StatusOK {
			t.Errorf("%s answered %d %s", fine, got.status, got.body)
		}
	}
	runs := read[api.ExecutionPage](t, b.do(t, request{method: "GET", path: base + "/executions?limit=1&status=pending&status=failed", token: ours}), http.StatusOK)
	if got := get(ours, "/executions?status=failed&status=pending&", *runs.NextCursor); got.status != http.StatusOK {
		t.Errorf("the order of filters counts: %d %s", got.status, got.body)
	}
	for _, other := range []struct{ token, path, cursor string }{
		{theirs, "/jobs?limit=1&status=active&jobType=http&", cursor},
		{ours, "/jobs?limit=1&status=active&", cursor},
		{ours, "/jobs?limit=1&status=paused&jobType=http&", cursor},
		{ours, "/jobs?", cursor},
		{ours, "/executions?", cursor},
		{ours, "/jobs/" + of.String() + "/executions?", cursor},
		{ours, "/jobs?limit=1&status=active&jobType=http&", cursor[1:] + "A"},
		{ours, "/jobs?limit=1&status=active&jobType=http&", strings.ToUpper(cursor)},
		{ours, "/jobs?limit=1&status=active&jobType=http&", "x"},
		{ours, "/jobs?limit=1&status=active&jobType=http&", cursor + "\x00"},
		{ours, "/jobs?limit=1&status=active&jobType=http&", "' OR 1=1 --"},
	} {
		e := refused(t, get(other.token, other.path, other.cursor), http.StatusBadRequest, "VALIDATION_FAILED")
		if len(e.Error.Details) != 1 || e.Error.Details[0].Field != "cursor" {
			t.Errorf("%s: details are %+v", other.path, e.Error.Details)
		}
	}
}
