package rest_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/audit"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/rest"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// wanted is a definition of a set; more is put into it.
func wanted(name, more string) string {
	return `{"name":"` + name + `","cronExpression":"0 0 9 * * 1-5","jobType":"http","config":{"url":"https://example.com/"}` + more + `}`
}

// section is the body of a plan.
func section(more string, jobs ...string) string {
	return `{"jobs":[` + strings.Join(jobs, ",") + `]` + more + `}`
}

func (b *bundle) inSet(t *testing.T, verb, body string) answer {
	t.Helper()
	return b.do(t, request{method: "POST", path: base + "/sets/billing/" + verb, token: b.token(t, b.ours, identity.Developer), body: body})
}

func (b *bundle) planned(t *testing.T, body string) api.SetPlan {
	t.Helper()
	return read[api.SetPlan](t, b.inSet(t, "plan", body), http.StatusOK)
}

// applied plans a section and applies it.
func (b *bundle) applied(t *testing.T, body string) api.SetOutcome {
	t.Helper()
	return read[api.SetOutcome](t, b.inSet(t, "apply", hashed(body, b.planned(t, body).Hash)), http.StatusOK)
}

func hashed(body, hash string) string {
	return strings.TrimSuffix(body, "}") + `,"hash":"` + hash + `"}`
}

// jobsOf lists what a tenant has, by name: each with its set, its version and its timeout.
func (b *bundle) jobsOf(t testing.TB, who tenant.Actor, filter job.Filter) []string {
	t.Helper()
	filter.Limit = 10_000
	list, err := b.jobs.List(t.Context(), who, filter)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, j := range list.Jobs {
		found = append(found, fmt.Sprintf("%s in %q v%d %ds", j.Name, j.Set, j.Version, j.Timeout))
	}
	slices.Sort(found)
	return found
}

func (b *bundle) has(t testing.TB, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, b.jobsOf(t, b.ours, job.Filter{})); diff != "" {
		t.Errorf("the jobs differ (-want +got):\n%s", diff)
	}
}

