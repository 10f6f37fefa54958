package remote

import (
	"context"
	"encoding/json"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/output"
	"github.com/scheduler-service/scheduler/internal/secret"
)

// Output stores lines that an attempt outside our processes wrote, the first of which has a
// number; it is a heartbeat of the attempt, too. Secrets of its job are masked. A repeated call
// changes nothing. The errors are those of callback.Desk.Heartbeat, and Invalid where it
// is no longer known what to mask.
func (d *Desk) Output(ctx context.Context, a callback.Attempt, first int, lines []output.Line) error {
	if err := d.c.Callbacks.Heartbeat(ctx, a, -1, ""); err != nil {
		return err
	}
	mask, found, err := d.mask(ctx, a)
	if err != nil {
		return err
	}
	if found {
		alive, err := d.output.Append(ctx, a.Tenant, output.Attempt{ID: a.ID, Number: a.Attempt, Token: a.Token}, mask, first, lines)
		if err != nil || alive {
			return err
		}
	}
	return d.c.Callbacks.Heartbeat(ctx, a, -1, "") // it ended meanwhile, which that says
}

// mask takes out of the output of an attempt what is secret in its job; not found: it has ended.
func (d *Desk) mask(ctx context.Context, a callback.Attempt) (mask secret.Mask, found bool, err error) {
	written, found, err := d.engine.written(ctx, a)
	if err != nil || !found {
		return mask, false, err
	}
	definitions, err := d.engine.definitions(ctx, map[versionKey]bool{written.version: true})
	if err != nil {
		return mask, false, err
	}
	def := definitions[written.version]
	ready, err := d.secrets.Resolve(ctx, secret.Input{
		Version: secret.Version{Tenant: a.Tenant, Job: written.version.job, Number: written.version.version}, Config: def.spec.Config,
		Parameters: json.RawMessage(written.parameters), Sealed: def.sealed, Execution: a.ID, Attempt: a.Attempt, ScheduledAt: written.scheduledAt,
	})
	if fault.KindOf(err) == fault.NotFound {
		return mask, false, fault.Wrong(fault.CodeValidationFailed, fault.Field{
			Path: "lines", Rule: "secret", Message: "cannot be stored: a secret of the job was deleted meanwhile, so nobody knows any more what to mask",
		})
	}
	return ready.Mask, true, err
}
