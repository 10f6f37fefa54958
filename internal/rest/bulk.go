package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

const (
	// maxBulk bounds what one call acts on, as the contract states it.
	maxBulk = 1000
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
	// act does it, and says which execution it made, if any.
	act func(id uuid.UUID) (*uuid.UUID, error)
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
	result := api.BulkResult{DryRun: b.dryRun, NextCursor: nullable.NewNullNullable[string]()}
	result.Done, result.Faults = slices.Grow(result.Done, 1), slices.Grow(result.Faults, 1) // empty, not null
	targets, p, next, err := s.targets(ctx, b)
	if err != nil {
		return result, err
	}
	began, over := clock.Start(), false
	for i, one := range targets {
		if over = over || began.Elapsed() > bulkPatience || ctx.Err() != nil; over && b.ids == nil {
			if i == 0 {
				return result, fault.New(fault.Unavailable, "", "nothing was done in time: try again")
			}
			next = &targets[i-1].place
			break
		}
		var made *uuid.UUID
		switch {
		case over:
			err = fault.New(fault.Unavailable, fault.CodeNotReached, "the call took too long: send it again")
		case b.dryRun && b.ids == nil: // it was just found
			err = nil
		case b.dryRun:
			err = b.look(one.id)
		default:
			made, err = b.act(one.id)
		}
		if err == nil {
			result.Done = append(result.Done, doneItem(one.id, made))
			continue
		}
		f, itsOwn := itemFault(err)
		if !itsOwn && !over {
			over = true // what ails the service ails the next one too
			s.Log.WarnContext(ctx, "bulk call cut short", "error", err)
		}
		result.Faults = append(result.Faults, faultItem(one.id, f))
	}
	if next != nil {
		result.NextCursor.Set(s.cursors.Encode(p.list, *next))
	}
	return result, nil
}

func doneItem(id uuid.UUID, made *uuid.UUID) (item struct {
	ExecutionID nullable.Nullable[uuid.UUID] `json:"executionId"`
	ID          uuid.UUID                    `json:"id"`
},
) {
	item.ID, item.ExecutionID = id, orNull(made)
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

// targets are the things that are asked for, by id or by filter.
func (s *server) targets(ctx context.Context, b bulk) (targets []target, p page, next *cursor.Place, err error) {
	switch {
	case (b.ids == nil) == (b.filter == nil):
		return nil, p, nil, wrong(fault.Field{Path: "ids", Rule: "required", Message: onlyOne})
	case b.ids != nil && b.cursor != nil:
		return nil, p, nil, wrong(fault.Field{Path: "cursor", Rule: "unexpected", Message: "is for a filter, or for all"})
	case b.ids != nil:
		for _, id := range b.ids {
			targets = append(targets, target{id: id})
		}
		return targets, p, nil, nil
	}
	raw, err := json.Marshal(b.filter)
	if err != nil {
		return nil, p, nil, fmt.Errorf("write the filter: %w", err)
	}
	c := callOf(ctx)
	p = page{list: cursor.List{Tenant: c.who.Actor.TenantID, Route: c.url.Path, Filters: string(raw)}, limit: maxBulk}
	override(&p.limit, b.limit)
	if b.cursor != nil {
		place, err := s.cursors.Decode(p.list, *b.cursor)
		if err != nil {
			return nil, p, nil, wrong(fault.Field{Path: "cursor", Rule: "cursor", Message: "is not a cursor of this filter"})
		}
		p.after = &place
	}
	targets, next, err = b.find(p)
	return targets, p, next, err
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
