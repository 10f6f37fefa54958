package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	// pollMin is the distance between looks that find something, and pollMax
	// between those that do not; it doubles from one to the other. Where more
	// was found than one claim takes, pollNow. Hints and ends of runs call for a
	// look after pollMin: behind a hint may stand what got none.
	//
	// While hints come and nothing was found, nobody is heard before pollCalm: a
	// steady load calls all the time, and each look costs a round trip for nothing.
	pollNow  = time.Millisecond
	pollMin  = 20 * time.Millisecond
	pollCalm = 100 * time.Millisecond
	pollMax  = 250 * time.Millisecond
	// pollRest is how many times its own length a look is followed by none, so
	// that a worker keeps at most a fifth of one of the database's cores busy
	// by looking, however much waits.
	pollRest = 4
	// lineStretch is how many lines of the pool a look takes of (a tenant has
	// one for each priority and type, 30 at most), and jobStretch how many jobs
	// whose runs wait for a place, and how many keys.
	lineStretch = 96
	jobStretch  = 256
	// placedEvery is the distance between looks for runs that wait for a place
	// that is free. Whoever frees it announces the next; this finds what nobody
	// announced.
	placedEvery = 500 * time.Millisecond
	// refusedFor is how long a worker leaves a tenant alone of which it could
	// claim nothing of what it found: others were quicker, or a limit of the
	// tenant is met.
	refusedFor = 100 * time.Millisecond
	// awayLinger is how long a worker counts hints as missing when Redis is
	// back: those who send hints notice it up to a second later.
	awayLinger = 3 * time.Second
	// gatherEvery is the distance between two gatherings of what was hinted,
	// and hintPatience how far ahead they look: hints may take so long, as the
	// statements that insert executions say.
	gatherEvery  = 100 * time.Millisecond
	hintPatience = 5 * time.Second
	// pollAfterError is the distance after a look that the database refused.
	pollAfterError = askAgain
)

// Poll looks once for executions that wait without a hint and may start, and
// claims as many as there are slots free: those that got their turn by a run
// that ended here, then what is in the pool, fairly between tenants. It answers
// how many it claimed; what other workers were quicker to take is not counted.
// It is the same claim that hints lead to, so both go on side by side. One
// goroutine polls.
func (w *Worker) Poll(ctx context.Context) (won int, err error) {
	seen, err := w.poll(ctx)
	return seen.won, err
}

// sight is what a poll came to.
type sight struct {
	won    int
	full   bool          // no slot was free
	waits  bool          // something may start, whoever takes it
	looked time.Duration // in the database
}

func (w *Worker) poll(ctx context.Context) (seen sight, err error) {
	inc := w.current.Load()
	open, kept := w.slots.free()
	if inc == nil || open+kept == 0 {
		return sight{full: inc != nil}, nil
	}
	turns := w.offer(inc, w.followed(min(open, claimBatch)))
	open = max(0, open-turns.made)
	busy := inc.busy()
	mark := clock.Start()
	found, err := w.look(ctx, min(open+kept, claimBatch), busy, &seen)
	if err != nil {
		return sight{}, err
	}
	seen.looked = mark.Elapsed()
	chosen := choose(found, busy, open, kept)
	byTenant := map[uuid.UUID][]choice{}
	for _, c := range chosen {
		byTenant[c.tenant] = append(byTenant[c.tenant], c)
	}
	offers := map[uuid.UUID]*offered{}
	for tenant, theirs := range byTenant {
		offers[tenant] = w.offer(inc, theirs)
	}
	seen.won = turns.settled()
	for tenant, o := range offers {
		won := o.settled()
		if o.made > 0 && won == 0 {
			w.refused[tenant] = clock.Start()
		}
		seen.won += won
	}
	return seen, nil
}