// changesIn is what a plan does, in one line each.
func changesIn(p api.SetPlan) (lines []string) {
	for _, c := range p.Changes {
		line := string(c.Action) + " " + c.Name
		for _, f := range c.Fields {
			line += fmt.Sprintf(" %s:%v>%v", f.Field, f.From, f.To)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestSetBecomesAsItIsWanted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := section("", wanted("b", ""), wanted("a", `,"tags":["x"]`), wanted("c", ""))
	plan := b.planned(t, first)
	if diff := cmp.Diff([]string{"create a", "create b", "create c"}, changesIn(plan)); diff != "" || plan.Created != 3 || plan.Through != nil {
		t.Errorf("a new set is planned otherwise: %s %+v", diff, plan)
	}
	b.has(t)
	if got := read[api.SetOutcome](t, b.inSet(t, "apply", hashed(first, plan.Hash)), http.StatusOK); got.Created != 3 {
		t.Errorf("applied: %+v", got)
	}
	b.has(t, `a in "billing" v1 300s`, `b in "billing" v1 300s`, `c in "billing" v1 300s`)
	if again := b.planned(t, first); len(again.Changes) != 0 || again.Unchanged != 3 || again.Jobs != 3 {
		t.Errorf("the same files differ: %+v", again)
	}
	refused(t, b.inSet(t, "apply", hashed(first, plan.Hash)), http.StatusConflict, "PLAN_OUTDATED")

	second := section("", wanted("a", `,"tags":["x"]`), wanted("b", `,"timeout":7`))
	plan = b.planned(t, second)
	if diff := cmp.Diff([]string{"change b timeout:300>7", "leave c"}, changesIn(plan)); diff != "" || plan.Left != 1 || plan.Unchanged != 1 {
		t.Errorf("a changed set is planned otherwise: %s %+v", diff, plan)
	}
	b.applied(t, second)
	b.has(t, `a in "billing" v1 300s`, `b in "billing" v2 7s`, `c in "billing" v1 300s`)
	pruned := section(`,"prune":true`, wanted("a", `,"tags":["x"]`), wanted("b", `,"timeout":7`))
	if diff := cmp.Diff([]string{"delete c"}, changesIn(b.planned(t, pruned))); diff != "" {
		t.Errorf("pruning is planned otherwise: %s", diff)
	}
	if got := b.applied(t, pruned); got.Deleted != 1 || got.Created+got.Changed+got.Adopted != 0 {
		t.Errorf("pruned: %+v", got)
	}
	b.has(t, `a in "billing" v1 300s`, `b in "billing" v2 7s`)
	if got := b.called.Load(); got != 2 {
		t.Errorf("promoters were told %d times", got)
	}
	b.wroteAudit(t)
}

// wroteAudit holds the audit log against what the test above does.
func (b *bundle) wroteAudit(t *testing.T) {
	t.Helper()
	entries, _, err := audit.NewStore(b.db).List(t.Context(), b.ours, audit.Filter{Limit: 50, ObjectType: "job"})
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range entries {
		count[e.Action+" "+e.Change]++
	}
	if diff := cmp.Diff(map[string]int{"applySet create": 3, "applySet update": 1, "applySet delete": 1}, count); diff != "" {
		t.Errorf("the audit log differs (-want +got):\n%s", diff)
	}
}

// A set shows up where jobs are listed, alone in the list that asks for it.
func TestJobsAreListedBySet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.makeJob(t, b.ours)
	b.applied(t, section("", wanted("a", "")))
	b.makeJob(t, b.theirs)
	token := b.token(t, b.ours, identity.Developer)
	for _, sort := range []string{"", "&sort=name"} {
		page := read[api.JobPage](t, b.do(t, request{method: "GET", path: base + "/jobs?set=billing" + sort, token: token}), http.StatusOK)
		if len(page.Items) != 1 || page.Items[0].Name != "a" || *page.Items[0].Set != "billing" {
			t.Errorf("the list%s has %+v", sort, page.Items)
		}
	}
	result, _, _ := b.bulk(t, "/jobs/bulk/pause", `{"filter":{"set":"billing"}}`)
	if result.DoneCount != 1 {
		t.Errorf("%d jobs were paused", result.DoneCount)
	}
	// A set does not own what somebody did to a job without changing its definition.
	if plan := b.planned(t, section("", wanted("a", ""))); plan.Unchanged != 1 {
		t.Errorf("a paused job differs: %+v", plan)
	}
}

func TestSetRefusesWhatMoved(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(t *testing.T, b *bundle, id string){
		"a changed job": func(t *testing.T, b *bundle, id string) {
			b.asDeveloper(t, "PUT", "/jobs/"+id, wanted("a", `,"timeout":9`))
		},
		"a renamed job": func(t *testing.T, b *bundle, id string) { b.asDeveloper(t, "PUT", "/jobs/"+id, wanted("other", "")) },
		"a deleted job": func(t *testing.T, b *bundle, id string) { b.asDeveloper(t, "DELETE", "/jobs/"+id, "") },
		"a new namesake": func(t *testing.T, b *bundle, _ string) {
			b.asDeveloper(t, "POST", "/jobs", wanted("b", ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.applied(t, section("", wanted("a", "")))
			list, err := b.jobs.List(t.Context(), b.ours, job.Filter{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			body := section(`,"prune":true`, wanted("a", `,"timeout":7`), wanted("b", ""))
			plan := b.planned(t, body)
			move(t, b, list.Jobs[0].ID.String())
			before := b.jobsOf(t, b.ours, job.Filter{})
			refused(t, b.inSet(t, "apply", hashed(body, plan.Hash)), http.StatusConflict, "PLAN_OUTDATED")
			b.has(t, before...)
		})
	}
	b := setup(t)
	plan := b.planned(t, section("", wanted("a", "")))
	for _, other := range []string{section("", wanted("a", `,"timeout":7`)), section(`,"prune":true`, wanted("a", "")), section(`,"through":"x"`, wanted("a", ""))} {
		refused(t, b.inSet(t, "apply", hashed(other, plan.Hash)), http.StatusConflict, "PLAN_OUTDATED")
	}
	b.has(t)
}

func (b *bundle) asDeveloper(t *testing.T, method, path, body string) answer {
	t.Helper()
	got := b.do(t, request{method: method, path: base + path, token: b.token(t, b.ours, identity.Developer), body: body})
	if got.status >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d %s", method, path, got.status, got.body)
	}
	return got
}

// Jobs of the same name would run twice: a set makes none beside another, and takes over
// the other one only where it is told to and there is no doubt which.
func TestSetAdoptsByName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.asDeveloper(t, "POST", "/jobs", wanted("a", `,"timeout":7`))
	b.asDeveloper(t, "POST", "/jobs", wanted("twice", ""))
	b.asDeveloper(t, "POST", "/jobs", wanted("twice", ""))
	body := section("", wanted("a", ""), wanted("b", ""))
	plan := b.planned(t, body)
	if diff := cmp.Diff([]string{"conflict a", "create b"}, changesIn(plan)); diff != "" || plan.Conflicts != 1 || plan.Changes[0].JobID == nil {
		t.Errorf("a namesake is planned otherwise: %s %+v", diff, plan)
	}
	refused(t, b.inSet(t, "apply", hashed(body, plan.Hash)), http.StatusConflict, "SET_CONFLICT")
	adopting := section(`,"adopt":true`, wanted("a", ""), wanted("b", ""))
	if diff := cmp.Diff([]string{"adopt a timeout:7>300", "create b"}, changesIn(b.planned(t, adopting))); diff != "" {
		t.Errorf("adopting is planned otherwise: %s", diff)
	}
	if got := b.applied(t, adopting); got.Adopted != 1 || got.Created != 1 {
		t.Errorf("adopted: %+v", got)
	}
	b.has(t, `a in "billing" v2 300s`, `b in "billing" v1 300s`, `twice in "" v1 300s`, `twice in "" v1 300s`)
	if plan := b.planned(t, section(`,"adopt":true`, wanted("twice", ""))); plan.Conflicts != 1 || plan.Changes[2].JobID != nil {
		t.Errorf("of two namesakes one is taken: %+v", plan)
	}
	// Another set is told whose it is.
	token := b.token(t, b.ours, identity.Developer)
	other := read[api.SetPlan](t, b.do(t, request{method: "POST", path: base + "/sets/other/plan", token: token, body: section("", wanted("a", ""))}), http.StatusOK)
	if other.Conflicts != 1 || *other.Changes[0].Set != "billing" {
		t.Errorf("another set's job is no conflict: %+v", other)
	}
	// Taking a job over as it is makes no version, and is audited all the same.
	b.asDeveloper(t, "POST", "/jobs", wanted("as it is", ""))
	b.applied(t, section(`,"adopt":true`, wanted("as it is", "")))
	b.has(t, `a in "billing" v2 300s`, `as it is in "billing" v1 300s`, `b in "billing" v1 300s`, `twice in "" v1 300s`, `twice in "" v1 300s`)
	entries, _, err := audit.NewStore(b.db).List(t.Context(), b.ours, audit.Filter{Limit: 1})
	if err != nil || len(entries) != 1 || string(entries[0].After) != `{"setName":"billing"}` {
		t.Errorf("the audit log ends with %+v, %v", entries, err)
	}
}

// A name is one job of a set, also for who renames one.
func TestSetHasANameOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.applied(t, section("", wanted("a", ""), wanted("b", "")))
	list, err := b.jobs.List(t.Context(), b.ours, job.Filter{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	to := map[string]string{"a": "b", "b": "a"}[list.Jobs[0].Name]
	got := b.do(t, request{method: "PUT", path: base + "/jobs/" + list.Jobs[0].ID.String(), token: b.token(t, b.ours, identity.Developer), body: wanted(to, "")})
	refused(t, got, http.StatusConflict, "CONFLICT")
	refused(t, b.inSet(t, "plan", section("", wanted("c", ""), wanted("c", ""))), http.StatusBadRequest, "VALIDATION_FAILED")
}

// Of calls that apply the same plan at the same time, one does it.
func TestSetIsAppliedOnceAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var jobs []string
	for i := range 40 {
		jobs = append(jobs, wanted(fmt.Sprintf("job %02d", i), ""))
	}
	body := section("", jobs...)
	sent := hashed(body, b.planned(t, body).Hash)
	token := b.token(t, b.ours, identity.Developer)
	var calls sync.WaitGroup
	statuses := make([]int, 4)
	for i := range statuses {
		calls.Go(func() {
			statuses[i] = b.send(request{method: "POST", path: base + "/sets/billing/apply", token: token, body: sent}).status
		})
	}
	calls.Wait()
	slices.Sort(statuses)
	if diff := cmp.Diff([]int{200, 409, 409, 409}, statuses); diff != "" {
		t.Errorf("the answers differ (-want +got):\n%s", diff)
	}
	if got := b.jobsOf(t, b.ours, job.Filter{}); len(got) != 40 {
		t.Errorf("there are %d jobs", len(got))
	}
}

// Each fault of each definition is listed, those of the contract and those of the
// domain, and nothing is changed.
func TestSetListsEveryFault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.applied(t, section("", wanted("job 000", "")))
	var contracts, domains []string
	for i := range 500 {
		name := fmt.Sprintf("job %03d", i)
		switch {
		case i%2 == 0:
			contracts, domains = append(contracts, wanted(name, "")), append(domains, wanted(name, ""))
		case i%4 == 1:
			contracts = append(contracts, wanted(name, `,"priority":99,"timezone":"Mars/Olympus"`))
			domains = append(domains, wanted(name, `,"timezone":"Mars/Olympus"`))
		default:
			contracts = append(contracts, wanted(name, `,"tineout":7`))
			domains = append(domains, wanted(name, `,"concurrencyKey":"{{"`))
		}
	}
	for name, try := range map[string]struct {
		jobs  []string
		count int
		want  []string
	}{
		"of the contract": {contracts, 375, []string{"jobs[1].priority", "jobs[1].timezone", "jobs[3].tineout", "jobs[499].tineout"}},
		"of the domain":   {domains, 250, []string{"jobs[1].timezone", "jobs[3].concurrencyKey", "jobs[499].concurrencyKey"}},
	} {
		got := b.inSet(t, "plan", section("", try.jobs...))
		body := problem(t, got)
		found := map[string]bool{}
		for _, d := range body.Error.Details {
			found[d.Field] = true
		}
		if len(body.Error.Details) != try.count {
			t.Errorf("%s: %d faults, not %d", name, len(body.Error.Details), try.count)
		}
		for _, field := range try.want {
			if !found[field] {
				t.Errorf("%s: no fault at %s", name, field)
			}
		}
	}
	b.has(t, `job 000 in "billing" v1 300s`)
	refused(t, b.inSet(t, "plan", section(`,"after":"m"`, wanted("a", ""))), http.StatusBadRequest, "VALIDATION_FAILED")
	refused(t, b.inSet(t, "plan", section(`,"through":"m"`, wanted("z", ""))), http.StatusBadRequest, "VALIDATION_FAILED")
	refused(t, b.inSet(t, "plan", section("", append(domains, wanted("z", ""))...)), http.StatusBadRequest, "VALIDATION_FAILED")
}

// A section that holds more than an answer takes is done in several, each to where its
// plan ends.
func TestSetEndsWhereItsPlanEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	name := func(i int) string { return fmt.Sprintf("job %04d", i) }
	for from := 0; from < 1500; from += 500 {
		var jobs []string
		for i := from; i < from+500; i++ {
			jobs = append(jobs, wanted(name(i), ""))
		}
		more := `,"through":"` + name(from+499) + `"`
		if from > 0 {
			more += `,"after":"` + name(from-1) + `"`
		}
		b.applied(t, section(more, jobs...))
	}
	var steps []string
	for after := ""; ; {
		more := `,"prune":true`
		if after != "" {
			more += `,"after":"` + after + `"`
		}
		body := section(more, wanted(name(1200), ""))
		if after >= name(1200) {
			body = section(more)
		}
		got := b.applied(t, body)
		if got.Through == nil {
			steps = append(steps, fmt.Sprintf("%d and the end", got.Deleted))
			break
		}
		after = *got.Through
		steps = append(steps, fmt.Sprintf("%d up to %s", got.Deleted, after))
	}
	if diff := cmp.Diff([]string{"1000 up to job 0999", "499 and the end"}, steps); diff != "" {
		t.Errorf("the steps differ (-want +got):\n%s", diff)
	}
	b.has(t, `job 1200 in "billing" v1 300s`)
}

