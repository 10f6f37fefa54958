package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/secret"
)

// hintPatience bounds how long a trigger waits for Redis: the execution stands
// in PostgreSQL already and is found without the hint.
const hintPatience = 200 * time.Millisecond

// CreateJob is POST /jobs.
func (s *server) CreateJob(ctx context.Context, request api.CreateJobRequestObject) (api.CreateJobResponseObject, error) {
	spec, err := s.validSpec(ctx, *request.Body)
	if err != nil {
		return nil, err
	}
	c := callOf(ctx)
	created, replayed, err := s.Jobs.Create(ctx, c.who.Actor, spec, keyOf(c, request.Params.IdempotencyKey, "POST /jobs"))
	if err != nil {
		return nil, err
	}
	s.countCreated(replayed, spec)
	s.callIfDueSoon(ctx, created)
	location := base + "/jobs/" + created.ID.String()
	return api.CreateJob201JSONResponse{
		Body:    viewJob(created),
		Headers: api.CreateJob201ResponseHeaders{ETag: etag(created.Version), Location: &location, IdempotentReplayed: replay(replayed)},
	}, nil
}

// countCreated counts new jobs, but for those of a repeated request.
func (s *server) countCreated(replayed bool, specs ...job.Spec) {
	for _, spec := range specs {
		if !replayed {
			s.Metrics.JobCreated(string(spec.Type))
		}
	}
}

// dueSoon is how soon a job must be due for promoters to be told: they poll every two
// seconds and learn when the next job is due.
const dueSoon = 3 * time.Second

// callIfDueSoon tells promoters of a job that was made or changed.
func (s *server) callIfDueSoon(ctx context.Context, changed job.Job) {
	if next := changed.NextExecutionAt; next != nil && changed.Status == job.Active && next.Sub(changed.UpdatedAt) < dueSoon {
		s.callPromoters(ctx)
	}
}

// callPromoters does not wait long for Redis.
func (s *server) callPromoters(ctx context.Context) {
	if s.CallPromoters == nil {
		return
	}
	calling, cancel := context.WithTimeout(ctx, hintPatience)
	defer cancel()
	s.CallPromoters(calling)
}

