package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// names walks a list of jobs by pages of two and gives their names.
func (b *bundle) names(t *testing.T, token, query string) string {
	t.Helper()
	var names []string
	next := ""
	for range 20 {
		page := read[api.JobPage](t, b.do(t, request{method: "GET", path: base + "/jobs?limit=2&" + query + next, token: token}), http.StatusOK)
		for _, j := range page.Items {
			names = append(names, j.Name)
		}
		if !page.HasMore {
			return strings.Join(names, " ")
		}
		next = "&cursor=" + url.QueryEscape(*page.NextCursor)
	}
	t.Fatal("the list has no end")
	return ""
}

// filterOf is the filter of a bulk call that has the conditions of a list's query;
// "" for a list without conditions or in another order.
func filterOf(t *testing.T, query string) string {
	t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	if len(values) == 0 || values.Has("sort") {
		return ""
	}
	filter := map[string]any{}
	for name, given := range values {
		if filter[name] = given[0]; slices.Contains([]string{"status", "jobType", "tags", "triggerType", "errorType"}, name) {
			filter[name] = given
		}
	}
	raw, err := json.Marshal(filter)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func (b *bundle) named(t *testing.T, id uuid.UUID) string {
	t.Helper()
	found, err := b.jobs.Get(t.Context(), b.ours, id)
	if err != nil {
		t.Fatal(err)
	}
	return found.Name
}

func TestListsOfJobsFilterAndSort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	if err := tenant.NewStore(b.db, true).Admit(t.Context(), b.ours.TenantID); err != nil {
		t.Fatal(err)
	}
	year := func(n int) *time.Time { at := time.Date(2080+n, 1, 1, 0, 0, 0, 0, time.UTC); return &at }
	create := func(name string, edit func(*job.Spec)) job.Job {
		spec := job.Spec{Name: name, Type: "http", Config: json.RawMessage(`{"url":"https://example.com/"}`), Retry: job.DefaultRetry()}
		edit(&spec)
		made, _, err := b.jobs.Create(t.Context(), b.ours, spec.WithDefaults(), idempotency.Key{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	create("delta", func(s *job.Spec) {
		s.RunAt, s.Tags, s.Description = year(1), []string{"x"}, "Monthly REPORT for 100% of _all_"
	})
	a := create("Alpha", func(s *job.Spec) {
		s.RunAt, s.Tags, s.Type, s.Config = year(3), []string{"x", "y"}, "function", []byte(`{"modulePath":"builtin","functionName":"noop"}`)
	})
	c := create("charlie", func(s *job.Spec) { s.RunAt, s.Tags = year(2), []string{"y"} })
	d := create("bravo", func(*job.Spec) {}) // without a schedule
	create("Echo", func(s *job.Spec) { s.RunAt, s.Description = year(4), "早报 und Bericht" })
	if _, err := b.jobs.Pause(t.Context(), b.ours, c.ID, "", nil); err != nil {
		t.Fatal(err)
	}
	b.makeJob(t, b.theirs)
	for _, test := range []struct{ query, want string }{
		{"", "Echo bravo charlie Alpha delta"},
		{"sort=createdAt", "delta Alpha charlie bravo Echo"},
		{"sort=name", "Alpha bravo charlie delta Echo"},
		{"sort=-name", "Echo delta charlie bravo Alpha"},
		{"sort=nextExecutionAt&status=active&jobType=http&jobType=function", "delta Alpha Echo bravo"},
		{"sort=-nextExecutionAt&status=active", "Echo Alpha delta bravo"},
		{"sort=-updatedAt", "charlie Echo bravo Alpha delta"},
		{"sort=updatedAt", "delta Alpha bravo Echo charlie"},
		{"sort=name&status=paused&status=inactive", "charlie"},
		{"jobType=function", "Alpha"},
		{"tags=x", "Alpha delta"},
		{"tags=x&tags=y", "Alpha"},
		{"tags=x&tags=y&tagMatch=any", "charlie Alpha delta"},
		{"tags=x&tags=y&tagMatch=any&sort=name", "Alpha charlie delta"},
		{"tags=X", ""},
		{"q=report", "delta"},
		{"q=100%25+of", "delta"},
		{"q=_all_", "delta"},
		{"q=%25", "delta"},
		{"q=A&sort=name", "Alpha bravo charlie delta"},
		{"q=" + url.QueryEscape("报"), "Echo"},
		{"q=%5C", ""},
		{"q=%27+OR+1%3D1", ""},
		{"createdBy=ada&sort=createdAt", "delta Alpha charlie bravo Echo"},
		{"createdBy=eve", ""},
		{"nextExecutionFrom=2081-01-01T00:00:00Z&nextExecutionTo=2083-01-01T00:00:00Z", "delta"},               // charlie is paused
		{"nextExecutionFrom=2081-01-01T00:00:00Z&createdFrom=" + d.CreatedAt.Format(time.RFC3339Nano), "Echo"}, // the last one has no next run
		{"createdFrom=" + a.CreatedAt.Format(time.RFC3339Nano) + "&createdTo=" + c.CreatedAt.Format(time.RFC3339Nano), "Alpha"},
		{"createdTo=" + a.CreatedAt.Format(time.RFC3339Nano) + "&sort=createdAt", "delta"},
		{"sort=lastExecutionAt&createdTo=" + a.CreatedAt.Format(time.RFC3339Nano), "delta"},
	} {
		if got := b.names(t, token, test.query); got != test.want {
			t.Errorf("%s lists %q, want %q", test.query, got, test.want)
		}
		if filter := filterOf(t, test.query); filter != "" {
			_, done, _ := b.bulk(t, "/jobs/bulk/stop", `{"dryRun":true,"filter":`+filter+`}`)
			var names []string
			for _, id := range done {
				names = append(names, b.named(t, id))
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("a bulk call over %s selects %q, want %q", filter, got, test.want)
			}
		}
	}
	for field, query := range map[string]string{
		"q": "q=%00", "tags": "tags=a%00", "createdBy": "createdBy=%00", "createdTo": "createdFrom=2026-01-02T00:00:00Z&createdTo=2026-01-01T00:00:00Z",
		"nextExecutionTo": "nextExecutionFrom=2026-01-02T00:00:00Z&nextExecutionTo=2026-01-02T00:00:00Z", "sort": "sort=id",
	} {
		e := refused(t, b.do(t, request{method: "GET", path: base + "/jobs?" + query, token: token}), http.StatusBadRequest, "VALIDATION_FAILED")
		if len(e.Error.Details) != 1 || e.Error.Details[0].Field != field {
			t.Errorf("%s: details are %+v", query, e.Error.Details)
		}
	}
	// A cursor is of one order too.
	first := read[api.JobPage](t, b.do(t, request{method: "GET", path: base + "/jobs?limit=1&sort=name", token: token}), http.StatusOK)
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs?limit=1&sort=-name&cursor=" + *first.NextCursor, token: token}), http.StatusBadRequest, "VALIDATION_FAILED")
}

// A name of the greatest length, in the widest characters, still makes a cursor
// that is taken back.
func TestLongNamesPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	for range 3 {
		got := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: strings.Replace(webhook, "report", strings.Repeat("𝄞", 200), 1)})
		if got.status != http.StatusCreated {
			t.Fatal(got.body)
		}
	}
	if got := strings.Count(b.names(t, token, "sort=name"), " "); got != 2 {
		t.Errorf("%d jobs are listed, want 3", got+1)
	}
}

