package promoter

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
)

// custodyRounds is how many pieces of one kind a pass does at most: 20,000 jobs
// and 2,000 jobs with executions.
const custodyRounds = 10

// CustodyReport is what a pass did to tenants that may not act.
type CustodyReport struct {
	Held, Freed int // jobs paused because of their tenant, and resumed again
	Cancelled   int // jobs whose executions were cancelled or asked to end
	Purged      int // tenants of which nothing is left
}

// Custody pauses the jobs of tenants that are suspended or being deleted,
// cancels what waits and asks what runs to end; resumes what it paused once the
// tenant is active again; and removes, in bounded pieces, what a deleted tenant
// left. Any number of promoters may do so at once.
func (p *Promoter) Custody(ctx context.Context) (report CustodyReport, err error) {
	for _, step := range []struct {
		do   func(context.Context) (int, error)
		into *int
	}{
		{p.store.holdJobs, &report.Held}, {p.store.freeJobs, &report.Freed}, {p.store.cancelHeld, &report.Cancelled}, {p.store.purge, &report.Purged},
	} {
		for range custodyRounds {
			n, err := step.do(ctx)
			if err != nil {
				return report, err
			}
			*step.into += n
			if n == 0 {
				break
			}
		}
	}
	if report != (CustodyReport{}) {
		p.Log.InfoContext(ctx, "tenants in custody", "held_jobs", report.Held, "freed_jobs", report.Freed,
			"cancelled_jobs", report.Cancelled, "purged_tenants", report.Purged)
	}
	return report, nil
}

func (p *Promoter) custodyNow(ctx context.Context) error {
	_, err := p.Custody(ctx)
	return err
}

// overQuota is why an instant is skipped.
const overQuota = "the tenant has used up its executions of the day (maxExecutionsPerDay); the next day begins at 00:00 UTC"

// cut turns the last n runs of a tenant into skipped rows.
func (p *plan) cut(tenant uuid.UUID, n int) {
	kept := make([]run, 0, len(p.runs))
	fewer := map[*dueJob]int{}
	for i := len(p.runs) - 1; i >= 0; i-- {
		r := p.runs[i]
		if n == 0 || r.job.tenant != tenant {
			kept = append(kept, r)
			continue
		}
		n--
		fewer[r.job]++
		p.unruns = append(p.unruns, skippedBy(r, overQuota))
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