// The bound on jobs is in the plan, and what a section deletes makes room in it.
func TestSetKeepsToTheBoundOnJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) {})
	b.jobs = job.NewStore(b.db, job.Config{Keys: b.keys, MaxJobs: func() int { return 2 }, Changed: rest.ChangedFields})
	b.deps.Jobs = b.jobs
	var err error
	if b.handler, err = rest.New(b.deps); err != nil {
		t.Fatal(err)
	}
	b.applied(t, section("", wanted("a", ""), wanted("b", "")))
	body := section("", wanted("b", ""), wanted("c", ""))
	plan := b.planned(t, body)
	if plan.Jobs != 2 || *plan.MaxJobs != 2 {
		t.Errorf("the plan says %d of %v jobs", plan.Jobs, plan.MaxJobs)
	}
	refused(t, b.inSet(t, "apply", hashed(body, plan.Hash)), http.StatusForbidden, "QUOTA_EXCEEDED")
	b.applied(t, section(`,"prune":true`, wanted("b", ""), wanted("c", "")))
	b.has(t, `b in "billing" v1 300s`, `c in "billing" v1 300s`)
}

// A credential is kept by its mask, is no drift then, and stands in no plan.
func TestSetKeepsCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t)
	with := func(password string) string {
		return section("", `{"name":"a","interval":"PT1H","jobType":"http","config":{"url":"https://example.com/?token=`+password+`"}}`)
	}
	if got := b.inSet(t, "plan", with("***")); got.status != http.StatusBadRequest {
		t.Errorf("a mask of nothing: %d %s", got.status, got.body)
	}
	if plan := b.inSet(t, "plan", with("0hMySecret")); strings.Contains(plan.body, "0hMySecret") {
		t.Errorf("the plan shows the credential: %s", plan.body)
	}
	b.applied(t, with("0hMySecret"))
	if plan := b.planned(t, with("***")); plan.Unchanged != 1 {
		t.Errorf("the mask differs: %+v", plan)
	}
	if plan := b.planned(t, with("0hMySecret")); plan.Changed != 1 || len(plan.Changes[0].Fields) != 0 {
		t.Errorf("a credential in full: %+v", plan)
	}
}

