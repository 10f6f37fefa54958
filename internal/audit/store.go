package audit

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// pieceSize is how many entries of a chain are read at a time: some 3 MB, if all
// of them are as large as they may be.
const pieceSize = 100

// Store reads a tenant's record.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store { return &Store{db: db} }

// scanRows is how many entries a page reads at most, whatever its filters leave.
const scanRows = 10_000

// List reads a page of entries, newest first, and where the next one begins; nil:
// nowhere. It reads scanRows entries at most: where the filters leave few of them,
// a page is short, or empty, although there is more.
func (s *Store) List(ctx context.Context, who tenant.Actor, f Filter) (list []Entry, next *Position, err error) {
	p := db.ListAuditEntriesParams{
		TenantID: who.TenantID, BeforeAt: columns.Never, PageSize: int32(f.Limit) + 1, ScanRows: scanRows, FromAt: f.From, ToAt: f.To,
		Actor: columns.OrNull(f.Actor), Action: columns.OrNull(f.Action), ObjectType: columns.OrNull(f.ObjectType), ObjectID: columns.OrNull(f.ObjectID),
	}
	if f.After != nil {
		p.BeforeAt, p.BeforeShard, p.BeforeSeq = f.After.At, int16(f.After.Shard), f.After.Seq
	}
	err = s.db.InList(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.Paged().ListAuditEntries(ctx, p)
		if err != nil {
			return fmt.Errorf("list audit entries: %w", err)
		}
		list, next = pageOf(rows, f.Limit, tx.Cut())
		return nil
	})
	return list, next, err
}

// pageOf takes a page out of the rows that were read, and says where to go on.
func pageOf(rows []db.ListAuditEntriesRow, limit int, cut bool) (list []Entry, next *Position) {
	var last *Position
	for i, r := range rows {
		if r.Fits && len(list) == limit {
			return list, last
		}
		l := r.AuditLog
		last = &Position{At: l.At.UTC(), Shard: int(l.Shard), Seq: l.Seq}
		if r.Fits {
			list = append(list, Entry{
				Shard: int(l.Shard), Seq: l.Seq, At: l.At.UTC(), ActorKind: l.ActorKind, Actor: l.Actor, Address: l.Address, RequestID: l.RequestID, Action: l.Action,
				ObjectType: l.ObjectType, ObjectID: l.ObjectID, Change: l.Change, Before: shown(l.Before), After: shown(l.After), Hash: l.Hash,
			})
		}
		if r.Number == scanRows || cut && i == len(rows)-1 {
			return list, last
		}
	}
	return list, nil
}

// maxReason bounds what is kept of why a call was refused.
const maxReason = 500

// Deny records that a call was refused, as the call of the context. The row that
// the trigger sees is gone with the transaction.
func (s *Store) Deny(ctx context.Context, who tenant.Actor, operation, reason string) error {
	return s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		known, err := tx.TenantExists(ctx, who.TenantID)
		if err != nil || !known {
			return err
		}
		id, err := tx.InsertDeniedCall(ctx, db.InsertDeniedCallParams{TenantID: who.TenantID, Operation: operation, Reason: reason[:min(len(reason), maxReason)]})
		if err != nil {
			return fmt.Errorf("record a refused call: %w", err)
		}
		return tx.DeleteDeniedCall(ctx, db.DeleteDeniedCallParams{TenantID: who.TenantID, ID: id})
	})
}

