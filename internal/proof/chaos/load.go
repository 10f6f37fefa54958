package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
)

// window is when a change was asked for and when it was acknowledged; in
// between nobody can know whether it holds. A zero ack: never acknowledged.
type window struct{ asked, ack time.Time }

// pausing is one pause and the resume after it.
type pausing struct {
	pause, resume window
	made          int // rows made in between, as seen before the resume; -1: not seen
}

// work is a job as we asked for it, and all that we did to it.
type work struct {
	tenant        int
	name          string
	every         time.Duration // of a cron expression, on whole seconds since the epoch
	step          time.Duration // of an interval, from the job's creation
	end           time.Time     // its endDate
	overlap       api.OverlapPolicy
	maxConcurrent int    // maxConcurrent
	key           string // concurrencyKey; empty: none
	unwell        bool   // its target fails on purpose, and a circuit breaker may hold its calls back
	jobType       string // of a job that the load draws; empty of others

	id        uuid.UUID // zero: the creation was never acknowledged
	createdAt time.Time
	deletion  *window
	pauses    []pausing
	triggers  map[string]uuid.UUID // by Idempotency-Key; a zero id: unresolved
	retries   map[string]uuid.UUID // likewise
	cancels   map[uuid.UUID]window // those that were acknowledged, by execution
	doing     bool                 // an operation on it is under way
	of        string               // the fault or the load that the job belongs to, which nothing else touches; empty: everybody's
	inserted  int                  // executions that were stored as if they had been triggered
	stop      *window              // after it, nothing of the job runs
}

// load is the client of the service: it creates, triggers, pauses and deletes,
// and takes down what it was answered.
type load struct {
	stack   *stack
	tenants int
	end     time.Time // endDate of every job
	drops   bool      // some targets break connections off
	plain   bool      // no functions: the processes may be of a commit that has not those of the load

	mu      sync.Mutex
	random  *rand.Rand
	jobs    []*work
	answers map[string]int // by operation and status
	wrong   []violation    // answers that break a promise
	shown   []shownJob     // jobs that a tenant was shown
}

// shownJob is a job that the API showed to a tenant.
type shownJob struct {
	tenant int
	job    uuid.UUID
}

func newLoad(s *stack, c Config, end time.Time) *load {
	return &load{stack: s, tenants: c.Tenants, end: end, drops: c.Drops, plain: c.Earlier != "", random: rand.New(rand.NewPCG(c.Seed, 2)), answers: map[string]int{}} // it must repeat
}

// patience is how long an operation is repeated until it is answered.
const patience = 25 * time.Second

// requestUntilFinal repeats a request until its answer is final: neither lost nor 5xx, 429
// or a conflict with itself. It goes to another API process each time.
func (l *load) requestUntilFinal(ctx context.Context, tenant int, name string, request func(c *api.ClientWithResponses) (int, error)) (int, window) {
	w := window{asked: clock.Now()}
	for mark := clock.Start(); ; {
		l.mu.Lock()
		clients := l.stack.clients[tenant]
		client := clients[l.random.IntN(len(clients))]
		l.mu.Unlock()
		code, err := request(client)
		if err != nil {
			code = 0
		}
		l.mu.Lock()
		l.answers[fmt.Sprintf("%s %d", name, code)]++
		l.mu.Unlock()
		if final(code) {
			w.ack = clock.Now()
			return code, w
		}
		if mark.Elapsed() > patience || !sleep(ctx, 150*time.Millisecond) {
			return 0, w
		}
	}
}

// final says whether an answer says what became of a request.
func final(code int) bool {
	return code != 0 && code < http.StatusInternalServerError && code != http.StatusTooManyRequests
}

// create makes a job, and asks until it knows.
func (l *load) create(ctx context.Context) {
	l.mu.Lock()
	w, spec := l.draw(len(l.jobs) + 1)
	l.mu.Unlock()
	l.make(ctx, w, spec)
}

