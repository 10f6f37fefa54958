package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	// remoteFunction is what jobs of tenants' own workers call.
	remoteFunction = "call"
	// remoteEach is how many workers each tenant has, and remoteSlots how much each runs.
	remoteEach, remoteSlots = 2, 10
	remoteLease             = 10 // seconds: the least
	// staleAnswer is how old the answer to a claim may be that a worker goes by. An older one counts
	// as lost: a call that begins much later might outlast its lease.
	staleAnswer = 3 * time.Second
	// A worker is killed after leastLife to twice that, and in a long run after a lifePart of it: what
	// a killed one ran waits for the end of its lease and takes its tenant's places meanwhile, which
	// would otherwise measure these workers and not the product.
	leastLife, lifePart = 6 * time.Second, 6
)

var errKilled = errors.New("the worker was killed")

// remoteWorkers are workers of tenants outside the product's processes. They lose answers to
// claims, repeat claims, two at once too, and are killed: then all that they ran is forgotten, and
// another takes their place.
type remoteWorkers struct {
	load *load
	life time.Duration // the shortest
	all  sync.WaitGroup

	mu              sync.Mutex
	random          *rand.Rand
	killed, repeats int
}

// startRemote starts the workers of all tenants, and returns once their function is known.
func (l *load) startRemote(ctx context.Context, seed uint64, run time.Duration) *remoteWorkers {
	w := &remoteWorkers{load: l, life: max(leastLife, run/lifePart), random: rand.New(rand.NewPCG(seed, 5))}
	for tenant := range l.tenants {
		first := make(chan struct{})
		for n := range remoteEach {
			w.all.Go(func() {
				known := first
				for ctx.Err() == nil {
					w.live(ctx, tenant, n, known)
					known = nil
				}
			})
		}
		for range remoteEach {
			select {
			case first <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}
	return w
}

// runRemote starts the workers of tenants, where they take part. The returned function ends
// them, and says what they did.
func (l *load) runRemote(ctx context.Context, c Config, progress io.Writer) (stop func()) {
	if l.plain {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	w := l.startRemote(ctx, c.Seed, c.Duration)
	return func() {
		cancel()
		w.all.Wait()
		fmt.Fprintf(progress, "workers of tenants: %d killed, %d claims repeated after a lost answer\n", w.killed, w.repeats)
	}
}

func (w *remoteWorkers) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

// client is the way to any of the API processes.
func (w *remoteWorkers) client(tenant int) *api.ClientWithResponses {
	all := w.load.stack.clients[tenant]
	return all[w.draw(len(all))]
}

// remoteRuns are what one worker runs, by execution and attempt.
type remoteRuns struct {
	mu   sync.Mutex
	ends map[string]context.CancelCauseFunc // by token
	seen map[string]bool                    // executions and attempts that it has begun
	all  sync.WaitGroup
}

// live is the life of one worker: it registers, works, and is killed.
func (w *remoteWorkers) live(ctx context.Context, tenant, n int, known <-chan struct{}) {
	id := w.register(ctx, tenant, n)
	if known != nil {
		select {
		case <-known:
		case <-ctx.Done():
		}
	}
	if id == uuid.Nil {
		return
	}
	life, kill := context.WithTimeoutCause(ctx, w.life+time.Duration(w.draw(int(w.life.Milliseconds())))*time.Millisecond, errKilled)
	defer kill()
	r := &remoteRuns{ends: map[string]context.CancelCauseFunc{}, seen: map[string]bool{}}
	r.all.Go(func() { w.beat(life, tenant, id, r) })
	claim := uuid.New()
	for life.Err() == nil {
		got, answered := w.claim(life, tenant, id, claim, remoteSlots-r.running())
		for _, e := range got {
			r.begin(life, w, tenant, e)
		}
		switch {
		case len(got) > 0:
			claim = uuid.New()
		case !answered:
			sleep(life, 150*time.Millisecond)
		}
	}
	r.all.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killed++
}

func (w *remoteWorkers) register(ctx context.Context, tenant, n int) uuid.UUID {
	slots, lease := remoteSlots, remoteLease
	spec := api.RemoteWorkerSpec{
		Name: fmt.Sprintf("worker %d of tenant %d", n, tenant), Protocol: 1, Slots: &slots, LeaseSeconds: &lease,
		Functions: []api.RemoteFunction{{Name: remoteFunction}},
	}
	for ctx.Err() == nil {
		if answer, err := w.client(tenant).RegisterRemoteWorkerWithResponse(ctx, spec); err == nil && answer.JSON201 != nil {
			return answer.JSON201.ID
		}
		sleep(ctx, 250*time.Millisecond)
	}
	return uuid.Nil
}

// claim claims under an id. Of three answers one is lost on the way, and of six claims one is sent
// twice at once; answered says that it need not be repeated at once.
func (w *remoteWorkers) claim(ctx context.Context, tenant int, worker, id uuid.UUID, most int) (got []api.RemoteExecution, answered bool) {
	if most <= 0 {
		return nil, false
	}
	wait := 1
	body := api.RemoteClaim{Most: &most, WaitSeconds: &wait, ClaimID: &id}
	ask := func() ([]api.RemoteExecution, bool) {
		mark := clock.Start()
		answer, err := w.client(tenant).ClaimRemoteExecutionsWithResponse(ctx, worker, body)
		if err != nil || answer.JSON200 == nil || mark.Elapsed() > staleAnswer {
			return nil, false
		}
		return answer.JSON200.Executions, true
	}
	switch w.draw(6) {
	case 0:
		other := make(chan []api.RemoteExecution, 1)
		go func() { also, _ := ask(); other <- also }()
		got, answered = ask()
		if also := <-other; len(got) == 0 {
			got = also
		}
		return got, answered
	case 1, 2:
		if lost, _ := ask(); len(lost) > 0 {
			w.mu.Lock()
			w.repeats++
			w.mu.Unlock()
			again, ok := ask()
			w.checkRepeated(tenant, lost, again, ok)
			return again, ok
		}
		return nil, true
	}
	return ask()
}

// checkRepeated checks that a repeated claim brings nothing but what it brought (I10).
func (w *remoteWorkers) checkRepeated(tenant int, lost, again []api.RemoteExecution, ok bool) {
	if !ok || len(again) == 0 || again[0].Attempt > lost[0].Attempt {
		return // all of it has ended meanwhile, and the id was free
	}
	of := map[uuid.UUID]int{}
	for _, e := range lost {
		of[e.ExecutionID] = e.Attempt
	}
	known := 0
	for _, e := range again {
		if of[e.ExecutionID] == e.Attempt {
			known++
		}
	}
	if known > 0 && known < len(again) {
		w.load.addViolation("I10", "a repeated claim of tenant %d brought %d executions, %d of them of the claim before", tenant, len(again), known)
	}
}

func (r *remoteRuns) running() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ends)
}

// begin runs an execution, unless the worker began this attempt before.
func (r *remoteRuns) begin(life context.Context, w *remoteWorkers, tenant int, e api.RemoteExecution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fmt.Sprintf("%s %d", e.ExecutionID, e.Attempt)
	if r.seen[name] {
		return
	}
	r.seen[name] = true
	timed, stop := context.WithTimeout(life, time.Duration(e.TimeoutSeconds*float64(time.Second)))
	ctx, end := context.WithCancelCause(timed)
	r.ends[e.Token] = end
	r.all.Go(func() {
		defer stop()
		err := w.call(ctx, tenant, e)
		if life.Err() == nil {
			w.report(life, tenant, e, err)
		}
		end(nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ends, e.Token)
	})
}

// call calls the target as a job of type http does.
func (w *remoteWorkers) call(ctx context.Context, tenant int, e api.RemoteExecution) error {
	if e.Parameters == nil {
		return errors.New("the execution has no parameters")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint((*e.Parameters)["url"]), http.NoBody)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"X-Execution-Id": e.ExecutionID.String(), "X-Job-Id": e.JobID.String(), "X-Attempt": fmt.Sprint(e.Attempt),
		"X-Scheduled-At": e.ScheduledAt.Format(time.RFC3339Nano), "Idempotency-Key": e.IdempotencyKey, outsideHeader: "yes",
	} {
		request.Header.Set(name, text)
	}
	if w.draw(2) == 0 {
		line := api.OutputReport{FirstLine: 1, Lines: []api.OutputLine{{Text: "calls its target"}}}
		_, _ = w.client(tenant).ReportOutputWithResponse(ctx, e.Token, line) // it may be lost
	}
	answer, err := w.load.stack.sink.client.Do(request)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the target answers %d", answer.StatusCode)
	}
	return nil
}

