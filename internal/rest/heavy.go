package rest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/quota"
)

const (
	// heavyAtOnce is how many heavy requests of one tenant are under way in this
	// process, and heavyShare how many tenants' worth of them in all: 12 of the
	// API's 20 connections, so that others always find one.
	heavyAtOnce = 4
	heavyShare  = 3
	// heavyPatience is how long one more waits for another to end: statistics
	// take milliseconds, and a page may ask for ten at once. It holds nothing
	// meanwhile; of one tenant heavyQueue times as many as run may wait.
	heavyPatience = time.Second
	heavyQueue    = 8
)

// heavy counts the heavy requests that are under way and those that wait.
type heavy struct {
	atOnce int // of a tenant

	mu      sync.Mutex
	total   int
	of      map[uuid.UUID]int
	waiting map[uuid.UUID]int
	left    chan struct{} // closed when one leaves
}

func newHeavy(atOnce int) *heavy {
	return &heavy{atOnce: atOnce, of: map[uuid.UUID]int{}, waiting: map[uuid.UUID]int{}, left: make(chan struct{})}
}

// enter counts one more of a tenant, after others left where as many are under
// way as may be: of the tenant, or of all together. It is not ok where too many
// wait already, or none leaves in time.
func (h *heavy) enter(ctx context.Context, id uuid.UUID) (ok bool) {
	timer := time.NewTimer(heavyPatience)
	defer timer.Stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting[id] >= h.atOnce*heavyQueue {
		return false
	}
	add(h.waiting, id, 1)
	defer add(h.waiting, id, -1)
	for h.of[id] >= h.atOnce || h.total >= h.atOnce*heavyShare {
		left := h.left
		h.mu.Unlock()
		select {
		case <-left:
			ok = true
		case <-timer.C:
			ok = false
		case <-ctx.Done():
			ok = false
		}
		if h.mu.Lock(); !ok {
			return false
		}
	}
	h.total++
	add(h.of, id, 1)
	return true
}

// leave ends what enter began.
func (h *heavy) leave(id uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total--
	add(h.of, id, -1)
	close(h.left)
	h.left = make(chan struct{})
}

// add counts, and forgets who is at zero.
func add(counts map[uuid.UUID]int, id uuid.UUID, n int) {
	if counts[id] += n; counts[id] == 0 {
		delete(counts, id)
	}
}

// ration lets a tenant's heavy requests through, of which only so many may be
// under way. It stands after check: one whose body is slow to arrive needs
// nothing yet, and keeps nobody out.
func (s *server) ration(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := callOf(r.Context()); c.operation.Heavy {
			if !s.heavy.enter(r.Context(), c.tenant.ID) {
				s.refuse(w, r, s.tooHeavy())
				return
			}
			defer s.heavy.leave(c.tenant.ID)
		}
		next.ServeHTTP(w, r)
	})
}

// tooHeavy is the answer where no heavy request may begin.
func (s *server) tooHeavy() error {
	rate := quota.Rate{Quota: s.heavy.atOnce}
	return s.tooMany(rate, "heavyRequestsAtOnce", time.Second, fmt.Sprintf(
		"of bulk calls, batches, statistics, verifications, edits of calendars and backfills, a tenant may have %d under way at once, and all tenants together %d, and none ended within a second: wait for one to end",
		rate.Quota, rate.Quota*heavyShare))
}
