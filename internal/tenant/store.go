package tenant

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// admitFor is how long an admission is remembered. A suspended tenant is
// therefore refused within this time.
const admitFor = 5 * time.Second

// maxRemembered bounds the memory of admissions.
const maxRemembered = 10_000

// Store admits tenants. Its methods may be called concurrently.
type Store struct {
	db         *postgres.DB
	autoCreate bool

	mu       sync.Mutex
	admitted map[uuid.UUID]clock.Mark
}

// NewStore makes a store. With autoCreate, a tenant that a valid token names
// and that is not known yet is created.
func NewStore(db *postgres.DB, autoCreate bool) *Store {
	return &Store{db: db, autoCreate: autoCreate, admitted: map[uuid.UUID]clock.Mark{}}
}

// Admit reports whether the tenant may act: Forbidden when it is not known or
// suspended.
func (s *Store) Admit(ctx context.Context, id uuid.UUID) error {
	if s.remembered(id) {
		return nil
	}
	err := s.db.InTenant(ctx, id, func(tx *postgres.Tx) error {
		status, err := tx.GetTenantStatus(ctx, id)
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound && s.autoCreate {
			status, err = "active", tx.InsertTenant(ctx, db.InsertTenantParams{TenantID: id, Name: id.String()})
		}
		switch {
		case fault.KindOf(postgres.Fault(err)) == fault.NotFound:
			return fault.New(fault.Forbidden, "FORBIDDEN", "the tenant of this token is not known here: a platform administrator has to create it first")
		case err != nil:
			return fmt.Errorf("admit tenant: %w", postgres.Fault(err))
		case status != "active":
			return fault.New(fault.Forbidden, "FORBIDDEN", "this tenant is suspended: ask the platform's administrator")
		default:
			return nil
		}
	})
	if err == nil {
		s.remember(id)
	}
	return err
}

func (s *Store) remembered(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mark, ok := s.admitted[id]
	return ok && mark.Elapsed() < admitFor
}

func (s *Store) remember(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.admitted) >= maxRemembered {
		clear(s.admitted)
	}
	s.admitted[id] = clock.Start()
}
