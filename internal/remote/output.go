package remote

import (
	"context"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/output"
)

// Output stores lines that an attempt outside our processes wrote, the first of which has a
// number; it is a heartbeat of the attempt, too. Secrets of its job are masked. A repeated call
// changes nothing. The errors are those of callback.Desk.Heartbeat, and Invalid where it
// is no longer known what to mask.
func (d *Desk) Output(ctx context.Context, a callback.Attempt, first int, lines []output.Line) error {
	if err := d.c.Callbacks.Heartbeat(ctx, a, -1, ""); err != nil {
		return err
	}
	mask, running, err := d.c.Callbacks.Mask(ctx, a)
	if fault.KindOf(err) == fault.NotFound {
		return fault.Wrong(fault.CodeValidationFailed, fault.Field{
			Path: "lines", Rule: "secret", Message: "cannot be stored: a secret of the job was deleted meanwhile, so nobody knows any more what to mask",
		})
	}
	if err != nil {
		return err
	}
	if running {
		alive, err := d.output.Append(ctx, a.Tenant, output.Attempt{ID: a.ID, Number: a.Attempt, Token: a.Token}, mask, first, lines)
		if err != nil || alive {
			return err
		}
	}
	return d.c.Callbacks.Heartbeat(ctx, a, -1, "") // it ended meanwhile, which that says
}
