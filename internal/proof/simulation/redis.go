package simulation

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// redis holds hints, as badly as it may: it loses, repeats, reorders and
// invents them, and everything in it goes at times.
type redis struct {
	hints      []hint
	away       bool
	generation int
}

type hint struct {
	at time.Time
	id uuid.UUID
}

func (r *redis) publish(w *world, ids []uuid.UUID, delay time.Duration) {
	if r.away {
		return
	}
	for _, id := range ids {
		copies := 1
		if w.faulty && w.oneIn(12) {
			copies = w.intn(3) // none, one or two
		}
		for range copies {
			r.hints = append(r.hints, hint{at: w.now.Add(delay), id: id})
		}
	}
	if w.faulty && w.oneIn(40) {
		r.hints = append(r.hints, hint{at: w.now, id: r.invented(w)})
	}
}

// invented names an unknown execution, or a finished one.
func (r *redis) invented(w *world) uuid.UUID {
	if n := len(w.db.finished); n > 0 && w.oneIn(2) {
		return w.db.finished[w.intn(n)].ID
	}
	return w.id()
}

// take hands out up to n hints, any of them.
func (r *redis) take(w *world, n int) (ids []uuid.UUID) {
	if r.away {
		return nil
	}
	for tries := 0; tries < 4 && len(ids) < n && len(r.hints) > 0; tries++ {
		i := w.intn(len(r.hints))
		if r.hints[i].at.After(w.now) {
			continue
		}
		ids = append(ids, r.hints[i].id)
		r.hints = slices.Delete(r.hints, i, i+1)
	}
	return ids
}

func (r *redis) wipe() {
	r.hints = nil
	r.generation++
}
