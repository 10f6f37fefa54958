package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

const (
	// maxBulk bounds what one call acts on thing by thing, and what an answer names.
	// maxSet bounds what it acts on by statements over many.
	maxBulk, maxSet = 1000, 100_000
	// bulkLanes is how many pieces of a call are under way at once: less than a tenant
	// may hold connections.
	bulkLanes = 4
	// bulkPatience is when a call begins nothing more; well below patience.
	bulkPatience = 8 * time.Second
	onlyOne      = "give exactly one of ids, filter and all"
)

// everything stands for the filter of a call that asks for all.
type everything struct {
	All bool `json:"all"`
}

// bulk is one call that acts on many things, each for itself.
type bulk struct {
	ids    []uuid.UUID
	dryRun bool
	// filter is what selects the things where no ids are given, everything where
	// all are asked for; nil is none.
	filter any
	limit  *int
	cursor *string
	// find reads a page of what the filter selects, and where the next one begins;
	// nil: nowhere.
	find func(p page) ([]target, *cursor.Place, error)
	// look finds out whether a thing is there.
	look func(id uuid.UUID) error
	// act does it to one, and says which execution it made, if any; nil: set does it.
	act func(id uuid.UUID) (*uuid.UUID, error)
	// set does it to a piece of things by a few statements. An error says that nothing
	// is known of any of them.
	set func(ids []uuid.UUID) (refused map[uuid.UUID]error, err error)
}

// target is a thing that a filter selected.
type target struct {
	id    uuid.UUID
	place cursor.Place
}

// choose keeps what selects the things: nothing where ids are given.
func choose[F any](b *bulk, filter *F, all bool) error {
	switch {
	case all && (filter != nil || b.ids != nil):
		return wrong(fault.Field{Path: "all", Rule: "unexpected", Message: onlyOne})
	case all:
		b.filter = everything{All: true}
	case filter != nil:
		b.filter = *filter
	}
	return nil
}

// orRun runs a call by ids, unless it was refused already.
func (s *server) orRun(ctx context.Context, b bulk, err error) (api.BulkResult, error) {
	if err != nil {
		return api.BulkResult{}, err
	}
	return s.run(ctx, b)
}

// run acts on everything that is asked for, until it takes too long.
func (s *server) run(ctx context.Context, b bulk) (api.BulkResult, error) {
	result := api.BulkResult{DryRun: b.dryRun}
	result.Done, result.Faults = slices.Grow(result.Done, 1), slices.Grow(result.Faults, 1) // empty, not null
	p, err := s.bulkPage(ctx, b)
	if err != nil {
		return result, err
	}
	r := bulkRun{bulk: b, result: &result, began: clock.Start(), log: s.Log}
	if b.ids != nil {
		for _, one := range r.actOn(ctx, b.ids) {
			r.note(one)
		}
		return result, nil
	}
	next, err := r.walk(ctx, p)
	if err == nil && next != nil {
		result.NextCursor = new(s.cursors.Encode(p.list, *next))
	}
	return result, err
}

// bulkRun is a bulk call that is under way.
type bulkRun struct {
	bulk
	result *api.BulkResult
	began  clock.Mark
	log    *slog.Logger
	over   atomic.Bool // it begins nothing more
}

// outcome is what came of one thing.
type outcome struct {
	id   uuid.UUID
	made *uuid.UUID // the execution that was made for it
	err  error
}

// errNotReached is of a thing that the call did not come to.
var errNotReached = fault.New(fault.Unavailable, fault.CodeNotReached, "the call took too long: send it again")

// late says that the call has to end.
func (r *bulkRun) late(ctx context.Context) bool {
	if r.began.Elapsed() > bulkPatience || ctx.Err() != nil {
		r.over.Store(true)
	}
	return r.over.Load()
}

// walk acts on what the filter selects, page by page, and says from where another call
// has to go on; nil: nothing is left.
func (r *bulkRun) walk(ctx context.Context, p page) (next *cursor.Place, err error) {
	for left := p.limit; left > 0; {
		if r.late(ctx) {
			return p.after, nil
		}
		p.limit = min(left, bulkLanes*job.Piece)
		targets, after, err := r.find(p)
		if err != nil {
			return nil, err
		}
		ids := make([]uuid.UUID, len(targets))
		for i, one := range targets {
			ids[i] = one.id
		}
		if first := r.noteAll(r.actOn(ctx, ids)); first < len(ids) {
			switch {
			case r.result.DoneCount+r.result.FaultCount == 0:
				return nil, fault.New(fault.Unavailable, "", "nothing was done in time: try again")
			case first == 0:
				return p.after, nil
			}
			return &targets[first-1].place, nil
		}
		if after == nil {
			return nil, nil
		}
		left, p.after = left-len(targets), after
	}
	return p.after, nil
}

// noteAll adds to the answer what came of things, and says which was the first that was
// not reached, if any: a call that goes on begins with it, and may repeat others behind.
func (r *bulkRun) noteAll(outcomes []outcome) (first int) {
	first = len(outcomes)
	for i, one := range outcomes {
		if one.err == errNotReached {
			first = min(first, i)
			continue
		}
		r.note(one)
	}
	return first
}

