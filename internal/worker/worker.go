// Package worker is one member of the fleet: it claims executions and runs them.
//
// It owns the way of an attempt through a worker: a slot, the claim, the lease
// under which it runs, the run under its deadline, and the outcome, written until it is
// accepted or refused. Its heartbeat keeps the lease of this incarnation, and it finds
// runs that somebody asked to end and rows that the database says it runs and it does
// not; without answers it stops itself before the database reassigns what it runs. It
// refuses to know how a job type runs (package executor) and which statement moves an
// execution (package dispatch), to retry by itself and to trust a hint.
package worker

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/breaker"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/output"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/trace"
)

// The sizes of the micro-batches, measured with 1,000 jobs due at each whole
// second: with claims of 128 and completions after 4 ms the last of them started
// 110 to 240 ms late, with these 74 to 95. An outcome can wait, a start cannot:
// completions that linger leave the processors to the claims of the same burst.
// Where no slot is free it is the outcomes that starts wait for (measured with
// 100 slots: 3,200 executions a second if they lingered all the same).
const (
	claimBatch     = 256
	claimLinger    = 3 * time.Millisecond
	completeBatch  = 256
	completeLinger = 20 * time.Millisecond
	completeStep   = 4 * time.Millisecond
	// completeBytes bounds the statement: an outcome may have a quarter of a
	// megabyte, and 256 of them 66. The slots, which stay taken, bound the outcomes
	// that wait.
	completeBytes = 4 << 20
	// slotPatience is how long a hint waits for a free slot before its
	// executions go to the pool, where every worker finds them, in fair order.
	// Hints behind it wait too, so it is short: 64 of them are through in 0.1 s.
	slotPatience = 25 * time.Millisecond
	// askAgain is the longest pause before a statement that was not answered is
	// sent again. Everything waits behind it when the database is back, and a
	// worker sends three at most at a time, so it is short.
	askAgain = 500 * time.Millisecond
	// lastWords is how long a worker that stops waits for runs that it ended, and then how
	// long it goes on trying to write its last outcomes to a database that is away.
	lastWords = 5 * time.Second
)