// report reports the end, until that is answered, and one time in four once more.
func (w *remoteWorkers) report(ctx context.Context, tenant int, e api.RemoteExecution, failure error) {
	body := api.CompletionReport{}
	if failure != nil {
		kind := api.ErrorTypeSystemError
		body.Error = &api.CompletionError{Type: &kind, Message: failure.Error()}
	}
	more := w.draw(4) == 0
	for ctx.Err() == nil {
		answer, err := w.client(tenant).ReportCompletionWithResponse(ctx, e.Token, body)
		if err != nil || !final(answer.StatusCode()) {
			sleep(ctx, 150*time.Millisecond)
			continue
		}
		if !more {
			return
		}
		more = false
	}
}

// beat says that the worker and its runs go on, and ends those that shall not.
func (w *remoteWorkers) beat(life context.Context, tenant int, worker uuid.UUID, r *remoteRuns) {
	for sleep(life, time.Second) {
		var tokens []string
		r.mu.Lock()
		for token := range r.ends {
			tokens = append(tokens, token)
		}
		r.mu.Unlock()
		answer, err := w.client(tenant).SendRemoteHeartbeatWithResponse(life, worker, api.RemoteHeartbeat{Tokens: &tokens})
		if err != nil || answer.JSON200 == nil {
			continue
		}
		r.mu.Lock()
		for i, status := range answer.JSON200.Attempts {
			if end := r.ends[tokens[i]]; end != nil && status != api.RemoteAttemptStatusRunning {
				end(errors.New("it is " + string(status)))
			}
		}
		r.mu.Unlock()
	}
}

// remote makes of a job that calls its target one whose tenant's own workers do. Such a run is
// ended with a heartbeat, and one whose worker was killed after its lease, so jobs that end one run
// for the next, or have each run wait for the one before, are none.
func (l *load) remote(spec *api.JobSpec, url string) {
	if *spec.OverlapPolicy == api.OverlapPolicyCancelRunning || *spec.OverlapPolicy == api.OverlapPolicyQueueAll || spec.ConcurrencyKey != nil {
		return
	}
	spec.JobType = api.JobTypeRemote
	_ = spec.Config.FromRemoteConfig(api.RemoteConfig{FunctionName: remoteFunction, Parameters: &map[string]any{"url": url}}) // cannot fail
}
