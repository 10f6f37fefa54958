package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	// blockedTries is how often a batch that runs into the time limit of
	// statements is tried as it is: a database that stalls as a whole is slow with
	// each half, too.
	blockedTries = 2
	// suspectFor is how long the outcomes of a job are written apart from others
	// after one was refused.
	suspectFor = time.Minute
	// A claim that was refused is tried again after unclaimableFirst, then after
	// twice as long each time, up to unclaimableMost: once the cause is mended,
	// the run starts about as late again as it had waited for that.
	unclaimableFirst = time.Second
	unclaimableMost  = time.Minute
	// recentMost is how many ids of each kind a worker remembers.
	recentMost = 1024
)

// recent remembers what was refused lately, each id for a while that doubles
// with each refusal, from first to most.
type recent struct {
	first, most time.Duration

	mu   sync.Mutex
	seen map[uuid.UUID]refused
}

// refused is when something was refused last, and how long it is left alone.
type refused struct {
	since clock.Mark
	rest  time.Duration
}

func newRecent(first, most time.Duration) *recent {
	return &recent{first: first, most: most, seen: map[uuid.UUID]refused{}}
}

func (r *recent) add(id uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := r.first
	if before, known := r.seen[id]; known {
		rest = min(2*before.rest, r.most)
	}
	if len(r.seen) >= recentMost {
		clear(r.seen)
	}
	r.seen[id] = refused{since: clock.Start(), rest: rest}
}

// has reports whether id is to be left alone. An id that was not refused again
// for twice the longest rest is forgotten.
func (r *recent) has(id uuid.UUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.seen[id]
	if known && last.since.Elapsed() >= 2*r.most {
		delete(r.seen, id)
	}
	return known && last.since.Elapsed() < last.rest
}

func (r *recent) none() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen) == 0
}

// sorted divides a batch into the outcomes of jobs of which none was refused
// lately, and the others.
func (w *Worker) sorted(batch []ended) (healthy, suspect []ended) {
	if w.suspects.none() {
		return batch, nil
	}
	for _, e := range batch {
		if w.suspects.has(e.Job) {
			suspect = append(suspect, e)
		} else {
			healthy = append(healthy, e)
		}
	}
	return healthy, suspect
}

// putAside brings outcomes to the divider. While that has enough to do the worker
// waits, with its slots taken, as for a database that is away.
func (w *Worker) putAside(ctx context.Context, batch []ended) {
	for i, e := range batch {
		select {
		case w.refusedOutcomes <- e:
		case <-ctx.Done():
			w.lose(ctx, batch[i:])
			return
		}
	}
}

// divider writes outcomes that could not be written together with others: it divides
// them until each refused outcome is alone. An error that passes by itself, such as
// a row that somebody holds locked, has it try again later.
type divider struct {
	worker *Worker
	later  []ended // to be tried again, after wait
	wait   time.Duration
}

// writeRefused writes what is put aside until stopped is done and nothing is left
// that holds a slot, or ctx is cancelled.
func (w *Worker) writeRefused(ctx context.Context, stopped <-chan struct{}) {
	s := &divider{worker: w, wait: askAgain}
	defer func() {
		if len(s.later) > 0 {
			w.lose(ctx, s.later)
		}
	}()
	for ctx.Err() == nil {
		var again <-chan time.Time
		if len(s.later) > 0 {
			again = time.After(s.wait)
		}
		var ending <-chan struct{}
		if !s.holding() && len(w.refusedOutcomes) == 0 {
			ending = stopped
		}
		select {
		case e := <-w.refusedOutcomes:
			s.flush(ctx, w.aside(e))
		case <-again:
			s.again(ctx)
		case <-ending:
			if len(w.refusedOutcomes) == 0 { // what came last came before stopped
				return
			}
		case <-ctx.Done():
		}
	}
}

// holding reports whether a kept outcome holds a slot.
func (s *divider) holding() bool {
	return slices.ContainsFunc(s.later, func(e ended) bool { return !e.slotless })
}

// aside is an outcome that was put aside and those behind it, as many as one
// statement takes.
func (w *Worker) aside(first ended) []ended {
	batch, size := []ended{first}, first.size()
	for len(batch) < completeBatch && size < completeBytes {
		select {
		case e := <-w.refusedOutcomes:
			batch, size = append(batch, e), size+e.size()
		default:
			return batch
		}
	}
	return batch
}

// After a try of kept outcomes none follows for againRest times as long as the try took: it
// may have been nothing but waiting for a lock. No rest is longer than againRestMost. Without
// that bound outcomes waited for minutes after an outage, and held their slots.
const (
	againRest     = 4
	againRestMost = 10 * time.Second
)