func TestListsOfExecutionsFilterAndSort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	made := b.wide(t, b.ours)
	insert := func(minutes int, status, trigger, by string) {
		at := b.now.UTC().Truncate(time.Second).Add(-time.Duration(minutes) * time.Minute)
		if _, err := b.engine.Pool().Exec(t.Context(), "SELECT create_job_executions_partition($1)", at); err != nil {
			t.Fatal(err)
		}
		_, err := b.engine.Pool().Exec(t.Context(), `INSERT INTO job_executions
			(id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, status, completed_at, created_at, result, reason, error_type)
			VALUES ($1, $2, $3, $4, 1, $5, $6, 'http', $7, $2, $2, '{"a":1}', $8, CASE WHEN $7 = 'failed' THEN CASE WHEN $6 = '' THEN 'TIMEOUT' ELSE 'USER_ERROR' END END)`,
			execution.RequestedID(b.ours.TenantID, made.ID, at, []byte(status)), at, b.ours.TenantID, made.ID, trigger, by, status, fmt.Sprint(minutes))
		if err != nil {
			t.Fatal(err)
		}
	}
	insert(10, "completed", "scheduled", "")
	insert(20, "failed", "manual", "ada")
	insert(30, "completed", "retry", "eve")
	insert(40, "failed", "scheduled", "")
	insert(60*24*40, "cancelled", "scheduled", "") // in another partition
	list := func(query string) string {
		var reasons []string
		next := ""
		for range 10 {
			page := read[api.ExecutionPage](t, b.do(t, request{method: "GET", path: base + query + "&limit=2" + next, token: token}), http.StatusOK)
			for _, e := range page.Items {
				if string(e.Result) != "null" && e.Result != nil {
					t.Errorf("%s shows a result", query)
				}
				reasons = append(reasons, *e.Reason)
			}
			if !page.HasMore {
				return strings.Join(reasons, " ")
			}
			next = "&cursor=" + url.QueryEscape(*page.NextCursor)
		}
		t.Fatal("the list has no end")
		return ""
	}
	at := func(minutes int) string {
		return url.QueryEscape(b.now.UTC().Truncate(time.Second).Add(-time.Duration(minutes) * time.Minute).Format(time.RFC3339))
	}
	for _, test := range []struct{ query, want string }{
		{"", "10 20 30 40 57600"},
		{"sort=scheduledAt", "57600 40 30 20 10"},
		{"status=failed", "20 40"},
		{"status=failed&sort=scheduledAt", "40 20"},
		{"status=failed&status=cancelled", "20 40 57600"},
		{"status=failed&status=completed", "10 20 30 40"},
		{"triggerType=scheduled&triggerType=manual", "10 20 40 57600"},
		{"triggeredBy=ada", "20"},
		{"jobType=function", ""},
		{"jobType=http&status=failed", "20 40"},
		{"errorType=TIMEOUT", "40"},
		{"errorType=TIMEOUT&errorType=USER_ERROR&sort=scheduledAt", "40 20"},
		{"errorType=TIMEOUT&status=completed", ""},
		{"errorType=NETWORK_ERROR", ""},
		{"errorType=NETWORK_ERROR&status=cancelled", ""}, // the last one has no error
		{"from=" + at(30) + "&to=" + at(10), "20 30"},
		{"from=" + at(30) + "&to=" + at(10) + "&sort=scheduledAt", "30 20"},
		{"createdFrom=" + at(30) + "&createdTo=" + at(10), "20 30"},
	} {
		for _, path := range []string{"/executions?", "/executions?jobId=" + made.ID.String() + "&", "/jobs/" + made.ID.String() + "/executions?"} {
			if got := list(path + test.query); got != test.want {
				t.Errorf("%s%s lists %q, want %q", path, test.query, got, test.want)
			}
		}
		if !strings.Contains(test.query, "status=") { // without one, a bulk call acts on those that it can act on
			test.query += "&status=completed&status=failed&status=cancelled"
		}
		if filter := filterOf(t, test.query); filter != "" {
			_, done, _ := b.bulk(t, "/executions/bulk/retry", `{"dryRun":true,"filter":`+filter+`}`)
			var reasons []string
			for _, id := range done {
				one := read[api.Execution](t, b.do(t, request{method: "GET", path: base + "/executions/" + id.String(), token: token}), http.StatusOK)
				reasons = append(reasons, *one.Reason)
			}
			if got := strings.Join(reasons, " "); got != test.want {
				t.Errorf("a bulk call over %s selects %q, want %q", filter, got, test.want)
			}
		}
	}
	full := read[api.ExecutionPage](t, b.do(t, request{method: "GET", path: base + "/executions?include=result", token: token}), http.StatusOK)
	if string(full.Items[0].Result) != `{"a":1}` {
		t.Errorf("with its result it is %s", full.Items[0].Result)
	}
	if slices.ContainsFunc(full.Items, func(e api.Execution) bool { return e.ID == uuid.Nil }) {
		t.Error("an execution has no id")
	}
	none := int64(-1) // the total is null
	for _, test := range []struct {
		query string
		want  int64
	}{
		{"from=" + at(60), 4},
		{"from=" + at(60) + "&limit=1", 4},
		{"from=" + at(30) + "&to=" + at(10), 2},
		{"from=" + at(60) + "&status=failed", 2},
		{"from=" + at(60) + "&status=failed&status=completed&sort=scheduledAt", 4},
		{"from=" + at(60) + "&status=cancelled", 0},
		{"from=" + at(60) + "&jobType=function", 0},
		{"from=" + at(60) + "&triggerType=manual", 1},
		{"", none},
		{"from=" + at(60000), none}, // more than 31 days
		{"from=" + at(60) + "&errorType=TIMEOUT", none},
		{"from=" + at(60) + "&triggeredBy=ada", none},
		{"from=" + at(60) + "&createdFrom=" + at(60), none},
		{"from=" + at(60) + "&triggerType=manual&triggerType=scheduled", none},
	} {
		for _, path := range []string{"/executions?", "/executions?jobId=" + made.ID.String() + "&", "/jobs/" + made.ID.String() + "/executions?"} {
			got := none
			if page := read[api.ExecutionPage](t, b.do(t, request{method: "GET", path: base + path + test.query + "&include=total", token: token}), http.StatusOK); page.Total != nil {
				got = *page.Total
			}
			if got != test.want {
				t.Errorf("%s%s has a total of %d, want %d", path, test.query, got, test.want)
			}
		}
	}
}

