package rest

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// internalBase is where the paths for other services begin.
const internalBase = "/internal"

// isInternal says that a path is for other services.
func isInternal(path string) bool {
	return path == internalBase || strings.HasPrefix(path, internalBase+"/")
}

// keepSide hides what the handler does not serve.
func (s *server) keepSide(next http.Handler) http.Handler {
	if s.Side == parts.Whole {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isInternal(r.URL.Path) != (s.Side == parts.Internal) {
			s.noRoute(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// InternalCreateJob is POST /internal/jobs/create.
func (s *server) InternalCreateJob(ctx context.Context, request api.InternalCreateJobRequestObject) (api.InternalCreateJobResponseObject, error) {
	spec, err := s.validSpec(ctx, *request.Body)
	if err != nil {
		return nil, err
	}
	c := callOf(ctx)
	created, replayed, err := s.Jobs.Create(ctx, c.who.Actor, spec, keyOf(c, request.Params.IdempotencyKey, "POST /internal/jobs/create"))
	if err != nil {
		return nil, err
	}
	s.countCreated(replayed, spec)
	s.callIfDueSoon(ctx, created)
	location := internalBase + "/jobs/" + created.ID.String() + "/status"
	return api.InternalCreateJob201JSONResponse{
		Body:    api.ServiceJob{Success: true, Data: viewJob(created)},
		Headers: api.InternalCreateJob201ResponseHeaders{Location: &location, IdempotentReplayed: replay(replayed)},
	}, nil
}

// InternalBatchCreateJobs is POST /internal/jobs/batch-create. Its body was
// checked as a whole already; only a calendar that was deleted meanwhile is
// found here.
func (s *server) InternalBatchCreateJobs(ctx context.Context, request api.InternalBatchCreateJobsRequestObject) (api.InternalBatchCreateJobsResponseObject, error) {
	c := callOf(ctx)
	specs := make([]job.Spec, len(request.Body.Jobs))
	for i, body := range request.Body.Jobs {
		var err error
		if specs[i], err = s.validSpec(ctx, body); err != nil {
			fields, err := fieldsOf(err)
			if err != nil {
				return nil, err
			}
			return nil, wrong(at(i, fields)...)
		}
	}
	ids, replayed, err := s.Jobs.CreateAll(ctx, c.who.Actor, specs, keyOf(c, request.Params.IdempotencyKey, "POST /internal/jobs/batch-create"))
	if err != nil {
		return nil, err
	}
	s.countCreated(replayed, specs...)
	s.callPromoters(ctx) // some of them may be due
	answer := api.ServiceBatch{Success: true}
	answer.Data.Created, answer.Data.Ids = len(ids), ids
	return api.InternalBatchCreateJobs201JSONResponse{
		Body: answer, Headers: api.InternalBatchCreateJobs201ResponseHeaders{IdempotentReplayed: replay(replayed)},
	}, nil
}

// InternalTriggerJob is POST /internal/jobs/{jobId}/trigger.
func (s *server) InternalTriggerJob(ctx context.Context, request api.InternalTriggerJobRequestObject) (api.InternalTriggerJobResponseObject, error) {
	made, replayed, err := s.trigger(ctx, request.JobID, request.Body, request.Params.IdempotencyKey, "POST /internal/jobs/"+request.JobID.String()+"/trigger")
	if err != nil {
		return nil, err
	}
	return api.InternalTriggerJob202JSONResponse{
		Body:    api.ServiceExecution{Success: true, Data: viewExecution(made)},
		Headers: api.InternalTriggerJob202ResponseHeaders{IdempotentReplayed: replay(replayed)},
	}, nil
}

// InternalGetJobStatus is GET /internal/jobs/{jobId}/status.
func (s *server) InternalGetJobStatus(ctx context.Context, request api.InternalGetJobStatusRequestObject) (api.InternalGetJobStatusResponseObject, error) {
	who := callOf(ctx).who.Actor
	found, err := s.Jobs.Get(ctx, who, request.JobID)
	if err != nil {
		return nil, err
	}
	last, err := s.lastOf(ctx, who, request.JobID)
	if err != nil {
		return nil, err
	}
	answer := api.InternalGetJobStatus200JSONResponse{Success: true}
	answer.Data.Job, answer.Data.LastExecution = viewJob(found), nil
	if last != nil {
		answer.Data.LastExecution = new(viewExecution(*last))
	}
	return answer, nil
}

// lastOf is the newest execution of a job, however far back; nil: it has none.
func (s *server) lastOf(ctx context.Context, who tenant.Actor, id uuid.UUID) (*execution.Execution, error) {
	filter := execution.Filter{JobID: &id, Limit: 1}
	for {
		list, next, err := s.Executions.List(ctx, who, filter)
		if err != nil {
			return nil, err
		}
		if len(list) == 1 {
			return &list[0], nil
		}
		if filter.After = next; next == nil {
			return nil, nil
		}
	}
}

// InternalPauseJob is POST /internal/jobs/{jobId}/pause.
func (s *server) InternalPauseJob(ctx context.Context, request api.InternalPauseJobRequestObject) (api.InternalPauseJobResponseObject, error) {
	asked := orZero(request.Body)
	paused, err := s.Jobs.Pause(ctx, callOf(ctx).who.Actor, request.JobID, orZero(asked.Reason), asked.Until)
	if err != nil {
		return nil, err
	}
	return api.InternalPauseJob200JSONResponse{Success: true, Data: viewJob(paused)}, nil
}

// InternalResumeJob is POST /internal/jobs/{jobId}/resume.
func (s *server) InternalResumeJob(ctx context.Context, request api.InternalResumeJobRequestObject) (api.InternalResumeJobResponseObject, error) {
	missed := job.MisfirePolicy(orZero(orZero(request.Body).MisfirePolicy))
	resumed, err := s.Jobs.Resume(ctx, callOf(ctx).who.Actor, request.JobID, missed)
	if err != nil {
		return nil, err
	}
	s.callIfDueSoon(ctx, resumed)
	return api.InternalResumeJob200JSONResponse{Success: true, Data: viewJob(resumed)}, nil
}

// InternalHealth is GET /internal/health.
func (s *server) InternalHealth(ctx context.Context, _ api.InternalHealthRequestObject) (api.InternalHealthResponseObject, error) {
	h := s.health.get(ctx, s.Vitals.Health)
	answer := api.ServiceHealth{Success: true, Status: string(statusOf(h)), Timestamp: s.Clock(), ServiceName: serviceName}
	if answer.Success = h.Database.Healthy; !answer.Success {
		return api.InternalHealth503JSONResponse(answer), nil
	}
	return api.InternalHealth200JSONResponse(answer), nil
}

// checkBatch reports everything that is wrong with a batch of definitions, of
// each of them what is reported of a single one.
func (s *server) checkBatch(ctx context.Context, batch *contract.Operation, value any) []fault.Field {
	body, _ := value.(map[string]any)
	jobs, _ := body["jobs"].([]any)
	most := maxBatch
	if batch.Defines == "set" {
		most = job.Piece
	}
	if len(jobs) == 0 || len(jobs) > most {
		return batch.CheckBody(value)
	}
	single, ok := s.contract.Operation(http.MethodPost, internalBase+"/jobs/create")
	if !ok {
		return batch.CheckBody(value)
	}
	var fields []fault.Field
	outside := map[string]any{}
	for name, content := range body {
		outside[name] = content
	}
	outside["jobs"] = jobs[:1]
	for _, f := range batch.CheckBody(outside) {
		if !within("jobs")(f) {
			fields = append(fields, f)
		}
	}
	found, broken := make([][]fault.Field, len(jobs)), len(fields) > 0
	for i, one := range jobs {
		found[i] = single.CheckBody(one)
		broken = broken || len(found[i]) > 0
	}
	for i, one := range jobs {
		// The handler of a set asks the domain of those alone that would be stored.
		if definition, ok := one.(map[string]any); ok && (broken || batch.Defines != "set") {
			found[i] = append(found[i], s.alsoWrong(ctx, single.Defines, definition, found[i])...)
		}
		fields = append(fields, at(i, found[i])...)
	}
	return fields
}

// maxBatch is how many jobs a batch has at most, as the contract states it.
const maxBatch = 1000

// at moves faults of a definition into the batch that it is the i-th of.
func at(i int, fields []fault.Field) []fault.Field {
	moved := make([]fault.Field, len(fields))
	for n, f := range fields {
		f.Path = "jobs[" + strconv.Itoa(i) + "]." + f.Path
		moved[n] = f
	}
	return moved
}
