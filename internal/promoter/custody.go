package promoter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// custodyBudget is how long one step of a pass goes on, and custodyBatch how many
// tenants it takes.
const (
	custodyBudget = time.Second
	custodyBatch  = 100
)

// CustodyReport is what a pass did to tenants that may not act.
type CustodyReport struct {
	Held, Freed int // jobs paused because of their tenant, and resumed again
	Purged      int // tenants of which nothing is left
}

// Custody pauses the jobs of tenants that are suspended or being deleted; resumes
// what it paused once the tenant is active again; and removes, in bounded pieces,
// what a deleted tenant left (Cancel ends what of it is active). Tenants have
// turns, and what fails for one of them is in the error and holds up nobody else.
// Any number of promoters may do so at once.
func (p *Promoter) Custody(ctx context.Context) (report CustodyReport, err error) {
	var errs []error
	for _, step := range []struct {
		what string
		list func(context.Context) ([]uuid.UUID, error)
		do   func(context.Context, uuid.UUID) (count int, more bool, err error)
		into *int
	}{
		{"pause the jobs of a suspended tenant", p.store.tenantsToHold, p.store.holdJobs, &report.Held},
		{"resume the jobs of a tenant", p.store.tenantsToFree, p.store.freeJobs, &report.Freed},
		{"purge a deleted tenant", p.store.tenantsToPurge, p.store.purge, &report.Purged},
	} {
		ids, err := step.list(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.what, err))
			continue
		}
		n, failed := tenantByTenant(ctx, ids, step.do)
		*step.into = n
		for id, err := range failed {
			errs = append(errs, fmt.Errorf("%s: tenant %s: %w", step.what, id, err))
		}
	}
	if report != (CustodyReport{}) {
		p.Log.InfoContext(ctx, "tenants in custody", "held_jobs", report.Held, "freed_jobs", report.Freed, "purged_tenants", report.Purged)
	}
	return report, errors.Join(errs...)
}

// tenantByTenant does one piece for each tenant, then the next for those that have more,
// until none has or the time is over. A tenant whose piece fails is left alone.
func tenantByTenant(ctx context.Context, tenants []uuid.UUID, do func(context.Context, uuid.UUID) (int, bool, error)) (count int, failed map[uuid.UUID]error) {
	failed = map[uuid.UUID]error{}
	for began := clock.Start(); len(tenants) > 0; {
		left := tenants[:0]
		for _, id := range tenants {
			if began.Elapsed() > custodyBudget || ctx.Err() != nil {
				return count, failed
			}
			n, more, err := do(ctx, id)
			count += n
			if err != nil {
				failed[id] = err
			} else if more {
				left = append(left, id)
			}
		}
		tenants = left
	}
	return count, failed
}

func (p *Promoter) custodyNow(ctx context.Context) error {
	_, err := p.Custody(ctx)
	return err
}

// overQuota is why an instant is skipped.
const overQuota = "the tenant has used up its executions of the day (maxExecutionsPerDay); the next day begins at 00:00 UTC"

// cut turns runs into skipped rows where why has a reason for one; it is asked
// about the last run first.
func (p *plan) cut(why func(r run) (reason string)) {
	kept := make([]run, 0, len(p.runs))
	fewer := map[*dueJob]int{}
	for i := len(p.runs) - 1; i >= 0; i-- {
		r := p.runs[i]
		reason := why(r)
		if reason == "" {
			kept = append(kept, r)
			continue
		}
		fewer[r.job]++
		p.unruns = append(p.unruns, skippedBy(r, reason))
	}
	slices.Reverse(kept)
	p.runs = kept
	last := map[*dueJob]time.Time{}
	for _, r := range kept {
		last[r.job] = r.at
	}
	for i, a := range p.advances {
		if n := fewer[a.job]; n > 0 {
			p.advances[i].lost(n, last[a.job])
		}
	}
	// Nothing takes the place of what would have been cancelled.
	p.cancels = slices.DeleteFunc(p.cancels, func(j *dueJob) bool { return fewer[j] > 0 && last[j].IsZero() })
}