// hints is what a worker sends: hints of the next in line, of what it releases, and of
// what comes before it may claim.
type hints interface {
	Publish(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error
	PublishIn(ctx context.Context, lane queue.Lane, ids []uuid.UUID, delay time.Duration) error
}

// Config is what a worker is made of.
type Config struct {
	DB *postgres.DB // acting as postgres.Engine
	// Beat is a pool of one connection for the heartbeat alone, so that a
	// busy pool never costs the lease.
	Beat     *postgres.DB
	Executor *executor.Registry
	Secrets  *secret.Resolver // nil where no job refers to any
	Hints    hints
	// Callback makes the address at which the target of an attempt may report its end; nil:
	// no attempt awaits a callback.
	Callback func(dispatch.Claimed) (string, error)
	// Breakers hold calls back from hosts that fail; nil: no call is held back.
	Breakers *breaker.Board
	// Away says that no hints come now; PollLoop asks it. Nil: there never are any.
	Away func() bool
	// Called says whether those who pool executions without a hint reach Wake; nil: they
	// do not.
	Called func() bool
	// CallWorkers tells the other workers that something is in the pool without a hint; nil:
	// it is found by their polls alone.
	CallWorkers func(ctx context.Context)
	// Traces begins the spans of attempts; nil: there are none.
	Traces *trace.Tracer
	// Finished is told of executions that have finished; nil: nobody is.
	Finished func(tenant, execution uuid.UUID)
	Metrics  *telemetry.Metrics
	Log      *slog.Logger

	Host  string
	PID   int
	Slots int // executions at once
	// TenantMaxRunning is how many executions a tenant may run at once on all
	// workers where it has no limit of its own; 0, or nil: any number. The same in
	// every process.
	TenantMaxRunning func() int
	Heartbeat        time.Duration // distance between heartbeats
	Compare          time.Duration // distance between two comparisons with the database; 0: 15 heartbeats
	Fence            time.Duration // stops itself so long after it sent the last good one
	Lease            time.Duration // how long the database believes in it
	Drain            time.Duration // how long what runs may finish after a stop

	// How long runs that a stop ended may take to end, and then how long their last outcomes
	// may take to be written; 0: lastWords.
	endWithin, lastWords time.Duration
}

// Worker runs executions. Handle is called by the queue's consumer, Run once.
type Worker struct {
	c           Config
	store       *dispatch.Store
	beats       *dispatch.Store // on the heartbeat's connection
	members     *fleet.Store
	slots       *slots
	ends        atomic.Int64 // runs that have ended with an outcome to write
	freed       atomic.Int64 // those of them whose slot is free again
	specs       *specs
	claims      *batch[claimRequest]
	outcomes    *batch[ended]
	releases    *batch[*attempt] // runs that a stop ended, and that have ended
	output      *output.Writer
	suspects    *recent // jobs of which an outcome was refused lately
	unclaimable *recent // executions whose claim was
	// refusedOutcomes could not be written with others; announcements wait to be sent.
	refusedOutcomes chan ended
	announcements   chan announcement

	takingSlots chan struct{}  // held by the hint that takes slots
	next        chan uuid.UUID // for the next Poll: executions that may start now
	woken       chan struct{}  // another process calls for a poll
	self        chan struct{}  // this worker does
	roomMade    chan struct{}  // and at once: a tenant's limit has room for others
	polling     atomic.Bool    // PollLoop is under way
	stuck       bool           // the last poll in turn could claim nothing of what it found; of the polling goroutine
	hintless    atomic.Bool    // no hints come
	idle        atomic.Bool    // nothing waited without a hint when that was last asked

	// Of Poll: where the next one goes on, its questions for free slots and
	// keys, which tenants it leaves alone, and since when it polls without a turn.
	afterTenant uuid.UUID
	unblocked   unblockedPolls
	able        int // how many other workers run all of its types and had a slot free
	refused     map[uuid.UUID]clock.Mark
	outOfTurn   clock.Mark
	join        joining
	pooled      bool           // the last one found something in the pool
	beginning   sync.WaitGroup // the runs of its last claim, see begin

	intake sync.RWMutex // held by ends while they take slots for the next in line, and to set closed
	closed bool         // nothing more is taken

	current atomic.Pointer[incarnation] // nil while there is none
	runs    sync.WaitGroup              // runs whose slot is held
	strays  atomic.Int32                // runs that were given up and go on
	ready   atomic.Bool
	// registered is closed when the worker is that for the first time.
	registered chan struct{}
}

// New makes a worker.
func New(c Config) *Worker {
	if c.Compare == 0 {
		c.Compare = 15 * c.Heartbeat
	}
	c.endWithin, c.lastWords = cmp.Or(c.endWithin, lastWords), cmp.Or(c.lastWords, lastWords)
	if c.Called == nil {
		c.Called = func() bool { return false }
	}
	if c.CallWorkers == nil {
		c.CallWorkers = func(context.Context) {}
	}
	statements := dispatch.Config{TenantMaxRunning: c.TenantMaxRunning, LeftTypes: c.Executor.LeftTypes()}
	w := &Worker{
		c: c, store: dispatch.NewStore(c.DB, statements), beats: dispatch.NewStore(c.Beat, statements),
		members: fleet.NewStore(c.Beat), slots: newSlots(c.Slots),
		suspects: newRecent(suspectFor, suspectFor), unclaimable: newRecent(unclaimableFirst, unclaimableMost),
		refusedOutcomes: make(chan ended, completeBatch), announcements: make(chan announcement, announcementsWaiting),
		specs:       newSpecs(c.DB),
		claims:      newBatch[claimRequest](claimBatch, claimLinger, func(_ int, age time.Duration) bool { return age >= claimLinger }),
		output:      output.NewWriter(c.DB, c.Metrics, c.Log),
		registered:  make(chan struct{}),
		takingSlots: make(chan struct{}, 1),
		next:        make(chan uuid.UUID, claimBatch), woken: make(chan struct{}, 1), self: make(chan struct{}, 1), roomMade: make(chan struct{}, 1), refused: map[uuid.UUID]clock.Mark{},
	}
	w.outcomes = newBatch[ended](completeBatch, completeStep, w.outcomesDue)
	w.outcomes.size, w.outcomes.most = ended.size, completeBytes
	w.releases = newBatch[*attempt](claimBatch, completeStep, w.releasesDue)
	return w
}

// Ready reports whether the worker holds a lease and takes executions.
func (w *Worker) Ready() bool { return w.ready.Load() }

// Run works until ctx is cancelled; then it takes nothing more, lets what runs
// finish for up to Config.Drain, ends and releases the rest, and returns nil. consume
// delivers hints to Handle, or is PollLoop, or both, and returns once its own ctx is
// cancelled. It is called when the worker is registered. An unregistered worker sends hints
// on, for a second later, so when a worker started, executions waited for two seconds.
func (w *Worker) Run(ctx context.Context, consume func(ctx context.Context) error) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx)) // of everything that must outlive the stop
	defer end()
	writing, stopWriting := context.WithCancel(life)
	defer stopWriting()
	var background sync.WaitGroup
	background.Go(func() { w.claims.run(writing, func(requests []claimRequest) { w.claim(life, requests) }) })
	background.Go(func() { w.releases.run(writing, func(runs []*attempt) { w.releaseEnded(life, runs) }) })
	background.Go(func() { w.output.Run(writing) })
	w.writeOutcomes(life, writing, &background)
	incarnate, stopIncarnating := context.WithCancel(life)
	defer stopIncarnating()
	background.Go(func() { w.incarnations(incarnate) })

	select {
	case <-w.registered:
	case <-ctx.Done():
	}
	err := consume(ctx) // returns when ctx is cancelled
	w.close()
	w.ready.Store(false)
	idle := make(chan struct{})
	go func() { w.runs.Wait(); close(idle) }()
	w.drain(life, idle)
	patience := time.AfterFunc(w.c.lastWords, end)
	defer patience.Stop()
	select {
	case <-idle:
	case <-life.Done():
	}
	stopWriting()     // the batches are emptied first, and what follows from them
	stopIncarnating() // not before: without the lease the sweeper reassigns what waits for its outcome
	background.Wait()
	return err
}