// The list of sets counts what each tenant's sets own, page after page, and nothing that was deleted.
func TestSetsAreListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, set := range []struct {
		who  tenant.Actor
		name string
		jobs []string
	}{{b.ours, "b", []string{"x", "y"}}, {b.ours, "a", []string{"v"}}, {b.ours, "c", []string{"w"}}, {b.theirs, "d", []string{"x"}}} {
		var jobs []string
		for _, name := range set.jobs {
			jobs = append(jobs, wanted(name, ""))
		}
		body, path, token := section("", jobs...), base+"/sets/"+set.name, b.token(t, set.who, identity.Developer)
		plan := read[api.SetPlan](t, b.do(t, request{method: "POST", path: path + "/plan", token: token, body: body}), http.StatusOK)
		read[api.SetOutcome](t, b.do(t, request{method: "POST", path: path + "/apply", token: token, body: hashed(body, plan.Hash)}), http.StatusOK)
	}
	token := b.token(t, b.ours, identity.Developer)
	gone := read[api.JobPage](t, b.do(t, request{method: "GET", path: base + "/jobs?set=c", token: token}), http.StatusOK).Items[0].ID
	b.do(t, request{method: "DELETE", path: base + "/jobs/" + gone.String(), token: token})
	b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: webhook})
	var found []string
	path := base + "/sets?limit=1"
	for range 3 {
		page := read[api.JobSetPage](t, b.do(t, request{method: "GET", path: path, token: token}), http.StatusOK)
		for _, one := range page.Items {
			found = append(found, fmt.Sprint(one.Name, one.Jobs))
		}
		if !page.HasMore {
			break
		}
		path = base + "/sets?limit=1&cursor=" + *page.NextCursor
	}
	if want := []string{"a1", "b2"}; !slices.Equal(found, want) {
		t.Errorf("the sets are %v, want %v", found, want)
	}
}
