package job

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// ApplySet does what a plan says, all or nothing, if it still is the plan of this hash.
// The definitions that it stores are valid.
func (s *Store) ApplySet(ctx context.Context, who tenant.Actor, section Section, hash string) (plan SetPlan, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if plan, err = s.plan(ctx, tx, who, section); err != nil {
			return err
		}
		switch {
		case plan.Hash != hash:
			return outdated()
		case plan.Count(ActConflict) > 0:
			return fault.New(fault.Conflict, fault.CodeSetConflict, "jobs outside the set have names of this section: rename or delete them, or apply with adopt")
		}
		return s.carryOut(ctx, tx, who, section, plan)
	})
	return plan, err
}

func outdated() error {
	return fault.New(fault.Conflict, fault.CodePlanOutdated, "the plan is out of date: jobs of this section changed since the plan, or the body differs from the planned one; plan again")
}

// taken tells that somebody else gave the set a job of the same name meanwhile.
func taken(err error) error {
	if err != nil && fault.KindOf(postgres.Fault(err)) == fault.Conflict {
		return outdated()
	}
	return err
}

// carryOut does what a plan says. It locks calendars, then the tenant, then jobs, as
// everybody does who locks some of them.
func (s *Store) carryOut(ctx context.Context, tx *postgres.Tx, who tenant.Actor, section Section, plan SetPlan) error {
	calendars, err := section.lockCalendars(ctx, tx, who, plan)
	if err != nil {
		return err
	}
	if more := plan.Count(ActCreate) - plan.Count(ActDelete); more > 0 {
		if err := s.count(ctx, tx, who, plan.MaxJobs, more); err != nil {
			return err
		}
	}
	jobs, err := plan.lock(ctx, tx, who)
	if err != nil {
		return err
	}
	if ids := plan.ids(ActAdopt); len(ids) > 0 {
		if err := tx.AdoptJobs(ctx, db.AdoptJobsParams{TenantID: who.TenantID, SetName: section.Set, Ids: ids, Now: tx.At}); err != nil {
			return taken(fmt.Errorf("adopt jobs: %w", err))
		}
	}
	if ids := plan.ids(ActDelete); len(ids) > 0 {
		if err := remove(ctx, tx, who, ids, "the set "+section.Set+" does not name the job any more"); err != nil {
			return err
		}
	}
	var fresh []Spec
	for _, c := range plan.Changes {
		switch {
		case c.Action == ActCreate:
			fresh = append(fresh, section.Specs[c.Index])
		case c.changed:
			spec := section.Specs[c.Index]
			named, err := allOf(calendars, spec.Calendars)
			if err != nil {
				return err
			}
			if _, err := s.redefine(ctx, tx, who, jobs[*c.ID], edit{spec: spec, calendars: named}); err != nil {
				return err
			}
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	_, err = s.createAll(ctx, tx, who, creation{specs: fresh, set: section.Set, counted: true})
	return taken(err)
}

// ids are the jobs with which a plan does something, in no order.
func (p SetPlan) ids(actions ...Action) (ids []uuid.UUID) {
	for _, action := range actions {
		for _, c := range p.Changes {
			if c.Action == action {
				ids = append(ids, *c.ID)
			}
		}
	}
	return ids
}

// lockCalendars locks the calendars of the definitions that a plan stores.
func (s Section) lockCalendars(ctx context.Context, tx *postgres.Tx, who tenant.Actor, plan SetPlan) (map[uuid.UUID]schedule.Calendar, error) {
	var ids []uuid.UUID
	for _, c := range plan.Changes {
		if c.To == nil {
			continue
		}
		for _, named := range s.Specs[c.Index].Calendars {
			ids = append(ids, named.ID)
		}
	}
	return calendar.Lock(ctx, tx, who.TenantID, ids)
}

// lock locks the jobs that a plan changes, and refuses where one is not as the plan saw
// it. The locked rows have the next scheduled times to which promoters advanced since.
func (p SetPlan) lock(ctx context.Context, tx *postgres.Tx, who tenant.Actor) (map[uuid.UUID]Job, error) {
	jobs := map[uuid.UUID]Job{}
	ids := p.ids(ActChange, ActAdopt, ActDelete)
	if len(ids) == 0 {
		return jobs, nil
	}
	rows, err := tx.LockPlannedJobs(ctx, db.LockPlannedJobsParams{TenantID: who.TenantID, Ids: ids})
	if err != nil {
		return nil, fmt.Errorf("lock jobs: %w", err)
	}
	for _, row := range rows {
		if jobs[row.ID], err = fromRow(&row); err != nil {
			return nil, err
		}
	}
	for _, c := range p.Changes {
		switch c.Action {
		case ActChange, ActAdopt, ActDelete:
			if memberOf(jobs[*c.ID]) != c.seen {
				return nil, outdated()
			}
		}
	}
	return jobs, nil
}