// close closes the intake: hints and polls bring nothing more, and ends claim nothing more.
func (w *Worker) close() {
	w.intake.Lock()
	defer w.intake.Unlock()
	w.closed = true
}

// writeOutcomes writes outcomes until writing is cancelled: batches first, then the
// outcomes that were refused with others, then the announcements of both.
func (w *Worker) writeOutcomes(life, writing context.Context, background *sync.WaitGroup) {
	written, settled := make(chan struct{}), make(chan struct{})
	background.Go(func() {
		defer close(written)
		w.outcomes.run(writing, func(batch []ended) { w.complete(life, batch) })
	})
	background.Go(func() {
		defer close(settled)
		w.writeRefused(life, written)
	})
	background.Go(func() { w.announcing(life, settled) })
}

// Handle claims the executions of one hint that get an open slot within slotPatience,
// and puts the rest into the pool, where a worker with a slot finds it, in fair order. It
// returns when the claims are decided, so that the hint is acknowledged only then. Hints
// are served one after the other: served side by side, each would catch a few of the
// slots.
func (w *Worker) Handle(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error {
	inc := w.current.Load()
	if inc == nil {
		return w.c.Hints.PublishIn(ctx, lane, ids, time.Second)
	}
	patience, cancel := context.WithTimeout(ctx, slotPatience)
	defer cancel()
	var decided decision
	defer func() { w.handled(len(ids), int(decided.won.Load())) }()
	rest := w.admit(patience, inc, ids, &decided)
	if len(rest) > 0 {
		if err := w.store.Pool(ctx, rest); err != nil {
			return err // the sweeper puts them there
		}
		w.c.CallWorkers(ctx)
	}
	decided.Wait()
	return nil
}

// handled calls for a poll after a hint. The hint named so many executions, and this worker
// won so many of them. The others may be in the pool now.
func (w *Worker) handled(named, won int) {
	if won < named {
		w.callItself()
	} else {
		w.wakeUnlessIdle()
	}
}

// admit requests the claims of ids that get a slot, and returns the others.
func (w *Worker) admit(patience context.Context, inc *incarnation, ids []uuid.UUID, decided *decision) (rest []uuid.UUID) {
	select {
	case w.takingSlots <- struct{}{}:
		defer func() { <-w.takingSlots }()
	case <-patience.Done():
		return ids
	}
	for len(ids) > 0 {
		n := w.slots.take(patience, len(ids))
		if n == 0 {
			return ids
		}
		for _, id := range ids[:n] {
			w.requestClaim(inc, id, decided)
		}
		ids = ids[n:]
	}
	return nil
}

// requestClaim brings an execution, for which a slot is taken, to the next claim.
func (w *Worker) requestClaim(inc *incarnation, id uuid.UUID, decided *decision) {
	decided.Add(1)
	w.runs.Add(1)
	// The batch always takes it: claims go on until the worker ends.
	w.claims.in <- claimRequest{id: id, inc: inc, decided: decided}
}

// free frees a slot.
func (w *Worker) free() {
	w.slots.give()
	w.runs.Done()
}
