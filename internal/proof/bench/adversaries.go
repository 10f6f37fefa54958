package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres/refusal"
)

// adversary is a tenant that takes what it can, or something that happens to
// one. Its attack ends with the context at the latest.
type adversary struct {
	name    string
	what    string // for the table
	prepare func(ctx context.Context, a *arena) error
	attack  func(ctx context.Context, a *arena) error
	after   func(ctx context.Context, a *arena) error // notes what is left
}

// adversaries are those whose outages have been seen, and then the others.
func adversaries() []adversary {
	return append([]adversary{
		{"nobody", "nobody else", nil, doNothing, nil},
		{"storm", "500 per-second `fire_all` jobs, resumed in bulk after 7 minutes", prepareStorm, resumeAll, noteCompleted},
		{"outage", "500 per-second `fire_all` jobs with misfireLimit 250, after 10 minutes without a promoter", prepareOutage, outage, noteCompleted},
		{"calendars", "120 per-second jobs with 10 calendars each, resumed after 2 days", prepareCalendars, resumeAll, noteCompleted},
		{"refused", "60 per-second jobs whose rows PostgreSQL refuses, and 200 lost runs of them", prepareRefused, refuse, noteCompleted},
		{"backlog", "150,000 waiting of each of three jobs: one stopped, one deleted, one tenant suspended", prepareBacklogs, stopBacklogs, noteBacklogs},
		{"lists", "100 clients of lists that match nothing, over 1,500,000 executions and 3,000 jobs", prepareLists, greedyLists, nil},
		{"versions", "20 clients of a job's 100 versions of 250 kB", prepareVersions, greedyVersions, nil},
		{"late", "50,000 late runs; 10 late single runs count as starts", prepareLate, makeLate, noteCompleted},
		{"burst", "100,000 jobs due at one scheduled time", prepareBurst, burstAtOnce, noteCompleted},
		{"flood", "20,000 per-second jobs, more than the installation can promote", prepareFlood, flood, noteCompleted},
		{"key", "100,000 waiting on one concurrency key", prepareKey, doNothing, noteCompleted},
		{"keys", "250,000 expired idempotency keys, and 100 keyed triggers a second", prepareKeys, keyedTriggers, noteExpiredKeys},
	}, moreAdversaries()...)
}

// doNothing does nothing.
func doNothing(ctx context.Context, _ *arena) error {
	<-ctx.Done()
	return nil
}

// noteCompleted notes what the noisy tenant got.
func noteCompleted(ctx context.Context, a *arena) error {
	left, err := a.state.activeOf(ctx, a.noisy.TenantID)
	if err != nil {
		return err
	}
	done, err := a.state.done(ctx, a.noisy.TenantID, clock.Now().Add(-time.Duration(a.Seconds)*time.Second))
	if err != nil {
		return err
	}
	parked, err := a.state.parked(ctx, a.noisy.TenantID)
	a.note("of the noisy tenant %d outcomes, %d active, %d jobs inactive", done, left, parked)
	return err
}

// secondly is the definition of a job due each second.
func secondly(name, more string) string {
	return fmt.Sprintf(`{"name":%q,"cronExpression":"* * * * * *","overlapPolicy":"allow",%s%s}`, name, more, noop)
}

// many makes n jobs of the noisy tenant from one definition.
func (a *arena) many(ctx context.Context, n int, body string) error {
	first, err := a.makeJob(ctx, a.noisy, body)
	if err != nil {
		return err
	}
	return a.state.copies(ctx, first, n-1)
}

func prepareStorm(ctx context.Context, a *arena) error {
	if err := a.many(ctx, 500, secondly("storm", `"misfirePolicy":"fire_all","misfireLimit":1000,`)); err != nil {
		return err
	}
	return a.state.overdue(ctx, a.noisy.TenantID, "storm", 7*time.Minute, "paused")
}

// resumeAll resumes everything by the API.
func resumeAll(ctx context.Context, a *arena) error {
	body := `{"filter":{"status":["paused"]}}`
	for {
		var done struct{ NextCursor *string }
		if _, err := a.request(ctx, call{http.MethodPost, a.url + "/jobs/bulk/resume", body, a.noisy.token}, &done); err != nil {
			return err
		}
		if done.NextCursor == nil {
			return doNothing(ctx, a)
		}
		body = fmt.Sprintf(`{"filter":{"status":["paused"]},"cursor":%q}`, *done.NextCursor)
	}
}

func prepareOutage(ctx context.Context, a *arena) error {
	if err := a.many(ctx, 500, secondly("outage", `"misfirePolicy":"fire_all","misfireLimit":250,`)); err != nil {
		return err
	}
	return a.state.overdue(ctx, a.noisy.TenantID, "outage", 0, "paused")
}

