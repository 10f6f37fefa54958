package promoter

import (
	"context"
	"time"
)

// recountEvery is how often the counts of what runs are compared with the rows.
const recountEvery = time.Minute

// Recount compares what is counted as running with what runs, corrects the
// tenants where it differs, and answers how many. Every statement changes both
// together, so that nothing should ever differ but after workers of an older
// version, or an operator's own statements; it is then logged.
func (p *Promoter) Recount(ctx context.Context) (corrected int, err error) {
	drifted, err := p.store.drifted(ctx)
	if err != nil {
		return 0, err
	}
	for _, tenant := range drifted {
		if err := p.store.recount(ctx, tenant); err != nil {
			return corrected, err
		}
		corrected++
		p.Log.ErrorContext(ctx, "what was counted as running was not what ran; corrected", "tenant_id", tenant)
	}
	return corrected, nil
}

func (p *Promoter) recountNow(ctx context.Context) error {
	_, err := p.Recount(ctx)
	return err
}
