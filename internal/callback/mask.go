package callback

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/secret"
)

// ErrForgotten says that a secret of a job cannot be read any more, so that nobody knows what
// to mask in what its attempts are told to have done.
var ErrForgotten = errors.New("a secret of the job cannot be read any more")

// omitted stands in the place of a text in which nobody knows what to mask.
const omitted = "omitted: a secret of the job was deleted meanwhile, so nobody knows any more what to mask"

// Mask takes the secrets of its job out of what is told about an attempt. Running says whether
// the attempt goes on; otherwise the mask is empty. The error is ErrForgotten where it is not
// known any more what to mask.
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
	key := versionKey{state.Job, state.Version}
	found, err := d.versions.rules(ctx, []versionKey{key})
	if err != nil {
		return secret.Mask{}, err
	}
	ready, err := d.secrets.Resolve(ctx, secret.Input{
		Version: secret.Version{Tenant: a.Tenant, Job: state.Job, Number: state.Version}, Config: found[key].Config, Sealed: found[key].Sealed,
		Parameters: state.Parameters, Execution: a.ID, Attempt: a.Attempt, ScheduledAt: execution.ScheduledTimeOf(a.ID),
	})
	if err != nil && fault.KindOf(err) != fault.Unavailable {
		if fault.KindOf(err) != fault.NotFound {
			d.c.Log.WarnContext(ctx, "secrets of a job cannot be read, so what is reported of its attempt is not kept", "error", err, "execution_id", a.ID)
		}
		return secret.Mask{}, errors.Join(ErrForgotten, err)
	}
	return ready.Mask, err
}

// masked is a report without the secrets of its job. An outcome is kept when it is not known
// any more what to mask: its texts are not.
func (d *Desk) masked(ctx context.Context, a Attempt, state dispatch.AttemptState, r Report) (Report, error) {
	if len(r.Result) == 0 && (r.Err == nil || r.Err.Message == "") {
		return r, nil
	}
	mask, err := d.mask(ctx, a, state)
	forgotten := errors.Is(err, ErrForgotten)
	if err != nil && !forgotten {
		return Report{}, err
	}
	out := Report{Result: mask.JSON(r.Result)}
	if forgotten && len(r.Result) > 0 {
		out.Result, _ = json.Marshal(map[string]string{"omitted": omitted})
	}
	if r.Err != nil {
		failure := *r.Err
		if failure.Message = mask.Text(failure.Message); forgotten {
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
