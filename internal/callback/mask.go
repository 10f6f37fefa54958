package callback

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job/definition"
	"github.com/scheduler-service/scheduler/internal/secret"
)

// omitted stands in the place of a text in which nobody knows what to mask.
const omitted = "omitted: a secret of the job was deleted meanwhile, so nobody knows any more what to mask"

// Mask takes the secrets of its job out of what is told about an attempt. Running says whether
// the attempt goes on; otherwise the mask is empty. The error is NotFound where a secret was
// deleted meanwhile, so that nobody knows any more what to mask.
func (d *Desk) Mask(ctx context.Context, a Attempt) (mask secret.Mask, running bool, err error) {
	state, err := d.state(ctx, a, "")
	if fault.KindOf(err) == fault.NotFound {
		return mask, false, nil
	}
	if err != nil || !state.Running {
		return mask, false, err
	}
	mask, err = d.mask(ctx, a, state)
	return mask, true, err
}

func (d *Desk) mask(ctx context.Context, a Attempt, state dispatch.AttemptState) (secret.Mask, error) {
	key := definition.Key{Job: state.Job, Version: state.Version}
	found, err := definition.Read(ctx, d.c.DB, []definition.Key{key})
	if err != nil {
		return secret.Mask{}, err
	}
	ready, err := d.secrets.Resolve(ctx, secret.Input{
		Version: secret.Version{Tenant: a.Tenant, Job: state.Job, Number: state.Version}, Config: found[key].Config, Sealed: found[key].Sealed,
		Parameters: state.Parameters, Execution: a.ID, Attempt: a.Attempt, ScheduledAt: execution.ScheduledTimeOf(a.ID),
	})
	return ready.Mask, err
}

// masked is a report without the secrets of its job. Where one was deleted meanwhile the
// outcome is kept, and its texts are not.
func (d *Desk) masked(ctx context.Context, a Attempt, state dispatch.AttemptState, r Report) (Report, error) {
	if len(r.Result) == 0 && (r.Err == nil || r.Err.Message == "") {
		return r, nil
	}
	mask, err := d.mask(ctx, a, state)
	deleted := fault.KindOf(err) == fault.NotFound
	if err != nil && !deleted {
		return Report{}, err
	}
	out := Report{Result: mask.JSON(r.Result)}
	if deleted && len(r.Result) > 0 {
		out.Result, _ = json.Marshal(map[string]string{"omitted": omitted})
	}
	if r.Err != nil {
		failure := *r.Err
		if failure.Message = mask.Text(failure.Message); deleted {
			failure.Message = omitted
		}
		out.Err = &failure
	}
	return out, nil
}

// same says whether two forms of one report tell the same.
func same(a, b Report) bool {
	return bytes.Equal(a.Result, b.Result) && (a.Err == nil || a.Err.Message == b.Err.Message)
}
