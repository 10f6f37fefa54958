package rest

import (
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
)

// heavy counts the heavy requests that are under way. More are refused and do
// not wait: who waits holds what the answer is about to need.
type heavy struct {
	atOnce int // of a tenant

	mu    sync.Mutex
	total int
	of    map[uuid.UUID]int
}

// enter counts one more of a tenant, unless as many are under way as may be:
// of the tenant, or of all together.
func (h *heavy) enter(id uuid.UUID) (leave func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of[id] >= h.atOnce || h.total >= h.atOnce*heavyShare {
		return nil, false
	}
	h.total++
	h.of[id]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.total--
		if h.of[id]--; h.of[id] == 0 {
			delete(h.of, id)
		}
	}, true
}

// ration lets a tenant's heavy requests through, of which only so many may be
// under way. It stands after check: one whose body is slow to arrive needs
// nothing yet, and keeps nobody out.
func (s *server) ration(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := callOf(r.Context()); c.operation.Heavy {
			leave, ok := s.heavy.enter(c.tenant.ID)
			if !ok {
				s.refuse(w, r, s.tooHeavy())
				return
			}
			defer leave()
		}
		next.ServeHTTP(w, r)
	})
}

// tooHeavy is the answer where no heavy request may begin.
func (s *server) tooHeavy() error {
	rate := quota.Rate{Quota: s.heavy.atOnce}
	return s.tooMany(rate, "heavyRequestsAtOnce", time.Second, fmt.Sprintf(
		"of bulk calls, batches, statistics, verifications, edits of calendars and backfills, a tenant may have %d under way at once, and all tenants together %d: wait for one to end",
		rate.Quota, rate.Quota*heavyShare))
}