func outage(ctx context.Context, a *arena) error {
	if err := a.state.overdue(ctx, a.noisy.TenantID, "outage", 10*time.Minute, "active"); err != nil {
		return err
	}
	return doNothing(ctx, a)
}

func prepareCalendars(ctx context.Context, a *arena) error {
	var named []string
	for n := range 10 {
		var days []string
		for day := range 300 {
			days = append(days, fmt.Sprintf(`{"start":"2026-%02d-%02dT%02d:00","end":"2026-%02d-%02dT%02d:30"}`,
				1+day%12, 1+day%28, n, 1+day%12, 1+day%28, n))
		}
		var made struct{ ID uuid.UUID }
		body := fmt.Sprintf(`{"name":"calendar %d","days":[%s]}`, n, strings.Join(days, ","))
		if _, err := a.request(ctx, call{http.MethodPost, a.url + "/calendars", body, a.noisy.token}, &made); err != nil {
			return err
		}
		named = append(named, fmt.Sprintf(`{"calendarId":%q,"mode":"exclude"}`, made.ID))
	}
	more := fmt.Sprintf(`"misfirePolicy":"fire_all","misfireLimit":1000,"calendars":[%s],`, strings.Join(named, ","))
	if err := a.many(ctx, 120, secondly("calendars", more)); err != nil {
		return err
	}
	return a.state.overdue(ctx, a.noisy.TenantID, "calendars", 48*time.Hour, "paused")
}

func prepareRefused(ctx context.Context, a *arena) error {
	for n := range 60 {
		id, err := a.makeJob(ctx, a.noisy, secondly(fmt.Sprintf("refused %d", n), ""))
		if err != nil {
			return err
		}
		a.aims = append(a.aims, id)
	}
	return nil
}

// refuse has each job's rows refused, every third job's at each of three
// places: when it is promoted, when it is advanced, when it ends.
func refuse(ctx context.Context, a *arena) error {
	codes := refusal.SQLSTATEs()
	for n, id := range a.aims {
		place := [][2]string{{"job_executions", "INSERT"}, {"active_executions", "INSERT"}, {"job_schedule", "UPDATE"}}[n%3]
		if n%3 == 0 && n < 12 {
			if err := a.state.lostRuns(ctx, id, 50); err != nil {
				return err
			}
		}
		if err := a.state.refuse(ctx, place[0], place[1], id, codes[n%len(codes)]); err != nil {
			return err
		}
	}
	return doNothing(ctx, a)
}

// backlogOf is how much waits of each job: more than one statement can cancel
// within its time-out.
const backlogOf = 150_000

func prepareBacklogs(ctx context.Context, a *arena) error {
	other, err := speaker(a.tenants[3])
	if err != nil {
		return err
	}
	for n, who := range []resident{a.noisy, a.noisy, other} {
		id, err := a.makeJob(ctx, who, fmt.Sprintf(`{"name":"backlog %d","trigger":"manual","overlapPolicy":"allow",%s}`, n, sleeping(50*time.Millisecond)))
		if err != nil {
			return err
		}
		if err := a.state.waiting(ctx, id, backlogOf, ""); err != nil {
			return err
		}
		a.aims = append(a.aims, id)
	}
	return nil
}

// stopBacklogs asks for the end of all three at once, up to three times each as
// a person would, and notes the answers.
func stopBacklogs(ctx context.Context, a *arena) error {
	if err := until(ctx, clock.Now().Add(time.Second)); err != nil {
		return err
	}
	suspend := "/tenants/" + a.tenants[3].TenantID.String() + "/suspend"
	calls := []call{
		{http.MethodPost, a.url + "/jobs/" + a.aims[0].String() + "/stop", `{}`, a.noisy.token},
		{http.MethodDelete, a.url + "/jobs/" + a.aims[1].String(), "", a.noisy.token},
		{http.MethodPost, a.url + suspend, `{"reason":"trial"}`, a.platform},
	}
	var asked sync.WaitGroup
	answers := make([]string, len(calls))
	for n, c := range calls {
		asked.Go(func() {
			mark := clock.Start()
			for range 3 {
				status, _ := a.request(ctx, c, nil)
				answers[n] += fmt.Sprintf(" %d after %.1f s", status, mark.Elapsed().Seconds())
				if status/100 == 2 || ctx.Err() != nil {
					return
				}
			}
		})
	}
	asked.Wait()
	a.note("stop:%s; delete:%s; suspend:%s", answers[0], answers[1], answers[2])
	return doNothing(ctx, a)
}

// noteBacklogs notes what is left of each at the end.
func noteBacklogs(ctx context.Context, a *arena) error {
	var left []string
	for _, id := range a.aims {
		n, err := a.state.waitingOf(ctx, id)
		if err != nil {
			return err
		}
		left = append(left, fmt.Sprint(n))
	}
	a.note("left: %s", strings.Join(left, ", "))
	return nil
}

