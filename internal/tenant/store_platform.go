package tenant

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// The operations of platform administrators. Each method but List acts inside the one
// tenant that it names, as that tenant's own requests do.

// Position is a place in a list of tenants, newest first.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// NotFound is the answer for a tenant that is not there.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeTenantNotFound, "there is no tenant with this id")
}

// Create stores a tenant under an id; one that is taken, be it by a deleted
// tenant, is a Conflict.
func (s *Store) Create(ctx context.Context, id uuid.UUID, spec Spec) (t Tenant, err error) {
	err = s.db.InTenant(ctx, id, func(tx *postgres.Tx) error {
		n, err := tx.CreateTenant(ctx, db.CreateTenantParams{TenantID: id, Name: spec.Name})
		if err != nil {
			return fmt.Errorf("insert tenant: %w", err)
		}
		if n == 0 {
			return fault.New(fault.Conflict, fault.CodeConflict, "there is, or was, a tenant with this id")
		}
		t, err = change(ctx, tx, id, spec)
		return err
	})
	s.forget(id)
	return t, err
}

// Get reads one tenant and how much it uses.
func (s *Store) Get(ctx context.Context, id uuid.UUID) (t Tenant, u Usage, err error) {
	err = s.db.InTenant(ctx, id, func(tx *postgres.Tx) error {
		row, err := tx.GetTenant(ctx, id)
		if err != nil {
			return missing(err)
		}
		if t, err = fromRow(row); err != nil {
			return err
		}
		used, err := tx.GetTenantUsage(ctx, id)
		if err != nil {
			return fmt.Errorf("count what a tenant uses: %w", err)
		}
		u = Usage{
			Jobs: int(used.Jobs), Running: int(used.Running), Waiting: int(used.Waiting), Cancelling: int(used.Cancelling), ExecutionsToday: int(used.ExecutionsToday),
			Calendars: int(used.Calendars), Secrets: int(used.Secrets), APIKeys: int(used.ApiKeys),
		}
		return nil
	})
	return t, u, err
}

