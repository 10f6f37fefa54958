package calendar

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Store keeps a tenant's calendars. Each method acts for one tenant; the id of
// another tenant's calendar is answered as one that does not exist.
type Store struct {
	db         *postgres.DB
	reschedule rescheduler
}

// rescheduler computes anew, inside the transaction of an edit that holds the
// calendar locked and has written it, when the jobs that name it are due. Its
// error undoes the edit. See job.Reschedule.
type rescheduler func(ctx context.Context, tx *postgres.Tx, who tenant.Actor, edit Edit) error

// Edit is a calendar that was changed, and what it held before.
type Edit struct {
	ID     uuid.UUID
	Before schedule.Calendar
}

// NewStore makes a store.
func NewStore(db *postgres.DB, reschedule rescheduler) *Store {
	return &Store{db: db, reschedule: reschedule}
}

// Position is a place in a list of calendars, newest first.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// NotFound is the answer for a calendar that is not there, or is not the
// caller's.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeCalendarNotFound, "there is no calendar with this id")
}

// Create stores a valid calendar. It reports whether the answer is a
// remembered one. A name that is taken is a Conflict.
func (s *Store) Create(ctx context.Context, who tenant.Actor, spec Spec, key idempotency.Key) (made Calendar, replayed bool, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		store := idempotency.Store{Queries: tx.Queries}
		made, replayed, err = idempotency.Do(ctx, store, who.TenantID, key, func() (Calendar, error) {
			return create(ctx, tx, who, spec)
		})
		return err
	})
	return made, replayed, err
}

func create(ctx context.Context, tx *postgres.Tx, who tenant.Actor, spec Spec) (Calendar, error) {
	if err := tenant.CheckQuota(ctx, tx, who.TenantID, tenant.Calendars); err != nil {
		return Calendar{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Calendar{}, fmt.Errorf("make a calendar id: %w", err)
	}
	days, err := encode(spec.Days)
	if err != nil {
		return Calendar{}, err
	}
	row, err := tx.InsertCalendar(ctx, db.InsertCalendarParams{
		ID: id, TenantID: who.TenantID, Name: spec.Name, Description: spec.Description, Timezone: spec.Timezone, Days: days, Now: tx.At,
	})
	if err != nil {
		return Calendar{}, taken(err)
	}
	return fromRow(row)
}

// Get reads one calendar.
func (s *Store) Get(ctx context.Context, who tenant.Actor, id uuid.UUID) (found Calendar, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.GetCalendar(ctx, db.GetCalendarParams{TenantID: who.TenantID, ID: id})
		if err != nil {
			return missing(err)
		}
		found, err = fromRow(row)
		return err
	})
	return found, err
}

// List reads a page of calendars without their days, newest first, from after
// a position on (nil: from the first).
func (s *Store) List(ctx context.Context, who tenant.Actor, limit int, after *Position) (list []Calendar, err error) {
	params := db.ListCalendarsParams{TenantID: who.TenantID, PageSize: int32(limit), BeforeCreatedAt: columns.Never, BeforeID: uuid.Max}
	if after != nil {
		params.BeforeCreatedAt, params.BeforeID = after.CreatedAt, after.ID
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListCalendars(ctx, params)
		if err != nil {
			return fmt.Errorf("list calendars: %w", err)
		}
		list = make([]Calendar, len(rows))
		for i, r := range rows {
			list[i] = Calendar{
				Spec: Spec{Name: r.Name, Description: r.Description, Timezone: r.Timezone}, DayCount: int(r.DayCount),
				ID: r.ID, TenantID: r.TenantID, Version: int(r.Version), CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
			}
		}
		return nil
	})
	return list, err
}

// Update replaces a calendar, and the next scheduled times of the jobs that name it.
// With ifVersion other than zero, only if it still has that version.
func (s *Store) Update(ctx context.Context, who tenant.Actor, id uuid.UUID, spec Spec, ifVersion int) (updated Calendar, err error) {
	days, err := encode(spec.Days)
	if err != nil {
		return Calendar{}, err
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.LockCalendar(ctx, db.LockCalendarParams{TenantID: who.TenantID, ID: id})
		if err != nil {
			return missing(err)
		}
		old, err := fromRow(row)
		if err != nil {
			return err
		}
		if err := has(old.Version, ifVersion); err != nil {
			return err
		}
		row, err = tx.UpdateCalendar(ctx, db.UpdateCalendarParams{
			TenantID: who.TenantID, ID: id, Name: spec.Name, Description: spec.Description, Timezone: spec.Timezone, Days: days, Now: tx.At,
		})
		if err != nil {
			return taken(err)
		}
		if updated, err = fromRow(row); err != nil || old.Timezone == updated.Timezone && slices.Equal(old.Days, updated.Days) {
			return err
		}
		return s.reschedule(ctx, tx, who, Edit{ID: id, Before: schedule.Calendar{Zone: old.Timezone, Days: old.Days}})
	})
	return updated, err
}