func prepareLists(ctx context.Context, a *arena) error {
	id, err := a.makeJob(ctx, a.noisy, `{"name":"listed","cronExpression":"0 0 2 1 1 *",`+noop+`}`)
	if err != nil {
		return err
	}
	if err := a.state.copies(ctx, id, 2999); err != nil {
		return err
	}
	return a.state.history(ctx, id, 1_500_000)
}

func greedyLists(ctx context.Context, a *arena) error {
	paths := []string{
		"/executions?triggeredBy=nobody", "/executions?status=cancelled&triggerType=backfill", "/jobs?q=nowhere&sort=name", "/executions?jobType=http&sort=scheduledAt",
		"/executions?createdTo=2001-01-01T00:00:00Z",
	}
	return a.clients(ctx, 100, func(n int) call { return call{http.MethodGet, a.url + paths[n%len(paths)], "", a.noisy.viewer} })
}

// clients ask one after another, as fast as they are answered, and note the
// answers.
func (a *arena) clients(ctx context.Context, n int, next func(n int) call) error {
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: n, MaxConnsPerHost: n}}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{}
	for i := range n {
		all.Go(func() {
			for k := i; ctx.Err() == nil; k++ {
				status, err := send(ctx, client, next(k))
				mu.Lock()
				answers[status]++
				mu.Unlock()
				if err != nil { // it is refused: a client of some manners
					_ = until(ctx, clock.Now().Add(20*time.Millisecond))
				}
			}
		})
	}
	all.Wait()
	delete(answers, 0) // cut off by the end
	a.note("answers by status: %v", answers)
	return nil
}

func prepareVersions(ctx context.Context, a *arena) error {
	id, err := a.makeJob(ctx, a.noisy, `{"name":"versions","cronExpression":"0 0 2 1 1 *",`+noop+`}`)
	a.aims = []uuid.UUID{id}
	if err != nil {
		return err
	}
	return a.state.versions(ctx, id, 100, 250_000)
}

func greedyVersions(ctx context.Context, a *arena) error {
	err := a.clients(ctx, 20, func(int) call {
		return call{http.MethodGet, a.url + "/jobs/" + a.aims[0].String() + "/versions?limit=100", "", a.noisy.viewer}
	})
	a.note("the API has taken %d MB at most", a.peak(apiName))
	return err
}

// lateName is the name of the jobs whose runs are late, of both tenants.
const lateName = "late"

func prepareLate(ctx context.Context, a *arena) error {
	far := clock.Now().Add(24 * time.Hour).Format(time.RFC3339)
	body := fmt.Sprintf(`{"name":%q,"runAt":%q,"overlapPolicy":"allow",%s}`, lateName, far, noop)
	if err := a.many(ctx, 50_000, body); err != nil {
		return err
	}
	first, err := a.makeJob(ctx, a.quiet, body)
	if err != nil {
		return err
	}
	return a.state.copies(ctx, first, 9)
}

// makeLate makes all of them due since 12 s, as when no promoter was there.
func makeLate(ctx context.Context, a *arena) error {
	at := clock.Now().Add(-12 * time.Second)
	err := errors.Join(
		a.state.dueAt(ctx, a.noisy.TenantID, lateName, at),
		a.state.dueAt(ctx, a.quiet.TenantID, lateName, at.Add(time.Millisecond)))
	a.lateSince = clock.Now()
	if err != nil {
		return err
	}
	return doNothing(ctx, a)
}

func prepareBurst(ctx context.Context, a *arena) error {
	return a.many(ctx, 100_000, fmt.Sprintf(`{"name":"burst","cronExpression":"0 0 2 1 1 *",%s}`, noop))
}

func burstAtOnce(ctx context.Context, a *arena) error {
	if err := a.state.dueAt(ctx, a.noisy.TenantID, "burst", clock.Now().Add(5*time.Second).Truncate(time.Second)); err != nil {
		return err
	}
	return doNothing(ctx, a)
}

func prepareFlood(ctx context.Context, a *arena) error {
	if err := a.many(ctx, 20_000, secondly("flood", "")); err != nil {
		return err
	}
	return a.state.dueAt(ctx, a.noisy.TenantID, "flood", clock.Now().Add(time.Hour))
}

func flood(ctx context.Context, a *arena) error {
	if err := a.state.dueAt(ctx, a.noisy.TenantID, "flood", clock.Now().Truncate(time.Second).Add(2*time.Second)); err != nil {
		return err
	}
	return doNothing(ctx, a)
}

// adversaryNames are what -against takes.
func adversaryNames() []string {
	var all []string
	for _, one := range adversaries() {
		all = append(all, one.name)
	}
	slices.Sort(all)
	return all
}