// GetJob is GET /jobs/{id}.
func (s *server) GetJob(ctx context.Context, request api.GetJobRequestObject) (api.GetJobResponseObject, error) {
	found, err := s.Jobs.Get(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	return api.GetJob200JSONResponse{Body: viewJob(found), Headers: api.GetJob200ResponseHeaders{ETag: etag(found.Version)}}, nil
}

// UpdateJob is PUT /jobs/{id}.
func (s *server) UpdateJob(ctx context.Context, request api.UpdateJobRequestObject) (api.UpdateJobResponseObject, error) {
	if err := sentBackAsIs(ctx, s.shownJob(ctx, request.ID)); err != nil {
		return nil, err
	}
	spec, err := s.validSpec(ctx, *request.Body)
	if err != nil {
		return nil, err
	}
	updated, err := s.Jobs.Update(ctx, callOf(ctx).who.Actor, request.ID, spec, wantedVersion(ctx, request.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	s.callIfDueSoon(ctx, updated)
	return api.UpdateJob200JSONResponse{Body: viewJob(updated), Headers: api.UpdateJob200ResponseHeaders{ETag: etag(updated.Version)}}, nil
}

// shownJob reads a job as GET /jobs/{id} answers it.
func (s *server) shownJob(ctx context.Context, id uuid.UUID) func() (api.Job, error) {
	return func() (api.Job, error) {
		found, err := s.Jobs.Get(ctx, callOf(ctx).who.Actor, id)
		return viewJob(found), err
	}
}

// DeleteJob is DELETE /jobs/{id}.
func (s *server) DeleteJob(ctx context.Context, request api.DeleteJobRequestObject) (api.DeleteJobResponseObject, error) {
	if err := s.Jobs.Delete(ctx, callOf(ctx).who.Actor, request.ID, orZero(request.Params.Reason), versionOf(request.Params.IfMatch)); err != nil {
		return nil, err
	}
	return api.DeleteJob204Response{}, nil
}

// PauseJob is POST /jobs/{id}/pause.
func (s *server) PauseJob(ctx context.Context, request api.PauseJobRequestObject) (api.PauseJobResponseObject, error) {
	asked := orZero(request.Body)
	paused, err := s.Jobs.Pause(ctx, callOf(ctx).who.Actor, request.ID, orZero(asked.Reason), asked.Until)
	if err != nil {
		return nil, err
	}
	return api.PauseJob200JSONResponse{Body: viewJob(paused), Headers: api.PauseJob200ResponseHeaders{ETag: etag(paused.Version)}}, nil
}

// ResumeJob is POST /jobs/{id}/resume.
func (s *server) ResumeJob(ctx context.Context, request api.ResumeJobRequestObject) (api.ResumeJobResponseObject, error) {
	policy := job.MisfirePolicy(orZero(orZero(request.Body).MisfirePolicy))
	resumed, err := s.Jobs.Resume(ctx, callOf(ctx).who.Actor, request.ID, policy)
	if err != nil {
		return nil, err
	}
	s.callIfDueSoon(ctx, resumed)
	return api.ResumeJob200JSONResponse{Body: viewJob(resumed), Headers: api.ResumeJob200ResponseHeaders{ETag: etag(resumed.Version)}}, nil
}

// TriggerJob is POST /jobs/{id}/trigger.
func (s *server) TriggerJob(ctx context.Context, request api.TriggerJobRequestObject) (api.TriggerJobResponseObject, error) {
	made, replayed, err := s.trigger(ctx, request.ID, request.Body, request.Params.IdempotencyKey, "POST /jobs/"+request.ID.String()+"/trigger")
	if err != nil {
		return nil, err
	}
	location := base + "/executions/" + made.ID.String()
	return api.TriggerJob202JSONResponse{
		Body:    viewExecution(made),
		Headers: api.TriggerJob202ResponseHeaders{Location: &location, IdempotentReplayed: replay(replayed)},
	}, nil
}

// trigger makes an execution now and tells the workers; route names the
// request for its idempotency key.
func (s *server) trigger(ctx context.Context, id uuid.UUID, body *api.TriggerRequest, key *string, route string) (execution.Execution, bool, error) {
	c := callOf(ctx)
	var parameters json.RawMessage
	if body != nil {
		parameters = body.Parameters
	}
	if err := s.checkOverrides(ctx, id, parameters); err != nil {
		return execution.Execution{}, false, err
	}
	made, replayed, err := s.Executions.Trigger(ctx, c.who.Actor, id, parameters, keyOf(c, key, route))
	if err == nil && !replayed {
		s.Traces.Made(ctx, made.ID)
		s.hint(ctx, dispatch.Waiting{ID: made.ID, Priority: made.Priority})
	}
	return made, replayed, err
}

// checkOverrides refuses overrides that do not fit the job. A job that is not
// there is left to the trigger itself, which may remember an answer from when
// it was.
func (s *server) checkOverrides(ctx context.Context, id uuid.UUID, parameters json.RawMessage) error {
	if len(parameters) == 0 {
		return nil
	}
	c := callOf(ctx)
	if err := secret.MayPass(c.who.Actor, nil, nil, parameters); err != nil {
		return err
	}
	found, err := s.Jobs.Get(ctx, c.who.Actor, id)
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	secrets, err := s.Jobs.CheckParameters(ctx, c.who.Actor, parameters)
	if err != nil {
		return err
	}
	if fields := append(s.CheckParameters(found.Type, found.Config, parameters), secrets...); len(fields) > 0 {
		return wrong(fields...)
	}
	return nil
}

// validSpec is the definition that a body describes, or what is wrong with it.
func (s *server) validSpec(ctx context.Context, body api.JobSpec) (job.Spec, error) {
	spec, fields, err := s.newSpec(ctx, body)
	if err != nil {
		return spec, err
	}
	if len(fields) > 0 {
		return spec, wrong(fields...)
	}
	return spec, s.withinLimits(ctx, spec)
}

// keyOf is the idempotency key of a request. The route names the operation and
// what it acts on, so a key used elsewhere is another request.
func keyOf(c *call, value *string, route string) idempotency.Key {
	if value == nil {
		return idempotency.Key{}
	}
	return idempotency.Key{Value: *value, Route: route, Body: c.body}
}

// etag names a version; present adds to it what is shown.
func etag(version int) *string {
	text := fmt.Sprintf("%q", strconv.Itoa(version))
	return &text
}

// versionOf reads If-Match: 0 for every version, -1 for an ETag that no version
// of ours has, which a weak one never is (RFC 9110, section 13.1.1). The digest
// after the version, see tag, is ignored here and may be absent.
func versionOf(ifMatch *string) int {
	if ifMatch == nil || *ifMatch == "*" {
		return 0
	}
	inside, _ := strings.CutPrefix(strings.TrimSuffix(*ifMatch, `"`), `"`)
	number, _, _ := strings.Cut(inside, ".")
	version, err := strconv.Atoi(number)
	if err != nil || version < 1 || number != strconv.Itoa(version) || *ifMatch != `"`+inside+`"` {
		return -1
	}
	return version
}

func replay(replayed bool) *string {
	if !replayed {
		return nil
	}
	text := "true"
	return &text
}
