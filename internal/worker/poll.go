package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	// pollMin is the distance between polls that find something, and pollMax
	// between those that do not; it doubles from one to the other. Where more
	// was found than one claim takes, pollNow.
	pollNow = time.Millisecond
	pollMin = 20 * time.Millisecond
	pollMax = 250 * time.Millisecond
	// pollRest is how many times its own length a look is followed by none, so
	// that a worker keeps at most a fifth of one of the database's cores busy
	// by looking, however much waits.
	pollRest = 4
	// pollWindow is how many a poll chooses from of the oldest that wait, of the
	// newest, and of those that wait for a place.
	pollWindow = 4 * claimBatch
	// pollLinger is how long a worker polls on when Redis is back: those who
	// send hints notice it up to a second later.
	pollLinger = 3 * time.Second
	// strayAfter is how old what waits must be to be looked for while hints do
	// come, and strayEvery the rounds of pollMax between two such looks. Redis
	// may be here for this worker and away for the promoter; a run then starts
	// within two seconds, without what has its hint under way being touched.
	strayAfter = time.Second
	strayEvery = 4
	// pollAfterError is the distance after a poll that the database refused.
	pollAfterError = time.Second
)

// Poll looks once for executions that wait and may start, and claims as many
// as there are slots free: those that got their turn by a run that ended here,
// then what has waited for at least waited. It answers how many it claimed;
// what other workers were quicker to take is not counted. It is the same claim
// that hints lead to, so both may go on side by side. One goroutine polls.
func (w *Worker) Poll(ctx context.Context, waited time.Duration) (won int, err error) {
	seen, err := w.poll(ctx, waited)
	return seen.won, err
}

// sight is what a poll came to.
type sight struct {
	won    int
	full   bool          // no slot was free
	looked time.Duration // in the database
}

func (w *Worker) poll(ctx context.Context, waited time.Duration) (seen sight, err error) {
	inc, free := w.current.Load(), min(w.slots.idle(), claimBatch)
	if inc == nil || free == 0 {
		return sight{full: inc != nil}, nil
	}
	ids := w.followed(free)
	if len(ids) < free {
		mark := clock.Start()
		listed, after, err := w.store.claimable(ctx, look{most: free - len(ids), waited: waited, after: w.lookAfter})
		if err != nil {
			return sight{}, err
		}
		w.lookAfter = after
		seen.looked = mark.Elapsed()
		w.Metrics.RoundTrips("poll", 1)
		ids = append(ids, listed...)
	}
	patience, cancel := context.WithTimeout(ctx, slotPatience)
	defer cancel()
	var decided decision
	w.admit(patience, inc, ids, &decided) // what gets no slot is found again
	decided.Wait()
	seen.won = int(decided.won.Load())
	return seen, nil
}

// follow has the next Poll try executions, at once. What there is no room for
// is found by a later one.
func (w *Worker) follow(ids []uuid.UUID) {
	for _, id := range ids {
		select {
		case w.next <- id:
		default:
		}
	}
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// followed takes up to n of what follow brought.
func (w *Worker) followed(n int) (ids []uuid.UUID) {
	for len(ids) < n {
		select {
		case id := <-w.next:
			ids = append(ids, id)
		default:
			return ids
		}
	}
	return ids
}

// Seek polls until ctx is cancelled, then returns nil: often while Deps.Away
// says that no hints come, and otherwise about each second for what has waited
// so long that its hint must be lost.
func (w *Worker) Seek(ctx context.Context) error {
	defer w.seeking.Store(false)
	s := &seeker{worker: w, wait: pollMin}
	for ctx.Err() == nil {
		wait := s.round(ctx)
		timer := time.NewTimer(wait - wait/10 + rand.N(wait/5))
		select {
		case <-timer.C:
		case <-w.woken:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// seeker is what Seek knows from one round to the next.
type seeker struct {
	worker *Worker
	wait   time.Duration // after the last poll
	away   clock.Mark    // when hints were last known not to come
	calm   int           // rounds since the last look for strays
}

// round polls if it is time to, and answers when to come again.
func (s *seeker) round(ctx context.Context) time.Duration {
	w := s.worker
	s.turn(ctx)
	waited := time.Duration(0)
	if !w.seeking.Load() {
		if s.calm++; s.calm < strayEvery {
			return pollMax
		}
		s.calm, waited = 0, strayAfter
	}
	seen, err := w.poll(ctx, waited)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			w.Log.WarnContext(ctx, "not known what waits; asking again", "error", err)
		}
		s.wait = pollAfterError
	case waited > 0:
		s.wait = pollMax
	case seen.won == claimBatch:
		s.wait = pollNow
	case seen.won > 0 || seen.full:
		s.wait = pollMin
	default:
		s.wait = min(2*s.wait, pollMax)
	}
	return max(s.wait, pollRest*seen.looked)
}

// turn begins and ends the time in which this worker looks for itself.
func (s *seeker) turn(ctx context.Context) {
	w := s.worker
	away := w.Away == nil || w.Away()
	if away {
		s.away = clock.Start()
	}
	switch seeking := w.seeking.Load(); {
	case away && !seeking:
		w.seeking.Store(true)
		s.wait = pollMin
		if w.Away != nil {
			w.Log.WarnContext(ctx, "no hints come, polling the database")
		}
	case !away && seeking && s.away.Elapsed() > pollLinger:
		w.seeking.Store(false)
		w.Log.InfoContext(ctx, "hints come again, polling no more")
	}
}