// Delete removes a calendar that no job names; another is a Conflict that says
// how many do. With ifVersion other than zero, only if it still has that version.
func (s *Store) Delete(ctx context.Context, who tenant.Actor, id uuid.UUID, ifVersion int) error {
	return s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		// A request that is about to name it holds it locked, or waits and finds it gone.
		old, err := tx.LockCalendar(ctx, db.LockCalendarParams{TenantID: who.TenantID, ID: id})
		if err != nil {
			return missing(err)
		}
		if err := has(int(old.Version), ifVersion); err != nil {
			return err
		}
		n, err := tx.CountJobsByCalendar(ctx, db.CountJobsByCalendarParams{TenantID: who.TenantID, Reference: Reference(id)})
		switch {
		case err != nil:
			return fmt.Errorf("count the jobs of a calendar: %w", err)
		case n == 1:
			return fault.New(fault.Conflict, fault.CodeConflict, "1 job uses this calendar: take it out of that job first")
		case n > 1:
			return fault.New(fault.Conflict, fault.CodeConflict, fmt.Sprintf("%d jobs use this calendar: take it out of them first", n))
		}
		if _, err := tx.DeleteCalendar(ctx, db.DeleteCalendarParams{TenantID: who.TenantID, ID: id}); err != nil {
			return fmt.Errorf("delete calendar: %w", err)
		}
		return nil
	})
}

// has refuses a caller who knows another version of a calendar; 0 is any.
func has(version, wanted int) error {
	if wanted != 0 && wanted != version {
		return fault.New(fault.Conflict, fault.CodePreconditionFailed,
			fmt.Sprintf("the calendar is at version %d now: read it again and repeat the change", version))
	}
	return nil
}

// Reference is what a job's list of calendars contains that names this one.
func Reference(id uuid.UUID) json.RawMessage {
	return json.RawMessage(`[{"calendarId":"` + id.String() + `"}]`)
}

// Load reads a tenant's calendars by id as they are now. An id that is not
// there is missing from the answer.
func Load(ctx context.Context, tx *postgres.Tx, tenant uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]schedule.Calendar, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.ListCalendarsByKeys(ctx, db.ListCalendarsByKeysParams{TenantID: tenant, Ids: ids})
	if err != nil {
		return nil, fmt.Errorf("read calendars: %w", err)
	}
	return sets(rows)
}

// Lock is Load for a job that is about to name them: until its transaction
// commits, none of them changes or goes.
func Lock(ctx context.Context, tx *postgres.Tx, tenant uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]schedule.Calendar, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.HoldCalendars(ctx, db.HoldCalendarsParams{TenantID: tenant, Ids: ids})
	if err != nil {
		return nil, fmt.Errorf("hold calendars: %w", err)
	}
	return sets(rows)
}

func sets(rows []db.Calendar) (map[uuid.UUID]schedule.Calendar, error) {
	found := make(map[uuid.UUID]schedule.Calendar, len(rows))
	for _, r := range rows {
		set, err := Decode(r.Timezone, r.Days)
		if err != nil {
			return nil, err
		}
		found[r.ID] = set
	}
	return found, nil
}

func fromRow(r db.Calendar) (Calendar, error) {
	set, err := Decode(r.Timezone, r.Days)
	if err != nil {
		return Calendar{}, fmt.Errorf("calendar %s: %w", r.ID, err)
	}
	return Calendar{
		Spec: Spec{Name: r.Name, Description: r.Description, Timezone: r.Timezone, Days: set.Days}, DayCount: len(set.Days),
		ID: r.ID, TenantID: r.TenantID, Version: int(r.Version), CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}, nil
}

// missing turns "no row" into the answer for a calendar that is not there.
func missing(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return NotFound()
	}
	return fmt.Errorf("read calendar: %w", err)
}

// taken turns a broken uniqueness into the answer for a name that is taken.
func taken(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.Conflict {
		return fault.New(fault.Conflict, fault.CodeConflict, "a calendar with this name exists already")
	}
	return fmt.Errorf("write calendar: %w", err)
}
