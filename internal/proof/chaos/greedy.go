package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres/refusal"
)

// greedyKinds are what a tenant does, or what happens to it, that must not be
// felt by others. They are of the last tenant, whose lags have no limit.
func greedyKinds() []kind {
	const sec = time.Second
	return []kind{
		{"refuse rows", 3, 2 * sec, 5 * sec, "", "postgres", needNothing, refuseRows},
		{"misfire storm", 2, 0, sec, "", "", needNothing, misfireStorm},
		{"backlog", 2, 0, sec, "", "postgres", needNothing, backlog},
		{"greedy readers", 2, 2 * sec, 6 * sec, "", "", needNothing, greedyReaders},
	}
}

// Names of the jobs that those are about. The load leaves them alone.
const (
	refusedName = "refused"
	stormName   = "storm"
	backlogName = "backlog"
	refusedJobs = 4
)

// own says whether a job is of one of those, or the burst's.
func (w *work) own() bool { return w.of != "" }

// named are the jobs of one of those.
func (l *load) named(of string) []*work {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.jobs), func(w *work) bool { return w.of != of || w.id == uuid.Nil })
}

// greedy makes the jobs of the last tenant that are refused and that storm.
func (l *load) greedy(ctx context.Context, c Config) {
	for n := range refusedJobs {
		w, spec := l.secondly(refusedName, n)
		l.make(ctx, w, spec)
	}
	for n := range c.Storm {
		w, spec := l.secondly(stormName, n)
		all, limit := api.MisfirePolicyFireAll, 250
		spec.MisfirePolicy, spec.MisfireLimit = &all, &limit
		l.make(ctx, w, spec)
	}
	l.holdStorm(ctx)
}

// secondly is a job of the last tenant that is due each second.
func (l *load) secondly(of string, n int) (*work, api.JobSpec) {
	tenant := l.tenants - 1
	w := l.work(tenant, fmt.Sprintf("%s %d", of, n))
	w.of, w.every = of, time.Second
	spec := api.JobSpec{
		Name: w.name, JobType: api.JobTypeHTTP, EndDate: new(l.end), OverlapPolicy: &w.overlap,
		CronExpression: new("* * * * * *"),
	}
	_ = spec.Config.FromHTTPConfig(api.HTTPConfig{URL: fmt.Sprintf("%s/?tenant=%d", l.stack.sink.url, tenant)}) // cannot fail
	return w, spec
}