func (l *load) make(ctx context.Context, w *work, spec api.JobSpec) {
	if spec.CronExpression == nil && spec.Interval == nil && spec.RunAt == nil {
		spec.Trigger = new(api.JobSpecTriggerManual)
	}
	l.mu.Lock()
	w.doing = true
	l.jobs = append(l.jobs, w)
	l.mu.Unlock()
	name := uuid.NewString()
	var made *api.Job
	code, _ := l.requestUntilFinal(ctx, w.tenant, "create", func(c *api.ClientWithResponses) (int, error) {
		answer, err := c.CreateJobWithResponse(ctx, &api.CreateJobParams{IdempotencyKey: &name}, spec)
		if err != nil {
			return 0, err
		}
		if made = answer.JSON201; made == nil && final(answer.StatusCode()) && w.end.Sub(clock.Now()) > lastCreation && !l.stack.skewed() {
			l.addViolation("I10", "create %q: %s: %s", w.name, answer.Status(), answer.Body)
		}
		return answer.StatusCode(), nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	w.doing = false
	if code == http.StatusCreated && made != nil {
		w.id, w.createdAt = made.ID, made.CreatedAt
	}
}

// trigger runs a job now; sometimes it asks again after the answer. A job of
// another tenant is triggered with the same key, which must not matter.
func (l *load) trigger(ctx context.Context, w, other *work) {
	name := uuid.NewString()
	l.mu.Lock()
	w.triggers[name] = uuid.Nil
	twice := l.random.IntN(3) == 0
	l.mu.Unlock()
	first := l.triggerAs(ctx, w, name)
	if other != nil {
		l.mu.Lock()
		other.triggers[name] = uuid.Nil
		l.mu.Unlock()
		if id := l.triggerAs(ctx, other, name); id != uuid.Nil && id == first {
			l.addViolation("I25", "the key %s of tenant %d had an effect for tenant %d: execution %s", name, w.tenant, other.tenant, id)
		}
	}
	if twice && first != uuid.Nil {
		if again := l.triggerAs(ctx, w, name); again != uuid.Nil && again != first {
			l.addViolation("I10", "trigger of %q repeated with its key: execution %s, then %s", w.name, first, again)
		}
	}
}

func (l *load) triggerAs(ctx context.Context, w *work, name string) (id uuid.UUID) {
	code, _ := l.requestUntilFinal(ctx, w.tenant, "trigger", func(c *api.ClientWithResponses) (int, error) {
		answer, err := c.TriggerJobWithResponse(ctx, w.id, &api.TriggerJobParams{IdempotencyKey: &name}, api.TriggerRequest{})
		if err != nil {
			return 0, err
		}
		if answer.JSON202 != nil {
			id = answer.JSON202.ID
		}
		return answer.StatusCode(), nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case code == http.StatusAccepted:
		w.triggers[name] = id
	case code != 0: // refused: it must have no effect
		delete(w.triggers, name)
	}
	return id
}

// pause holds a job back for a moment and resumes it.
func (l *load) pause(ctx context.Context, w *work, hold time.Duration, missed api.ResumeRequestMisfirePolicy) {
	code, paused := l.requestUntilFinal(ctx, w.tenant, "pause", func(c *api.ClientWithResponses) (int, error) {
		answer, err := c.PauseJobWithResponse(ctx, w.id, api.PauseRequest{})
		if err != nil {
			return 0, err
		}
		return answer.StatusCode(), nil
	})
	if code != http.StatusOK {
		paused.ack = time.Time{}
	}
	sleep(ctx, hold)
	made := -1
	if !paused.ack.IsZero() {
		if n, err := l.stack.store.madeAfter(ctx, w.id, paused.ack); err == nil {
			made = n
		}
	}
	code, resumed := l.requestUntilFinal(ctx, w.tenant, "resume", func(c *api.ClientWithResponses) (int, error) {
		answer, err := c.ResumeJobWithResponse(ctx, w.id, api.ResumeRequest{MisfirePolicy: &missed})
		if err != nil {
			return 0, err
		}
		return answer.StatusCode(), nil
	})
	if code != http.StatusOK {
		resumed.ack = time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.pauses = append(w.pauses, pausing{pause: paused, resume: resumed, made: made})
}

func (l *load) remove(ctx context.Context, w *work) {
	code, deleted := l.requestUntilFinal(ctx, w.tenant, "delete", func(c *api.ClientWithResponses) (int, error) {
		answer, err := c.DeleteJobWithResponse(ctx, w.id, nil)
		if err != nil {
			return 0, err
		}
		return answer.StatusCode(), nil
	})
	if code == 0 {
		deleted.ack = time.Time{}
	} else if code != http.StatusNoContent && code != http.StatusNotFound { // 404: an earlier, lost answer was the deletion's
		l.addViolation("I10", "delete %q: %d", w.name, code)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.deletion = &deleted
}

// pick takes a job that nobody works on, and that is not of the tenant.
func (l *load) pick(not int) *work {
	var free []*work
	for _, w := range l.jobs {
		if w.id != uuid.Nil && w.deletion == nil && !w.doing && w.tenant != not && !w.own() {
			free = append(free, w)
		}
	}
	if len(free) == 0 {
		return nil
	}
	w := free[l.random.IntN(len(free))]
	w.doing = true
	return w
}

// run creates the first jobs, then does something every now and then until
// stop, and returns when the last answer has come.
func (l *load) run(ctx context.Context, c Config, stop <-chan struct{}) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { l.burst(ctx, c) })
	if c.greedy() {
		all.Go(func() { l.greedy(ctx, c) })
	}
	for range c.Jobs {
		l.create(ctx)
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			l.mu.Lock()
			l.startOperation(ctx, &all)
			l.mu.Unlock()
		}
	}
}

// lastCreation is how long before the end the last job is created: one whose
// first scheduled time came after its endDate would be refused.
const lastCreation = 7 * time.Second

// startOperation begins one operation, drawn from the seed.
func (l *load) startOperation(ctx context.Context, all *sync.WaitGroup) {
	drawn := l.random.IntN(100)
	if drawn < 15 {
		if l.end.Sub(clock.Now()) > lastCreation {
			all.Go(func() { l.create(ctx) })
		}
		return
	}
	if drawn < 22 {
		one := l.pick(-1)
		if one != nil {
			one.doing = false // it is only looked at
			all.Go(func() { l.tryForeignJob(ctx, (one.tenant+1+drawn%(l.tenants-1))%l.tenants, one.id) })
		}
		return
	}
	w := l.pick(-1)
	if w == nil {
		return
	}
	var other *work
	if drawn >= 35 && drawn < 45 {
		other = l.pick(w.tenant)
	}
	hold := time.Duration(200+l.random.IntN(4000)) * time.Millisecond
	missed := []api.ResumeRequestMisfirePolicy{
		api.ResumeRequestMisfirePolicySkip, api.ResumeRequestMisfirePolicyFireOnce, api.ResumeRequestMisfirePolicyFireAll,
	}[l.random.IntN(3)]
	all.Go(func() {
		switch {
		case drawn < 30:
			l.cancel(ctx, w)
		case drawn < 35:
			l.retry(ctx, w)
		case drawn < 65:
			l.trigger(ctx, w, other)
		case drawn < 90:
			l.pause(ctx, w, hold, missed)
		default:
			l.remove(ctx, w)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		w.doing = false
		if other != nil {
			other.doing = false
		}
	})
}

func (l *load) addViolation(invariant, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, violation{invariant: invariant, text: fmt.Sprintf(format, args...)})
}