// actOn acts on things, in pieces at once where the verb can.
func (r *bulkRun) actOn(ctx context.Context, ids []uuid.UUID) []outcome {
	outcomes := make([]outcome, len(ids))
	if r.set == nil || r.dryRun {
		for i, id := range ids {
			outcomes[i] = r.actOnOne(ctx, id)
		}
		return outcomes
	}
	var group errgroup.Group
	group.SetLimit(bulkLanes)
	for from := 0; from < len(ids); from += job.Piece {
		to := min(from+job.Piece, len(ids))
		group.Go(func() error { r.actOnPiece(ctx, ids[from:to], outcomes[from:to]); return nil })
	}
	_ = group.Wait() // no piece answers an error
	return outcomes
}

// actOnPiece acts on a piece, or reaches none of it: a verb may be repeated.
func (r *bulkRun) actOnPiece(ctx context.Context, ids []uuid.UUID, outcomes []outcome) {
	var refused map[uuid.UUID]error
	err := error(errNotReached)
	if !r.late(ctx) {
		if refused, err = r.safely(ids); err != nil {
			r.over.Store(true)
			r.log.WarnContext(ctx, "bulk call cut short", "error", err)
		}
	}
	for i, id := range ids {
		if outcomes[i] = (outcome{id: id, err: refused[id]}); err != nil {
			outcomes[i].err = errNotReached
		}
	}
}

// safely is set for a goroutine of its own, whose panic nobody else recovers.
func (r *bulkRun) safely(ids []uuid.UUID) (refused map[uuid.UUID]error, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return r.set(ids)
}

func (r *bulkRun) actOnOne(ctx context.Context, id uuid.UUID) (o outcome) {
	o.id = id
	switch {
	case r.late(ctx):
		o.err = errNotReached
	case r.dryRun && r.ids == nil: // it was just found
	case r.dryRun:
		o.err = r.look(id)
	default:
		o.made, o.err = r.act(id)
	}
	if _, itsOwn := itemFault(o.err); o.err != nil && !itsOwn && !r.over.Swap(true) {
		r.log.WarnContext(ctx, "bulk call cut short", "error", o.err) // what ails the service ails the next one too
	}
	return o
}

// note adds what came of one thing to the answer, which names so many at most.
func (r *bulkRun) note(o outcome) {
	if o.err == nil {
		if r.result.DoneCount++; r.result.DoneCount <= maxBulk {
			r.result.Done = append(r.result.Done, doneItem(o.id, o.made))
		}
		return
	}
	if r.result.FaultCount++; r.result.FaultCount <= maxBulk {
		f, _ := itemFault(o.err)
		r.result.Faults = append(r.result.Faults, faultItem(o.id, f))
	}
}

func doneItem(id uuid.UUID, made *uuid.UUID) (item struct {
	ExecutionID *uuid.UUID `json:"executionId"`
	ID          uuid.UUID  `json:"id"`
},
) {
	item.ID, item.ExecutionID = id, made
	return item
}

func faultItem(id uuid.UUID, f *fault.Error) (item struct {
	Code    string    `json:"code"`
	ID      uuid.UUID `json:"id"`
	Message string    `json:"message"`
},
) {
	_, code := answerTo(f)
	item.ID, item.Code, item.Message = id, string(code), f.Message
	return item
}

// itemFault is what is said of one thing, and whether it is about that thing.
func itemFault(err error) (f *fault.Error, itsOwn bool) {
	if !errors.As(err, &f) || f.Kind == fault.Internal || f.Kind > fault.Unavailable {
		return fault.New(fault.Internal, "", "something went wrong on our side"), false
	}
	return f, f.Kind != fault.Unavailable
}

// bulkPage checks how the things are asked for, and is where a call by filter begins.
func (s *server) bulkPage(ctx context.Context, b bulk) (p page, err error) {
	most := maxBulk
	if b.set != nil {
		most = maxSet
	}
	switch {
	case (b.ids == nil) == (b.filter == nil):
		return p, wrong(fault.Field{Path: "ids", Rule: "required", Message: onlyOne})
	case b.ids != nil && b.cursor != nil:
		return p, wrong(fault.Field{Path: "cursor", Rule: "unexpected", Message: "only works with filter or all"})
	case orZero(b.limit) > most:
		return p, wrong(fault.Field{Path: "limit", Rule: "maximum", Message: fmt.Sprintf("is at most %d for this verb", most)})
	case b.ids != nil:
		return p, nil
	}
	raw, err := json.Marshal(b.filter)
	if err != nil {
		return p, fmt.Errorf("write the filter: %w", err)
	}
	c := callOf(ctx)
	p = page{list: cursor.List{Tenant: c.who.Actor.TenantID, Route: c.url.Path, Filters: string(raw)}, limit: maxBulk}
	override(&p.limit, b.limit)
	if b.cursor != nil {
		place, err := s.cursors.Decode(p.list, *b.cursor)
		if err != nil {
			return p, wrong(fault.Field{Path: "cursor", Rule: "cursor", Message: "is not a cursor of this filter"})
		}
		p.after = &place
	}
	return p, nil
}

// itemKey is the idempotency key of one thing in a call: the call's own, bound
// to what is acted on, so that a call that continues may bear the same.
func itemKey(value *string, route string, id uuid.UUID) idempotency.Key {
	if value == nil {
		return idempotency.Key{}
	}
	sum := sha256.Sum256([]byte(*value + "\n" + id.String()))
	return idempotency.Key{Value: "bulk-" + hex.EncodeToString(sum[:16]), Route: route + " " + id.String()}
}