// List reads a page of tenants, newest first, in one status or (empty) any.
func (s *Store) List(ctx context.Context, status Status, limit int, after *Position) (list []Tenant, err error) {
	p := db.ListTenantsParams{BeforeCreatedAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), BeforeID: uuid.Max, PageSize: int32(limit)}
	if after != nil {
		p.BeforeCreatedAt, p.BeforeID = after.CreatedAt, after.ID
	}
	if status != "" {
		text := string(status)
		p.Status = &text
	}
	err = s.db.AcrossTenants(ctx, func(tx *postgres.Tx) error {
		rows, err := tx.ListTenants(ctx, p)
		if err != nil {
			return fmt.Errorf("list tenants: %w", err)
		}
		list = make([]Tenant, len(rows))
		for i, row := range rows {
			if list[i], err = fromRow(row); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// Change replaces what is said of a tenant, only if it has the version
// ifVersion, where that is not 0; PRECONDITION_FAILED otherwise.
func (s *Store) Change(ctx context.Context, id uuid.UUID, spec Spec, ifVersion int) (t Tenant, err error) {
	err = s.db.InTenant(ctx, id, func(tx *postgres.Tx) error {
		if _, err := tx.LockTenant(ctx, id); err != nil {
			return missing(err)
		}
		old, err := tx.GetTenant(ctx, id)
		switch {
		case err != nil:
			return missing(err)
		case old.Status != string(Active) && old.Status != string(Suspended):
			return fault.New(fault.Conflict, fault.CodeConflict, "a deleted tenant cannot be changed")
		}
		if err := has(int(old.Version), ifVersion); err != nil {
			return err
		}
		t, err = change(ctx, tx, id, spec)
		return err
	})
	s.forget(id)
	return t, err
}

func change(ctx context.Context, tx *postgres.Tx, id uuid.UUID, spec Spec) (Tenant, error) {
	byType := spec.Limits.MaxRunningByType
	if byType == nil {
		byType = map[string]int{}
	}
	running, err := json.Marshal(byType)
	if err != nil {
		return Tenant{}, fmt.Errorf("write the limits: %w", err)
	}
	ips := make([]string, len(spec.AllowedIPs))
	for i, prefix := range spec.AllowedIPs {
		ips[i] = prefix.String()
	}
	l := spec.Limits
	row, err := tx.UpdateTenant(ctx, db.UpdateTenantParams{
		TenantID: id, Name: spec.Name, MaxRunning: narrow(l.MaxRunning), MaxRunningByType: running, MaxJobs: narrow(l.MaxJobs),
		MaxExecutionsPerDay: narrow(l.MaxExecutionsPerDay), RequestsPerSecond: narrow(l.RequestsPerSecond),
		MinIntervalSeconds: narrow(l.MinIntervalSeconds), MaxPayloadBytes: narrow(l.MaxPayloadBytes),
		MaxWaiting: narrow(l.MaxWaiting), MaxWaitingPerJob: narrow(l.MaxWaitingPerJob),
		MaxCalendars: narrow(l.MaxCalendars), MaxSecrets: narrow(l.MaxSecrets), MaxApiKeys: narrow(l.MaxAPIKeys), JobTypes: l.JobTypes, AllowedIps: ips,
		AllowedOrigins: append([]string{}, spec.AllowedOrigins...), AllowedHosts: append([]string{}, spec.AllowedHosts...),
	})
	if err != nil {
		return Tenant{}, fmt.Errorf("update tenant: %w", err)
	}
	return fromRow(row)
}

// Suspend lets nothing of the tenant start from now on, and refuses its calls
// within two seconds; the promoters pause its jobs, cancel what waits and ask what
// runs to end, in pieces.
func (s *Store) Suspend(ctx context.Context, id uuid.UUID, reason string) (Tenant, error) {
	return s.become(ctx, id, 0, Suspended, reason, Active, Suspended)
}

// Activate ends a suspension; the promoters resume the jobs that it paused.
func (s *Store) Activate(ctx context.Context, id uuid.UUID) (Tenant, error) {
	return s.become(ctx, id, 0, Active, "", Active, Suspended)
}

// Delete suspends a tenant for good; the promoters remove everything of it, in
// pieces, and leave its id with the status Deleted. With ifVersion other than zero,
// only if it still has that version.
func (s *Store) Delete(ctx context.Context, id uuid.UUID, ifVersion int) (Tenant, error) {
	return s.become(ctx, id, ifVersion, Deleting, "the tenant is being deleted", Active, Suspended, Deleting)
}

// has refuses a caller who knows another version of the tenant; 0 is any.
func has(version, wanted int) error {
	if wanted != 0 && wanted != version {
		return fault.New(fault.Conflict, fault.CodePreconditionFailed,
			fmt.Sprintf("the tenant is at version %d now: read it again and repeat the change", version))
	}
	return nil
}

func (s *Store) become(ctx context.Context, id uuid.UUID, ifVersion int, status Status, reason string, from ...Status) (t Tenant, err error) {
	before := make([]string, len(from))
	for i, one := range from {
		before[i] = string(one)
	}
	err = s.db.InTenant(ctx, id, func(tx *postgres.Tx) error {
		if _, err := tx.LockTenant(ctx, id); err != nil {
			return missing(err)
		}
		old, err := tx.GetTenant(ctx, id)
		if err != nil {
			return missing(err)
		}
		if err := has(int(old.Version), ifVersion); err != nil {
			return err
		}
		row, err := tx.SetTenantStatus(ctx, db.SetTenantStatusParams{TenantID: id, Status: string(status), StatusReason: reason, Before: before})
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
			return fault.New(fault.Conflict, fault.CodeConflict, "the tenant is "+old.Status)
		}
		if err != nil {
			return fmt.Errorf("change the status of a tenant: %w", err)
		}
		if err := tx.SetTenantSuspended(ctx, db.SetTenantSuspendedParams{TenantID: id, Suspended: status != Active}); err != nil {
			return fmt.Errorf("have claims obey the status of a tenant: %w", err)
		}
		t, err = fromRow(row)
		return err
	})
	s.forget(id)
	return t, err
}

func missing(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return NotFound()
	}
	return fmt.Errorf("read tenant: %w", err)
}