// look finds what waits and may start, most urgent first: what waits for a
// place that is free, now and then, and what is in the pool. It leaves out
// tenants that were refused just now.
func (w *Worker) look(ctx context.Context, most int, busy map[uuid.UUID]int, seen *sight) (found []candidate, err error) {
	if w.placed.Elapsed() >= placedEvery {
		w.placed = clock.Start()
		if found, w.afterPlaced, err = w.store.placed(ctx, most, w.afterPlaced); err != nil {
			return nil, err
		}
	}
	pooled, after, err := w.store.pooled(ctx, most, w.afterTenant, busy)
	if err != nil {
		return nil, err
	}
	w.afterTenant = after
	seen.waits = len(found)+len(pooled) > 0
	for tenant, at := range w.refused {
		if at.Elapsed() >= refusedFor {
			delete(w.refused, tenant)
		}
	}
	for _, c := range pooled {
		if _, refused := w.refused[c.tenant]; !refused {
			found = append(found, c)
		}
	}
	return found, nil
}

// offered are wishes of one poll.
type offered struct {
	decision
	made int
}

// settled waits until the wishes are decided, and says how many became claims.
func (o *offered) settled() int {
	o.Wait()
	return int(o.won.Load())
}

// offer brings choices that get a slot at once to the next claims.
func (w *Worker) offer(inc *incarnation, choices []choice) *offered {
	o := &offered{}
	for _, c := range choices {
		if !w.slots.takeNow(c.kept) {
			continue // hints were quicker; it is found again
		}
		o.made++
		w.wish(inc, c.id, &o.decision)
	}
	return o
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
	w.wake()
}

// wake calls for a look.
func (w *Worker) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// followed takes up to n of what follow brought.
func (w *Worker) followed(n int) (found []choice) {
	for len(found) < n {
		select {
		case id := <-w.next:
			found = append(found, choice{candidate: candidate{id: id}})
		default:
			return found
		}
	}
	return found
}

// Seek polls until ctx is cancelled, then returns nil. While Deps.Away says
// that no hints come, it also has what was hinted looked for.
func (w *Worker) Seek(ctx context.Context) error {
	defer w.hintless.Store(false)
	s := &seeker{worker: w, wait: pollMin}
	for ctx.Err() == nil {
		rest, wait := s.round(ctx)
		pause(ctx, rest) // whoever calls meanwhile is heard after it
		timer := time.NewTimer(wait - rest)
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
	last   clock.Mark    // the last gathering
}

// round polls, and answers how long it must rest and when to come again if
// nobody calls before.
func (s *seeker) round(ctx context.Context) (rest, wait time.Duration) {
	w := s.worker
	s.turn(ctx)
	err := s.gather(ctx)
	var seen sight
	if err == nil {
		seen, err = w.poll(ctx)
	}
	switch {
	case err != nil:
		if ctx.Err() == nil {
			w.Log.WarnContext(ctx, "not known what waits; asking again", "error", err)
		}
		return pollAfterError, pollAfterError
	case seen.won == claimBatch:
		s.wait = pollNow
	case seen.won > 0 || seen.full:
		s.wait = pollMin
	default:
		s.wait = min(max(2*s.wait, pollMin), pollMax)
	}
	rest = max(min(s.wait, s.deaf(seen)), pollRest*seen.looked)
	return rest, max(rest, s.wait-s.wait/10+rand.N(s.wait/5))
}

// deaf is how long nobody is heard after a poll.
func (s *seeker) deaf(seen sight) time.Duration {
	if seen.waits || seen.full || s.worker.hintless.Load() {
		return pollMin
	}
	return pollCalm
}

// gather puts into the pool what was hinted, while hints do not come.
func (s *seeker) gather(ctx context.Context) error {
	if s.worker.Away == nil || !s.worker.hintless.Load() || s.last.Elapsed() < gatherEvery {
		return nil // without any Redis nothing was hinted
	}
	s.last = clock.Start()
	return s.worker.store.gather(ctx)
}

// turn begins and ends the time in which no hints come.
func (s *seeker) turn(ctx context.Context) {
	w := s.worker
	away := w.Away == nil || w.Away()
	if away {
		s.away = clock.Start()
	}
	switch hintless := w.hintless.Load(); {
	case away && !hintless:
		w.hintless.Store(true)
		if w.Away != nil {
			w.Log.WarnContext(ctx, "no hints come, polling for what was hinted too")
		}
	case !away && hintless && s.away.Elapsed() > awayLinger:
		w.hintless.Store(false)
		w.Log.InfoContext(ctx, "hints come again")
	}
}