// again tries what is kept.
func (s *divider) again(ctx context.Context) {
	mark, batch := clock.Start(), s.later
	s.later = nil
	s.flush(ctx, batch)
	s.wait = clock.Rest(mark.Elapsed(), againRest, askAgain, againRestMost)
}

// flush divides a batch until each outcome that is refused is alone. That one is
// stored without what may be to blame, and parked where even that is refused.
func (s *divider) flush(ctx context.Context, batch []ended) {
	w := s.worker
	refused := s.divide(ctx, batch, w.completeAll)
	for _, r := range refused {
		w.suspects.add(r.Job)
	}
	bare := make([]ended, len(refused))
	whole := make(map[uuid.UUID]refusal, len(refused))
	for i, r := range refused {
		bare[i], whole[r.ID] = r.bare(), r
	}
	still := s.divide(ctx, bare, w.completeAll)
	for i, e := range s.later { // nothing of it is lost while it waits
		if r, ok := whole[e.ID]; ok {
			s.later[i] = r.ended
			delete(whole, e.ID)
		}
	}
	lonely := make([]ended, 0, len(still))
	for _, r := range still {
		lonely = append(lonely, whole[r.ID].ended)
		delete(whole, r.ID)
	}
	for id, r := range whole {
		w.c.Log.WarnContext(ctx, "an outcome was refused and is stored without the parts that may be to blame",
			"execution_id", id, "job_id", r.Job, "tenant_id", r.Tenant, "error", r.err)
	}
	for _, r := range s.divide(ctx, lonely, func(ctx context.Context, batch []ended) ([]dispatch.Verdict, error) {
		return w.park(ctx, batch, still)
	}) {
		s.keepInMemory(ctx, r)
	}
}

// refusal is an outcome that the database refused when it was alone.
type refusal struct {
	ended
	err error
}

// divide writes a batch, and the halves of what is not accepted, down to single
// outcomes. It returns those that were refused, and keeps the others for later. Unlike
// package divide it bounds no number of statements: each outcome holds a slot.
func (s *divider) divide(ctx context.Context, batch []ended, write func(context.Context, []ended) ([]dispatch.Verdict, error)) (refused []refusal) {
	if len(batch) == 0 {
		return nil
	}
	verdicts, err := write(ctx, batch)
	if err == nil {
		s.worker.accept(ctx, batch, verdicts)
		return nil
	}
	passes := !postgres.Refused(err) // by itself
	switch {
	case len(batch) > 1 && (!passes || postgres.TimedOut(err)):
		half := len(batch) / 2
		return append(s.divide(ctx, batch[:half], write), s.divide(ctx, batch[half:], write)...)
	case passes:
		s.later = append(s.later, batch...)
		return nil
	}
	return []refusal{{batch[0], err}}
}

// completeAll writes outcomes in one statement.
func (w *Worker) completeAll(ctx context.Context, batch []ended) ([]dispatch.Verdict, error) {
	return w.store.Complete(ctx, stored(batch))
}

// park parks outcomes; refused says why each was refused.
func (w *Worker) park(ctx context.Context, batch []ended, refused []refusal) ([]dispatch.Verdict, error) {
	why := make(map[uuid.UUID]string, len(refused))
	for _, r := range refused {
		why[r.ID] = postgres.Why(r.err)
	}
	parked, err := w.store.Park(ctx, stored(batch), why)
	if err != nil {
		return nil, err
	}
	for _, e := range batch {
		w.c.Log.ErrorContext(ctx, "an execution is parked: the database refuses its outcome",
			"execution_id", e.ID, "job_id", e.Job, "tenant_id", e.Tenant, "error", why[e.ID])
	}
	return parked, nil
}

// keepInMemory keeps an outcome whose execution cannot even be parked: its slot is
// freed, and it is tried again. The worker keeps as many as it has slots and gives up
// the oldest.
func (s *divider) keepInMemory(ctx context.Context, r refusal) {
	w := s.worker
	if !r.slotless {
		r.slotless = true
		w.freeEnded()
	}
	w.c.Log.ErrorContext(ctx, "an execution can neither end nor be parked: the database refuses every change of it",
		"execution_id", r.ID, "job_id", r.Job, "tenant_id", r.Tenant, "error", r.err)
	s.later = append(s.later, r.ended)
	if len(s.later) > w.c.Slots {
		w.lose(ctx, s.later[:1])
		s.later = s.later[1:]
	}
}

// bare is the same end without the parts that may be why it was refused.
func (r refusal) bare() ended {
	e := r.ended
	e.outcome = e.outcome.Bare(postgres.Why(r.err))
	return e
}