// A filter over many jobs costs a page 10,000 rows at most; the pages after it find
// what fits. An order that sorts them all is refused, until the range leaves fewer.
func TestListsOfManyJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	first := b.makeJob(t, b.ours)
	admin := b.connect(t)
	if _, err := admin.Exec(t.Context(), `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, created_at, job_type, config, max_attempts, timeout_seconds)
		SELECT gen_random_uuid(), $1, 'job ' || n, 'bob', now() + n * interval '1 ms', 'http', '{"url":"https://example.com/"}', 1, 1
		FROM generate_series(1, 10000) n`, b.ours.TenantID); err != nil {
		t.Fatal(err)
	}
	get := func(query string) api.JobPage {
		return read[api.JobPage](t, b.do(t, request{method: "GET", path: base + "/jobs?limit=20&" + query, token: token}), http.StatusOK)
	}
	page := get("createdBy=ada")
	if len(page.Items) != 0 || !page.HasMore {
		t.Errorf("the first page has %d jobs, more: %v", len(page.Items), page.HasMore)
	}
	page = get("createdBy=ada&cursor=" + url.QueryEscape(*page.NextCursor))
	if len(page.Items) != 1 || page.Items[0].ID != first.ID || page.HasMore {
		t.Errorf("the second page is %v, more: %v", page.Items, page.HasMore)
	}
	if page := get("sort=createdAt&createdBy=ada"); len(page.Items) != 1 || !page.HasMore {
		t.Errorf("oldest first: %d jobs, more: %v", len(page.Items), page.HasMore)
	}
	e := refused(t, b.do(t, request{method: "GET", path: base + "/jobs?sort=name", token: token}), http.StatusBadRequest, "VALIDATION_FAILED")
	if len(e.Error.Details) != 1 || e.Error.Details[0].Field != "sort" || !strings.Contains(e.Error.Details[0].Message, "10000") {
		t.Errorf("details are %+v", e.Error.Details)
	}
	if page := get("sort=name&createdFrom=" + first.CreatedAt.Add(time.Microsecond).Format(time.RFC3339Nano)); len(page.Items) != 20 {
		t.Errorf("in a range of 10000, by name: %d jobs", len(page.Items))
	}
	result, _, _ := b.bulk(t, "/jobs/bulk/pause", `{"filter":{"createdBy":"ada"},"dryRun":true}`)
	if len(result.Done) != 1 || result.NextCursor != nil {
		t.Errorf("a bulk call finds %d behind the first 10000, next %v", len(result.Done), result.NextCursor)
	}
}

// The first page of all jobs says how many there are; no other list counts.
func TestTheListOfAllJobsCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Admin)
	for range 3 {
		b.makeJob(t, b.ours)
	}
	b.makeJob(t, b.theirs)
	get := func(query string) api.JobPage {
		return read[api.JobPage](t, b.do(t, request{method: "GET", path: base + "/jobs?limit=2" + query, token: token}), http.StatusOK)
	}
	for _, query := range []string{"", "&sort=name"} {
		page := get(query)
		if total := page.Total; total == nil || *total != 3 {
			t.Errorf("%q counts %+v", query, page)
		}
		if next := get(query + "&cursor=" + url.QueryEscape(*page.NextCursor)); next.Total != nil {
			t.Errorf("the second page counts: %v", next.Total)
		}
	}
	if page := get("&status=active"); page.Total != nil {
		t.Errorf("a filter counts: %v", page.Total)
	}
}
