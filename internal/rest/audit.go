package rest

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/audit"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/fault/suggest"
	"github.com/scheduler-service/scheduler/internal/ratelimit"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
	"github.com/scheduler-service/scheduler/internal/turn"
)

// verifiedAtOnce bounds the changes of one shard that a request verifies, as
// the contract states it.
const verifiedAtOnce = 10_000

// verifiers bounds the requests that verify at a time in one process: each
// reads up to 80,000 changes, and a tenant may ask as often as for anything else.
const verifiers = 2

// record makes the changes of a request be recorded as its caller's. It is the
// one place that names callers: who may change something came through it.
func record(ctx context.Context, r *http.Request, c *call) context.Context {
	address := r.RemoteAddr
	if c.from.IsValid() {
		address = c.from.String() // as trusted proxies tell it, and nobody else
	}
	return audit.With(ctx, audit.Call{
		Kind: kindOf(c), Actor: c.who.Actor.Subject, Address: address, Request: c.id, Action: c.operation.ID,
		Executions: strings.Contains(r.URL.Path, "/executions/"),
	})
}

// The audit log has at most one refused call of a caller in a minute, and so many
// of a tenant, whatever an attacker sends: these are the limits of requests, and
// what is beside them is counted and in the process's log.
const deniedPerMinute = 30

// denied records a call that was refused to somebody whose tenant is known: what,
// by whom, from where and why. A caller without a good token or key names no tenant.
func (s *server) denied(ctx context.Context, c *call, err error) {
	kind := fault.KindOf(err)
	if c.who.Actor.TenantID == uuid.Nil || kind != fault.Unauthenticated && kind != fault.Forbidden {
		return
	}
	id := c.who.Actor.TenantID.String()
	if !s.Buckets.Take(ctx, "denied:"+id+" "+c.who.Actor.Subject, ratelimit.Rate{Requests: 1, Window: time.Minute}).OK ||
		!s.Buckets.Take(ctx, "denials:"+id, ratelimit.Rate{Requests: deniedPerMinute, Window: time.Minute}).OK {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if failure := s.Audit.Deny(turn.Login(ctx), c.who.Actor, c.operation.ID, asFault(err).Message); failure != nil {
		s.Log.WarnContext(ctx, "a refused call is not in the audit log", "error", failure)
	}
}

func kindOf(c *call) string {
	switch {
	case c.operation.Permission == contract.Service:
		return audit.Service
	case c.who.Scopes != nil:
		return audit.APIKey
	default:
		return audit.User
	}
}

// ListAudit is GET /audit.
func (s *server) ListAudit(ctx context.Context, request api.ListAuditRequestObject) (api.ListAuditResponseObject, error) {
	c, p := callOf(ctx), request.Params
	page, err := s.openPage(c, p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	fields := disordered("to", p.From, p.To)
	if known := s.actions(); p.Action != nil && !slices.Contains(known, *p.Action) {
		fields = append(fields, fault.Field{Path: "action", Rule: "enum", Message: suggest.OneOf(*p.Action, known)})
	}
	if len(fields) > 0 {
		return nil, wrong(fields...)
	}
	filter := audit.Filter{
		Actor: orZero(p.Actor), Action: orZero(p.Action), ObjectType: string(orZero(p.ObjectType)), ObjectID: orZero(p.ObjectID),
		From: p.From, To: p.To, Limit: page.limit,
	}
	if page.after != nil {
		filter.After = &audit.Position{At: page.after.At}
		if _, err := fmt.Sscanf(page.after.Text, "%d.%d", &filter.After.Shard, &filter.After.Seq); err != nil {
			return nil, fmt.Errorf("read a cursor of the audit log: %w", err)
		}
	}
	list, after, err := s.Audit.List(ctx, c.who.Actor, filter)
	if err != nil {
		return nil, err
	}
	var next *string
	if after != nil {
		next = s.onward(page, &cursor.Place{At: after.At, Text: strconv.Itoa(after.Shard) + "." + strconv.FormatInt(after.Seq, 10)})
	}
	answer := api.ListAudit200JSONResponse{Items: make([]api.AuditEntry, len(list)), NextCursor: next, HasMore: next != nil}
	for i, e := range list {
		answer.Items[i] = api.AuditEntry{
			Shard: e.Shard, Seq: e.Seq, At: e.At, ActorKind: api.AuditEntryActorKind(e.ActorKind), Actor: e.Actor, Address: e.Address,
			RequestID: e.RequestID, Action: e.Action, ObjectType: api.AuditObjectType(e.ObjectType), ObjectID: e.ObjectID,
			Change: api.AuditEntryChange(e.Change), Before: rawOrNull(e.Before), After: rawOrNull(e.After), Hash: hex.EncodeToString(e.Hash),
		}
	}
	return answer, nil
}

// actions are what is recorded, in order: the operations, of which each may be
// refused, and what the database says of a change that no request made.
func (s *server) actions() []string {
	actions := []string{"create", "delete", "update"}
	for _, operation := range s.contract.Operations() {
		actions = append(actions, operation.ID)
	}
	slices.Sort(actions)
	return actions
}

// VerifyAudit is GET /audit/verify.
func (s *server) VerifyAudit(ctx context.Context, request api.VerifyAuditRequestObject) (api.VerifyAuditResponseObject, error) {
	var from []audit.Link
	given := map[int]bool{}
	for i, text := range orZero(request.Params.Anchor) {
		link, err := audit.ParseLink(text)
		field := fault.Field{Path: fmt.Sprintf("anchor[%d]", i), Rule: "anchor"}
		if err != nil {
			field.Message = err.Error()
		} else if given[link.Shard] {
			field.Message = "is a second one of its shard"
		}
		if field.Message != "" {
			return nil, wrong(field)
		}
		given[link.Shard] = true
		from = append(from, link)
	}
	select {
	case s.verifying <- struct{}{}:
		defer func() { <-s.verifying }()
	case <-ctx.Done():
		return nil, fault.New(fault.Unavailable, "", "other verifications are under way, ask again")
	}
	reports, err := s.Audit.Verify(ctx, callOf(ctx).who.Actor, from, verifiedAtOnce)
	if err != nil {
		return nil, err
	}
	answer := api.VerifyAudit200JSONResponse{Valid: true, Complete: true, Anchors: []string{}, Problems: []api.AuditProblem{}}
	for _, r := range reports {
		answer.Checked += r.Checked
		answer.Complete = answer.Complete && r.Complete
		if p := r.Problem; p != nil {
			answer.Valid = false
			answer.Problems = append(answer.Problems, api.AuditProblem{
				Shard: r.Last.Shard, Seq: p.Seq, Kind: api.AuditProblemKind(p.Kind), Message: p.Message,
			})
		}
		if r.Last.Seq > 0 {
			answer.Anchors = append(answer.Anchors, r.Last.String())
		}
	}
	return answer, nil
}
