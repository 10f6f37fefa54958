package dispatch

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Config is what the statements must know of a process.
type Config struct {
	// TenantMaxRunning is how many executions a tenant may run at once where it has
	// no limit of its own; 0: any number. The same in every process. nil: any number.
	TenantMaxRunning func() int
	// LeftTypes are the job types that this worker leaves to others.
	LeftTypes []string
}

// Store moves executions of all tenants, as postgres.Engine.
type Store struct {
	db         *postgres.DB
	maxRunning func() int32
	leftTypes  []string // never nil: no type differs from all of NULL
	// limitedClaims counts the claims that lock jobs.
	limitedClaims atomic.Uint64
}

// NewStore makes a store.
func NewStore(db *postgres.DB, c Config) *Store {
	maxRunning := func() int32 { return 0 }
	if c.TenantMaxRunning != nil {
		maxRunning = func() int32 { return int32(c.TenantMaxRunning()) }
	}
	return &Store{db: db, maxRunning: maxRunning, leftTypes: append([]string{}, c.LeftTypes...)}
}

func (s *Store) queries() *db.Queries { return db.New(s.db.Pool()) }

// Next lists executions that may start now that runs ended. Of those in the pool, which a
// limit of their tenant left behind, a caller that polls itself wants only those that its
// polls leave to others, unless others of the tenant, whose slot or key is free, want the same room. A zero now means the database's clock.
func (s *Store) Next(ctx context.Context, now time.Time, ends []Freed, polls bool) ([]Waiting, error) {
	p := db.ListNextExecutionsParams{
		Now: postgres.At(now), MaxRunning: s.maxRunning(), WindowSize: nextWindow, Most: nextMost, TenantIds: []uuid.UUID{}, KeyTenantIds: []uuid.UUID{}, Keys: []string{},
	}
	if polls {
		p.LeftTypes = s.leftTypes
	}
	seen := map[uuid.UUID]bool{uuid.Nil: true}
	for _, f := range ends {
		if !seen[f.Tenant] {
			seen[f.Tenant] = true
			p.TenantIds = append(p.TenantIds, f.Tenant)
		}
		if f.Key != "" {
			p.KeyTenantIds, p.Keys = append(p.KeyTenantIds, f.KeyTenant), append(p.Keys, f.Key)
		}
	}
	if len(p.TenantIds)+len(p.Keys) == 0 {
		return nil, nil
	}
	rows, err := s.queries().ListNextExecutions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list the next in line: %w", postgres.Fault(err))
	}
	out := make([]Waiting, len(rows))
	for i, r := range rows {
		out[i] = Waiting{ID: r.ID, Priority: int(r.Priority), JobType: r.JobType}
	}
	return out, nil
}

// freed says for whom a row makes room.
func freed(backlogged bool, tenant uuid.UUID, key *string) (f Freed) {
	if backlogged {
		f.Tenant = tenant
	}
	if key != nil {
		f.Key, f.KeyTenant = *key, tenant
	}
	return f
}
