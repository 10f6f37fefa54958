package tenant

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// admitFor is how long an admission is remembered. A suspended tenant is
// therefore refused within this time, and a changed limit holds within it.
const admitFor = 2 * time.Second

// maxRemembered bounds the memory of admissions.
const maxRemembered = 10_000

// Store admits tenants and keeps them. Its methods may be called concurrently.
type Store struct {
	db         *postgres.DB
	autoCreate bool

	mu       sync.Mutex
	admitted map[uuid.UUID]admission
}

type admission struct {
	tenant Tenant
	at     clock.Mark
}

// NewStore makes a store. With autoCreate, a tenant that a valid token names
// and that is not known yet is created.
func NewStore(db *postgres.DB, autoCreate bool) *Store {
	return &Store{db: db, autoCreate: autoCreate, admitted: map[uuid.UUID]admission{}}
}

// Admit reports whether the tenant may act: Forbidden when it is not known or
// not active.
func (s *Store) Admit(ctx context.Context, id uuid.UUID) error {
	_, err := s.Terms(ctx, id)
	return err
}

// Terms is the tenant by which its requests are judged, as much as two seconds
// old; Forbidden when it may not act.
func (s *Store) Terms(ctx context.Context, id uuid.UUID) (t Tenant, err error) {
	if t, ok := s.remembered(id); ok {
		return t, nil
	}
	err = s.db.InTenant(ctx, id, func(tx *postgres.Tx) error {
		row, err := tx.GetTenant(ctx, id)
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound && s.autoCreate {
			if err = tx.InsertTenant(ctx, db.InsertTenantParams{TenantID: id, Name: id.String()}); err == nil {
				row, err = tx.GetTenant(ctx, id)
			}
		}
		switch {
		case fault.KindOf(postgres.Fault(err)) == fault.NotFound:
			return fault.New(fault.Forbidden, "FORBIDDEN", "the tenant of this token is not known here: a platform administrator has to create it first")
		case err != nil:
			return fmt.Errorf("admit tenant: %w", postgres.Fault(err))
		}
		switch t, err = fromRow(row); {
		case err != nil:
			return err
		case t.Status == Suspended:
			return fault.New(fault.Forbidden, "FORBIDDEN", "this tenant is suspended: ask the platform's administrator")
		case t.Status != Active:
			return fault.New(fault.Forbidden, "FORBIDDEN", "this tenant was deleted: ask the platform's administrator")
		default:
			return nil
		}
	})
	if err != nil {
		return Tenant{}, err
	}
	s.remember(t)
	return t, nil
}

func (s *Store) remembered(id uuid.UUID) (Tenant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.admitted[id]
	return found.tenant, ok && found.at.Elapsed() < admitFor
}

func (s *Store) remember(t Tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.admitted) >= maxRemembered {
		clear(s.admitted)
	}
	s.admitted[t.ID] = admission{tenant: t, at: clock.Start()}
}

func (s *Store) forget(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.admitted, id)
}

func fromRow(r db.Tenant) (Tenant, error) {
	t := Tenant{
		ID: r.ID, Version: int(r.Version), Status: Status(r.Status), StatusReason: r.StatusReason, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
		Spec: Spec{Name: r.Name, Limits: Limits{
			MaxJobs: wide(r.MaxJobs), MaxRunning: wide(r.MaxRunning), MaxExecutionsPerDay: wide(r.MaxExecutionsPerDay),
			RequestsPerSecond: wide(r.RequestsPerSecond), MinIntervalSeconds: wide(r.MinIntervalSeconds),
			MaxPayloadBytes: wide(r.MaxPayloadBytes), MaxCalendars: wide(r.MaxCalendars), MaxSecrets: wide(r.MaxSecrets),
			MaxAPIKeys: wide(r.MaxApiKeys), JobTypes: r.JobTypes,
		}},
	}
	if err := json.Unmarshal(r.MaxRunningByType, &t.Limits.MaxRunningByType); err != nil {
		return Tenant{}, fmt.Errorf("read the limits of tenant %s: %w", r.ID, err)
	}
	for _, text := range r.AllowedIps {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return Tenant{}, fmt.Errorf("read the networks of tenant %s: %w", r.ID, err)
		}
		t.AllowedIPs = append(t.AllowedIPs, prefix)
	}
	return t, nil
}

func wide(n *int32) *int {
	if n == nil {
		return nil
	}
	whole := int(*n)
	return &whole
}

func narrow(n *int) *int32 {
	if n == nil {
		return nil
	}
	whole := int32(*n)
	return &whole
}