// holdStorm pauses what storms, so that it has something to catch up on.
func (l *load) holdStorm(ctx context.Context) {
	all := l.named(stormName)
	paused, _ := l.bulk(ctx, all, "pause in bulk", func(c *api.ClientWithResponses, of api.JobBulk) (int, *api.BulkResult, error) {
		answer, err := c.BulkPauseJobsWithResponse(ctx, of)
		if err != nil {
			return 0, nil, err
		}
		return answer.StatusCode(), answer.JSON200, nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range all {
		w.pauses = append(w.pauses, pausing{pause: paused, made: -1})
	}
}

// bulk asks for something to be done to several jobs of one tenant. The end of
// the window is zero where it is not known of all of them.
func (l *load) bulk(ctx context.Context, all []*work, name string, request func(*api.ClientWithResponses, api.JobBulk) (int, *api.BulkResult, error)) (window, error) {
	if len(all) == 0 {
		return window{}, errNothingStorms
	}
	ids := make([]uuid.UUID, len(all))
	for i, w := range all {
		ids[i] = w.id
	}
	done := 0
	code, asked := l.requestUntilFinal(ctx, all[0].tenant, name, func(c *api.ClientWithResponses) (int, error) {
		code, result, err := request(c, api.JobBulk{Ids: &ids})
		if result != nil {
			done = len(result.Done)
		}
		return code, err
	})
	if code != http.StatusOK || done < len(all) {
		asked.ack = time.Time{}
	}
	return asked, nil
}

// misfireStorm resumes in one request everything that was paused for the longest
// part of the run, with all of what it missed to be run, and pauses it again
// when that has been promoted.
func misfireStorm(ctx context.Context, s *stack, _ *member, f *fault) error {
	all := s.load.named(stormName)
	resumed, err := s.load.bulk(ctx, all, "resume in bulk", func(c *api.ClientWithResponses, of api.JobBulk) (int, *api.BulkResult, error) {
		answer, err := c.BulkResumeJobsWithResponse(ctx, of)
		if err != nil {
			return 0, nil, err
		}
		return answer.StatusCode(), answer.JSON200, nil
	})
	if err != nil {
		return err
	}
	var ids []uuid.UUID
	s.load.mu.Lock()
	for _, w := range all {
		ids = append(ids, w.id)
		if last := len(w.pauses) - 1; last >= 0 {
			w.pauses[last].resume = resumed
		}
	}
	s.load.mu.Unlock()
	sleep(ctx, f.lasts+time.Second)
	// It is promoted in pieces. Those that are left at the pause wait for a resume.
	for mark := clock.Start(); mark.Elapsed() < stormMost && sleep(ctx, 100*time.Millisecond); {
		if late, err := s.store.late(ctx, ids); err == nil && late == 0 {
			break
		}
	}
	s.load.holdStorm(ctx)
	return nil
}

// stormMost is how long a storm may take to be promoted.
const stormMost = time.Minute

var errNothingStorms = errors.New("no job has been made for it yet")

// backlog makes more wait of a job than the tenant can run in this time, and
// stops or deletes the job.
func backlog(ctx context.Context, s *stack, _ *member, f *fault) error {
	l := s.load
	l.mu.Lock()
	w := l.work(l.tenants-1, fmt.Sprintf("%s %d", backlogName, len(l.jobs)))
	w.of = backlogName
	spec := api.JobSpec{Name: w.name, JobType: api.JobTypeHTTP, OverlapPolicy: &w.overlap}
	_ = spec.Config.FromHTTPConfig(api.HTTPConfig{URL: fmt.Sprintf("%s/?tenant=%d&ms=100", l.stack.sink.url, w.tenant)}) // cannot fail
	l.mu.Unlock()
	if l.make(ctx, w, spec); w.id == uuid.Nil {
		return errNotMade
	}
	if err := s.store.insertWaiting(ctx, w.id, s.backlog); err != nil {
		return err
	}
	l.mu.Lock()
	w.inserted = s.backlog
	l.mu.Unlock()
	sleep(ctx, f.lasts)
	if f.draw%2 == 0 {
		f.what = fmt.Sprintf("%d waiting, deleted", s.backlog)
		l.remove(ctx, w)
		return nil
	}
	f.what = fmt.Sprintf("%d waiting, stopped", s.backlog)
	code, stopped := l.requestUntilFinal(ctx, w.tenant, "stop", func(c *api.ClientWithResponses) (int, error) {
		answer, err := c.StopJobWithResponse(ctx, w.id, api.StopRequest{})
		if err != nil {
			return 0, err
		}
		return answer.StatusCode(), nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if code == http.StatusOK {
		w.stop = &stopped
	} else {
		l.wrong = append(l.wrong, violation{invariant: "I14", text: fmt.Sprintf("the stop of %q was answered %d", w.name, code), job: w.id})
	}
	return nil
}

var errNotMade = errors.New("its job was not made")

// greedyReaders ask for lists that match nothing, each as soon as it is answered.
func greedyReaders(ctx context.Context, s *stack, _ *member, f *fault) error {
	ctx, cancel := context.WithTimeout(ctx, f.lasts)
	defer cancel()
	nobody, nothing := "nobody", "no job has this name"
	var all sync.WaitGroup
	for n := range s.readers {
		clients := s.clients[len(s.clients)-1]
		client := clients[n%len(clients)]
		all.Go(func() {
			for ctx.Err() == nil {
				if n%2 == 0 {
					_, _ = client.ListExecutionsWithResponse(ctx, &api.ListExecutionsParams{TriggeredBy: &nobody})
				} else {
					_, _ = client.ListJobsWithResponse(ctx, &api.ListJobsParams{Q: &nothing})
				}
				sleep(ctx, 5*time.Millisecond) // what is refused is asked again, and not in a circle
			}
		})
	}
	all.Wait()
	return nil
}

// refuseRows has PostgreSQL refuse the rows of one job at one place with an error
// that repeating cannot mend, and sees to it afterwards that the job goes on.
func refuseRows(ctx context.Context, s *stack, _ *member, f *fault) error {
	all := s.load.named(refusedName)
	if len(all) == 0 {
		return errNothingStorms
	}
	w := all[f.draw%uint64(len(all))]
	place := []struct{ table, event string }{
		{"job_executions", "INSERT"},
		{"active_executions", "INSERT"},
		{"active_executions", "UPDATE"},
		{"job_schedule", "UPDATE"},
	}[f.draw>>8%4]
	codes := refusal.SQLSTATEs()
	r := refusal.Refusal{
		Name: "chaos", Table: place.table, Event: place.event, SQLSTATE: codes[f.draw>>16%uint64(len(codes))],
		Rows: fmt.Sprintf("NEW.job_id = '%s'", w.id),
	}
	f.what = fmt.Sprintf("%s of %s in %s: %s", place.event, w.name, place.table, r.SQLSTATE)
	if err := s.store.execUntilDone(ctx, r.Begin()); err != nil {
		return err
	}
	sleep(ctx, f.lasts)
	if err := s.store.execUntilDone(context.WithoutCancel(ctx), r.End()); err != nil {
		return err
	}
	f.healed = clock.Now()
	return s.load.unpark(ctx, w)
}

// unpark asks once for each job that was parked that it goes on.
func (l *load) unpark(ctx context.Context, w *work) error {
	stored, err := l.stack.store.jobs(ctx)
	if err != nil {
		return err
	}
	if stored[w.id].status != "inactive" || !clock.Now().Before(w.end) {
		return nil
	}
	all := api.ResumeRequestMisfirePolicyFireAll
	code, _ := l.requestUntilFinal(ctx, w.tenant, "unpark", func(c *api.ClientWithResponses) (int, error) {
		answer, err := c.ResumeJobWithResponse(ctx, w.id, api.ResumeRequest{MisfirePolicy: &all})
		if err != nil {
			return 0, err
		}
		return answer.StatusCode(), nil
	})
	if code != http.StatusOK {
		return fmt.Errorf("%q is parked and its resume was answered %d", w.name, code)
	}
	return nil
}
