package tenant

import (
	"context"
	"encoding/json"
	"errors"
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

// admitFor is how long an answer is remembered, whether it admits a tenant or
// refuses it: a suspended tenant is refused within this time, one that was
// created or activated admitted, and a changed limit holds within it. What
// refused tenants ask for costs the database nothing meanwhile.
const admitFor = 2 * time.Second

// maxRemembered bounds the memory of answers.
const maxRemembered = 10_000

// Store admits tenants and keeps them. Its methods may be called concurrently.
type Store struct {
	db         *postgres.DB
	autoCreate bool

	mu       sync.Mutex
	answered map[uuid.UUID]answer
}

// answer is what a look at a tenant found: the tenant, or why it may not act.
type answer struct {
	tenant  Tenant
	refusal *fault.Error
	unknown bool // there is no such tenant
	at      clock.Mark
}

// NewStore makes a store. With autoCreate, a tenant that a valid token names
// and that is not known yet is created.
func NewStore(db *postgres.DB, autoCreate bool) *Store {
	return &Store{db: db, autoCreate: autoCreate, answered: map[uuid.UUID]answer{}}
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
	return s.terms(ctx, id, s.autoCreate)
}

// Known is Terms of a tenant that no token names: it is not created.
func (s *Store) Known(ctx context.Context, id uuid.UUID) (t Tenant, err error) {
	return s.terms(ctx, id, false)
}

func (s *Store) terms(ctx context.Context, id uuid.UUID, create bool) (t Tenant, err error) {
	if known, ok := s.remembered(id); ok && !(known.unknown && create) {
		if known.refusal != nil {
			refusal := *known.refusal // each request its own
			return Tenant{}, &refusal
		}
		return known.tenant, nil
	}
	unknown := false
	asked := clock.Start() // what is found is at least as new as this
	err = s.db.InTenant(ctx, id, func(tx *postgres.Tx) error {
		row, err := tx.GetTenant(ctx, id)
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound && create {
			if err = tx.InsertTenant(ctx, db.InsertTenantParams{TenantID: id, Name: id.String()}); err == nil {
				row, err = tx.GetTenant(ctx, id)
			}
		}
		switch {
		case fault.KindOf(postgres.Fault(err)) == fault.NotFound:
			unknown = true
			return fault.New(fault.Forbidden, fault.CodeForbidden, "this tenant is not known here: a platform administrator has to create it first")
		case err != nil:
			return fmt.Errorf("admit tenant: %w", postgres.Fault(err))
		}
		switch t, err = fromRow(row); {
		case err != nil:
			return err
		case t.Status == Suspended:
			return fault.New(fault.Forbidden, fault.CodeForbidden, "this tenant is suspended: ask the platform's administrator")
		case t.Status != Active:
			return fault.New(fault.Forbidden, fault.CodeForbidden, "this tenant was deleted: ask the platform's administrator")
		default:
			return nil
		}
	})
	var refusal *fault.Error
	if err != nil && (!errors.As(err, &refusal) || refusal.Kind != fault.Forbidden) {
		return Tenant{}, err // the look failed, and says nothing of the tenant
	}
	s.remember(id, answer{tenant: t, refusal: refusal, unknown: unknown, at: asked})
	return t, err
}

func (s *Store) remembered(id uuid.UUID) (answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.answered[id]
	return found, ok && found.at.Elapsed() < admitFor
}

func (s *Store) remember(id uuid.UUID, found answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.answered) >= maxRemembered {
		clear(s.answered)
	}
	s.answered[id] = found
}

func (s *Store) forget(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.answered, id)
}

func fromRow(r db.Tenant) (Tenant, error) {
	t := Tenant{
		ID: r.ID, Version: int(r.Version), Status: Status(r.Status), StatusReason: r.StatusReason, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
		Spec: Spec{Name: r.Name, Limits: Limits{
			MaxJobs: wide(r.MaxJobs), MaxRunning: wide(r.MaxRunning), MaxExecutionsPerDay: wide(r.MaxExecutionsPerDay),
			RequestsPerSecond: wide(r.RequestsPerSecond), MinIntervalSeconds: wide(r.MinIntervalSeconds),
			MaxPayloadBytes: wide(r.MaxPayloadBytes), MaxCalendars: wide(r.MaxCalendars), MaxWaiting: wide(r.MaxWaiting), MaxWaitingPerJob: wide(r.MaxWaitingPerJob), MaxSecrets: wide(r.MaxSecrets),
			MaxAPIKeys: wide(r.MaxApiKeys), JobTypes: r.JobTypes,
		}},
	}
	if err := json.Unmarshal(r.MaxRunningByType, &t.Limits.MaxRunningByType); err != nil {
		return Tenant{}, fmt.Errorf("read the limits of tenant %s: %w", r.ID, err)
	}
	t.AllowedOrigins, t.AllowedHosts = r.AllowedOrigins, r.AllowedHosts
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
