package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	remotes "github.com/scheduler-service/scheduler/internal/executor/remote"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Store keeps a tenant's workers and their functions. Each method acts for one tenant; the id
// of another tenant's worker is answered as one that does not exist.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store { return &Store{db: db} }

// Register starts a worker's lease and publishes its functions.
func (s *Store) Register(ctx context.Context, who tenant.Actor, spec Spec) (Worker, error) {
	w := Worker{ID: uuid.New(), Name: spec.Name, Functions: spec.functionNames(), Slots: spec.Slots, Lease: spec.Lease}
	err := s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if _, err := tx.LockTenantBounds(ctx, who.TenantID); err != nil { // what is counted stays so
			return fmt.Errorf("lock the tenant: %w", err)
		}
		if err := publish(ctx, tx, who.TenantID, spec.Functions); err != nil {
			return err
		}
		n, err := tx.InsertRemoteWorker(ctx, db.InsertRemoteWorkerParams{
			ID: w.ID, TenantID: who.TenantID, Slots: int32(w.Slots), JobType: remotes.Type, Name: w.Name, Functions: w.Functions,
			LeaseSeconds: int32(w.Lease / time.Second), Most: maxWorkers,
		})
		if err != nil {
			return fmt.Errorf("register a worker: %w", err)
		}
		if n == 0 {
			return fault.Exceeded(fault.Limit{Name: "maxWorkers", Value: maxWorkers}, fmt.Sprintf("a tenant may have %d workers: deregister those that are not needed", maxWorkers), tx.At)
		}
		w.StartedAt, w.HeartbeatAt, w.ExpiresAt = tx.At, tx.At, tx.At.Add(w.Lease)
		return nil
	})
	return w, err
}

// publish makes a worker's functions known.
func publish(ctx context.Context, tx *postgres.Tx, tenant uuid.UUID, functions []Function) error {
	p := db.PublishRemoteFunctionsParams{TenantID: tenant}
	for _, f := range functions {
		p.Names, p.Descriptions, p.Parameters = append(p.Names, f.Name), append(p.Descriptions, f.Description), append(p.Parameters, f.Parameters)
	}
	if err := tx.PublishRemoteFunctions(ctx, p); err != nil {
		return fmt.Errorf("publish functions: %w", err)
	}
	n, err := tx.CountRemoteFunctions(ctx, tenant)
	switch {
	case err != nil:
		return fmt.Errorf("count functions: %w", err)
	case n > maxFunctions:
		return fault.Exceeded(fault.Limit{Name: "maxRemoteFunctions", Value: maxFunctions}, fmt.Sprintf("the workers of a tenant may have %d functions together", maxFunctions), tx.At)
	}
	return nil
}

// List reads the tenant's living workers, the newest first.
func (s *Store) List(ctx context.Context, who tenant.Actor) (list []Worker, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListRemoteWorkers(ctx, db.ListRemoteWorkersParams{TenantID: &who.TenantID, Most: maxWorkers})
		if err != nil {
			return fmt.Errorf("list workers: %w", err)
		}
		for _, r := range rows {
			w := Worker{
				ID: r.ID, Functions: r.Functions, Slots: int(r.Slots), Running: int(r.Running),
				StartedAt: r.StartedAt.UTC(), HeartbeatAt: r.HeartbeatAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
			}
			if r.Name != nil && r.LeaseSeconds != nil {
				w.Name, w.Lease = *r.Name, time.Duration(*r.LeaseSeconds)*time.Second
			}
			list = append(list, w)
		}
		return nil
	})
	return list, err
}

// Deregister ends a worker's lease. Attempts that it still runs go on while heartbeats come by
// their tokens.
func (s *Store) Deregister(ctx context.Context, who tenant.Actor, id uuid.UUID) error {
	return s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		n, err := tx.RetireRemoteWorker(ctx, db.RetireRemoteWorkerParams{TenantID: &who.TenantID, ID: id})
		if err != nil {
			return fmt.Errorf("deregister a worker: %w", err)
		}
		if n == 0 {
			return Gone()
		}
		return nil
	})
}

// Check lists what is wrong with the config of a job of type remote that only what the
// tenant's workers registered shows, at paths below "config".
func (s *Store) Check(ctx context.Context, who tenant.Actor, config json.RawMessage) (faults []fault.Field, err error) {
	settings, faults := remotes.Parse(config)
	if len(faults) > 0 {
		return faults, nil
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.GetRemoteFunction(ctx, db.GetRemoteFunctionParams{TenantID: who.TenantID, Name: settings.Function})
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
			faults = []fault.Field{{Path: "config.functionName", Rule: "unknown", Message: "no worker of this tenant has registered a function with this name: start one that has it first"}}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a function: %w", err)
		}
		faults = Function{Parameters: row.Parameters}.check("config.parameters", settings.Parameters)
		return nil
	})
	return faults, err
}

// engine reads and renews across tenants, as postgres.Engine; each statement names the tenant.
type engine struct{ db *postgres.DB }

// renew prolongs the lease of a tenant's worker; a negative running changes nothing. The error is
// Gone where it does not live.
func (e engine) renew(ctx context.Context, tenant, id uuid.UUID, running int) (Worker, error) {
	p := db.RenewRemoteWorkerParams{TenantID: &tenant, ID: id}
	if n := int32(running); n >= 0 {
		p.Running = &n
	}
	row, err := db.New(e.db.Pool()).RenewRemoteWorker(ctx, p)
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound || err == nil && row.LeaseSeconds == nil {
		return Worker{}, Gone()
	}
	if err != nil {
		return Worker{}, fmt.Errorf("renew a worker's lease: %w", postgres.Fault(err))
	}
	return Worker{ID: id, Functions: row.Functions, Slots: int(row.Slots), Lease: time.Duration(*row.LeaseSeconds) * time.Second}, nil
}