// Verify follows each shard of a tenant's record, from a link of it where one
// is given and otherwise from its beginning, over at most so many entries. A link
// that is given must be in the record as it is given.
func (s *Store) Verify(ctx context.Context, who tenant.Actor, from []Link, most int) ([]Report, error) {
	reports := begin(from)
	for i := range reports {
		r := &reports[i]
		for r.Problem == nil && !r.Complete && r.Checked < most {
			err := s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
				return piece(ctx, tx.Queries, who.TenantID, r, min(pieceSize, most-r.Checked)+1)
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return reports, nil
}

// begin is one report for each shard, at the links from which to go on.
func begin(from []Link) []Report {
	reports := make([]Report, shards)
	for shard := range reports {
		reports[shard].Last = Link{Shard: shard}
	}
	for _, link := range from {
		reports[link.Shard].Last = link
	}
	return reports
}

// piece checks the next entries after what a report holds. The first of them
// is the last one of the piece before, or the anchor.
func piece(ctx context.Context, q *db.Queries, tenant uuid.UUID, r *Report, size int) error {
	rows, err := q.ListAuditLinks(ctx, db.ListAuditLinksParams{TenantID: tenant, Shard: int16(r.Last.Shard), FromSeq: max(r.Last.Seq, 1), PageSize: int32(size)})
	if err != nil {
		return fmt.Errorf("read the audit chain: %w", postgres.Fault(err))
	}
	r.Head = Link{Shard: r.Last.Shard, Seq: rows[0].HeadSeq, Hash: rows[0].HeadHash}
	entries := make([]entry, 0, len(rows))
	for _, row := range rows {
		if row.Seq != 0 {
			entries = append(entries, fromLink(tenant, r.Last.Shard, row))
		}
	}
	from, removed, problem := start(r.Last, Link{Shard: r.Last.Shard, Seq: rows[0].AnchorSeq, Hash: rows[0].AnchorHash}, rows[0].AnchorRecord)
	if r.Problem = problem; problem != nil {
		return nil
	}
	kept := from.Seq > 0 && !removed
	last, checked, problem := follow(from, kept, entries)
	if r.Problem = problem; problem != nil {
		return nil
	}
	if kept && len(entries) == 0 {
		r.Problem = &Problem{r.Last.Seq, "cut", fmt.Sprintf("the chain ends before entry %d", r.Last.Seq)}
		return nil
	}
	if kept && r.Checked > 0 {
		checked-- // the last one of the piece before
	}
	r.Last, r.Checked = last, r.Checked+checked
	if len(entries) < size {
		r.Problem = ended(last, r.Head)
		r.Complete = r.Problem == nil
	}
	return nil
}

// start is the link from which a shard is followed: the anchor of what retention
// removed, where the link that was asked for is the beginning or lies before that.
// The record of the anchor is an entry of the log.
func start(asked, anchor Link, record string) (from Link, removed bool, problem *Problem) {
	switch {
	case asked.Seq > anchor.Seq || anchor.Seq == 0:
		return asked, false, nil
	case !anchor.is(record):
		return asked, true, &Problem{anchor.Seq, "removed", fmt.Sprintf("the entries up to %d are gone, and the log does not say that they were removed", anchor.Seq)}
	case asked.Seq == anchor.Seq && !bytes.Equal(asked.Hash, anchor.Hash):
		return asked, true, &Problem{asked.Seq, "anchor", fmt.Sprintf("entry %d is not the one that was anchored", asked.Seq)}
	}
	return anchor, true, nil
}

func fromLink(tenant uuid.UUID, shard int, r db.ListAuditLinksRow) entry {
	return entry{
		Entry: Entry{
			Shard: shard, Seq: r.Seq, At: r.At, ActorKind: r.ActorKind, Actor: r.Actor, Address: r.Address, RequestID: r.RequestID, Action: r.Action,
			ObjectType: r.ObjectType, ObjectID: r.ObjectID, Change: r.Change, Hash: r.Hash,
		},
		tenant: tenant, before: r.Before, after: r.After, previous: r.PrevHash,
	}
}

// VerifyAll follows every record to its end, as the engine, and tells what it
// found of each shard. Links that somebody kept must be in their tenant's
// record; one whose record is gone is told too.
func VerifyAll(ctx context.Context, d *postgres.DB, anchors map[uuid.UUID][]Link, tell func(tenant uuid.UUID, r Report)) error {
	q := db.New(d.Pool())
	tenants, err := q.ListAuditChains(ctx)
	if err != nil {
		return fmt.Errorf("list audit chains: %w", postgres.Fault(err))
	}
	for id := range anchors {
		if !slices.Contains(tenants, id) {
			tenants = append(tenants, id)
		}
	}
	for _, id := range tenants {
		for _, r := range begin(nil) {
			if err := toEnd(ctx, q, id, &r, anchors[id]); err != nil {
				return err
			}
			tell(id, r)
		}
	}
	return nil
}

// toEnd follows a shard to its end and looks for its anchors in it.
func toEnd(ctx context.Context, q *db.Queries, tenant uuid.UUID, r *Report, anchors []Link) error {
	for r.Problem == nil && !r.Complete {
		if err := piece(ctx, q, tenant, r, pieceSize); err != nil {
			return err
		}
	}
	for _, link := range anchors {
		if r.Problem != nil || link.Shard != r.Last.Shard {
			continue
		}
		at := Report{Last: link}
		if err := piece(ctx, q, tenant, &at, 1); err != nil {
			return err
		}
		r.Problem = at.Problem
	}
	return nil
}
