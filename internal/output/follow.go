package output

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

const (
	// followersEach and followersAll bound the followers of one tenant and of all, in one
	// process.
	followersEach = 200
	followersAll  = 2000
	// pollEvery is the distance between two polls of what is followed. An execution that has
	// written nothing for quietAfter is polled every pollQuiet.
	pollEvery  = 250 * time.Millisecond
	quietAfter = 10 * time.Second
	pollQuiet  = time.Second
	// pollChunks is how many chunks of one execution a poll reads.
	pollChunks = 4
	// pollsAtOnce is for how many tenants one poll asks at once. A tenant whose poll failed,
	// because its own requests hold its connections, is asked again after putOffFor: it
	// delays the others for as long as a request waits for a connection, and seldom.
	pollsAtOnce = 4
	putOffFor   = 5 * time.Second
)

// Hub polls the output of executions that somebody follows: each execution once, however many
// follow it, and all of a tenant in one statement. Between polls it holds no connection.
type Hub struct {
	store *Store
	woken chan struct{}

	mu      sync.Mutex
	topics  map[uuid.UUID]*topic
	tenants map[uuid.UUID]int // followers of each
	putOff  map[uuid.UUID]clock.Mark
	all     int
}

// topic is a followed execution. Its lines from one position to another are those that the last
// poll found; a follower that is further behind reads for itself.
type topic struct {
	who       tenant.Actor
	id        uuid.UUID
	followers int
	from, to  Position
	lines     []Line
	ended     bool          // there is nothing after to
	changed   chan struct{} // closed by the next change
	quiet     clock.Mark    // since it wrote last
	polled    clock.Mark
	fresh     bool // was not polled yet
}

// NewHub makes a hub that nobody follows.
func NewHub(db *postgres.DB) *Hub {
	return &Hub{store: NewStore(db), woken: make(chan struct{}, 1), topics: map[uuid.UUID]*topic{}, tenants: map[uuid.UUID]int{}, putOff: map[uuid.UUID]clock.Mark{}}
}

// Pass is the hub's line in the table of passes of its process. It rests while nobody follows.
func (h *Hub) Pass() loop.Pass {
	return loop.Pass{Name: "follow-output", Every: time.Hour, Called: h.woken, Do: func(ctx context.Context, turn *loop.Turn) error {
		more, err := h.Poll(ctx)
		if more {
			turn.Again(pollEvery)
		}
		return err
	}}
}

// Poll polls once. More says that somebody follows.
func (h *Hub) Poll(ctx context.Context) (more bool, err error) {
	due, more := h.due()
	failed, places := make(chan error, len(due)), make(chan struct{}, pollsAtOnce)
	for who, from := range due {
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			failed <- h.pollTenant(ctx, who, from)
		}()
	}
	for range due {
		err = errors.Join(err, <-failed)
	}
	return more, err
}

func (h *Hub) pollTenant(ctx context.Context, who uuid.UUID, from map[uuid.UUID]Position) error {
	all, err := poll(ctx, h.store.db, who, from)
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.putOff[who] = clock.Start()
		return err
	}
	h.tell(all, from)
	return nil
}

// due returns the positions from which to poll, by tenant.
func (h *Hub) due() (by map[uuid.UUID]map[uuid.UUID]Position, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	by = map[uuid.UUID]map[uuid.UUID]Position{}
	maps.DeleteFunc(h.putOff, func(_ uuid.UUID, failed clock.Mark) bool { return failed.Elapsed() >= putOffFor })
	for id, t := range h.topics {
		if _, waits := h.putOff[t.who.TenantID]; waits || t.ended || !t.fresh && t.quiet.Elapsed() > quietAfter && t.polled.Elapsed() < pollQuiet {
			continue
		}
		if by[t.who.TenantID] == nil {
			by[t.who.TenantID] = map[uuid.UUID]Position{}
		}
		by[t.who.TenantID][id], t.polled, t.fresh = t.to, clock.Start(), false
	}
	return by, len(h.topics) > 0
}

// tell hands what a poll found to those that follow.
func (h *Hub) tell(all map[uuid.UUID]found, from map[uuid.UUID]Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, f := range all {
		t := h.topics[id]
		if t == nil || t.to != from[id] {
			continue // it was left, and followed again elsewhere
		}
		t.ended = !f.active && f.chunks < pollChunks
		if len(f.lines) > 0 {
			t.from, t.to, t.lines, t.quiet = t.to, f.lines[len(f.lines)-1].Position(), f.lines, clock.Start()
		}
		if len(f.lines) > 0 || t.ended {
			close(t.changed)
			t.changed = make(chan struct{})
		}
	}
}

// Follower reads the output of one execution as it is written.
type Follower struct {
	hub   *Hub
	topic *topic
}

// Follow begins to follow an execution after a position. The error is TooMany where the tenant,
// or all tenants, follow as many as this process allows.
func (h *Hub) Follow(who tenant.Actor, id uuid.UUID, after Position) (*Follower, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.tenants[who.TenantID] >= followersEach:
		return nil, tooMany(followersEach, "a tenant may have %d followers of output in each API process, which is fixed")
	case h.all >= followersAll:
		return nil, tooMany(followersAll, "each API process serves %d followers of output, which is fixed")
	}
	t := h.topics[id]
	if t == nil {
		t = &topic{who: who, id: id, from: after, to: after, changed: make(chan struct{}), quiet: clock.Start(), fresh: true}
		h.topics[id] = t
		signal(h.woken)
	}
	t.followers++
	h.tenants[who.TenantID]++
	h.all++
	return &Follower{hub: h, topic: t}, nil
}

func tooMany(most int, message string) error {
	e := fault.New(fault.TooMany, fault.CodeRateLimited, fmt.Sprintf(message, most)+": wait for one to end")
	e.RetryAfter, e.Limit = time.Minute, &fault.Limit{Name: "logFollowersAtOnce", Value: int64(most)}
	return e
}

// Close ends following.
func (f *Follower) Close() {
	h, t := f.hub, f.topic
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all--
	if h.tenants[t.who.TenantID]--; h.tenants[t.who.TenantID] == 0 {
		delete(h.tenants, t.who.TenantID)
	}
	if t.followers--; t.followers == 0 {
		delete(h.topics, t.id)
	}
}

// Next returns lines after a position, and the position that it came to. Without any, ended says
// that none will come, and otherwise changed is closed when there may be some.
func (f *Follower) Next(ctx context.Context, after Position) (lines []Line, to Position, ended bool, changed <-chan struct{}, err error) {
	f.hub.mu.Lock()
	t := *f.topic
	f.hub.mu.Unlock()
	if after.Before(t.from) {
		lines, to, _, err = f.hub.store.List(ctx, t.who, t.id, Filter{After: after, Limit: 500})
		if len(lines) > 0 || err != nil {
			return lines, to, false, nil, err
		}
		after = t.from // retention removed what was before it
	}
	for i, l := range t.lines {
		if after.Before(l.Position()) {
			return t.lines[i:], t.to, false, nil, nil
		}
	}
	return nil, after, t.ended, t.changed, nil
}
