package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/remote"
)

// RegisterRemoteWorker is POST /remote-workers.
func (s *server) RegisterRemoteWorker(ctx context.Context, request api.RegisterRemoteWorkerRequestObject) (api.RegisterRemoteWorkerResponseObject, error) {
	spec, err := remoteSpecOf(orZero(request.Body))
	if err != nil {
		return nil, err
	}
	if faults := spec.Validate(); len(faults) > 0 {
		return nil, wrong(faults...)
	}
	worker, err := s.Remote.Register(ctx, callOf(ctx).who.Actor, spec)
	if err != nil {
		return nil, err
	}
	return api.RegisterRemoteWorker201JSONResponse(viewRemoteWorker(worker)), nil
}

// remoteSpecOf is what a worker says of itself, with what the contract says where it is silent.
func remoteSpecOf(body api.RemoteWorkerSpec) (remote.Spec, error) {
	spec := remote.Spec{Name: body.Name, Slots: 10, Lease: 30 * time.Second}
	if body.Slots != nil {
		spec.Slots = *body.Slots
	}
	if body.LeaseSeconds != nil {
		spec.Lease = time.Duration(*body.LeaseSeconds) * time.Second
	}
	for _, f := range body.Functions {
		one := remote.Function{Name: f.Name, Description: orZero(f.Description), Parameters: json.RawMessage(`{}`)}
		if f.Parameters != nil {
			schema, err := json.Marshal(*f.Parameters)
			if err != nil {
				return spec, fmt.Errorf("write a schema: %w", err)
			}
			one.Parameters = schema
		}
		spec.Functions = append(spec.Functions, one)
	}
	return spec, nil
}

// ListRemoteWorkers is GET /remote-workers.
func (s *server) ListRemoteWorkers(ctx context.Context, _ api.ListRemoteWorkersRequestObject) (api.ListRemoteWorkersResponseObject, error) {
	list, err := s.Remote.List(ctx, callOf(ctx).who.Actor)
	if err != nil {
		return nil, err
	}
	answer := api.ListRemoteWorkers200JSONResponse{Items: make([]api.RemoteWorker, len(list))}
	for i, w := range list {
		answer.Items[i] = viewRemoteWorker(w)
	}
	return answer, nil
}

// DeregisterRemoteWorker is DELETE /remote-workers/{id}.
func (s *server) DeregisterRemoteWorker(ctx context.Context, request api.DeregisterRemoteWorkerRequestObject) (api.DeregisterRemoteWorkerResponseObject, error) {
	if err := s.Remote.Deregister(ctx, callOf(ctx).who.Actor, request.ID); err != nil {
		return nil, err
	}
	return api.DeregisterRemoteWorker204Response{}, nil
}

// ClaimRemoteExecutions is POST /remote-workers/{id}/claim.
func (s *server) ClaimRemoteExecutions(ctx context.Context, request api.ClaimRemoteExecutionsRequestObject) (api.ClaimRemoteExecutionsResponseObject, error) {
	wait, c := 10, callOf(ctx)
	override(&wait, request.Body.WaitSeconds)
	if draining(ctx) {
		wait = 0
	}
	asked := remote.Request{Worker: request.ID, ID: orZero(request.Body.ClaimID), Most: 1, Patience: time.Duration(wait) * time.Second}
	override(&asked.Most, request.Body.Most)
	// A claim that its caller gave up hands out nothing: the context ends with it.
	claimed, err := s.Claims.Claim(ctx, c.who.Actor.TenantID, asked, c.gone)
	if err != nil {
		return nil, err
	}
	answer := api.ClaimRemoteExecutions200JSONResponse{Executions: make([]api.RemoteExecution, len(claimed))}
	for i, a := range claimed {
		if answer.Executions[i], err = viewAssignment(a); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// SendRemoteHeartbeat is POST /remote-workers/{id}/heartbeat.
func (s *server) SendRemoteHeartbeat(ctx context.Context, request api.SendRemoteHeartbeatRequestObject) (api.SendRemoteHeartbeatResponseObject, error) {
	beats, err := s.Claims.Heartbeat(ctx, callOf(ctx).who.Actor.TenantID, request.ID, orZero(request.Body.Tokens))
	if err != nil {
		return nil, err
	}
	answer := api.SendRemoteHeartbeat200JSONResponse{Attempts: make([]api.RemoteAttemptStatus, len(beats))}
	for i, b := range beats {
		answer.Attempts[i] = api.RemoteAttemptStatus(b)
	}
	return answer, nil
}

func viewRemoteWorker(w remote.Worker) api.RemoteWorker {
	lease := int(w.Lease / time.Second)
	return api.RemoteWorker{
		ID: w.ID, Name: w.Name, Protocol: remote.Protocol, Functions: w.Functions, Slots: w.Slots, Running: w.Running,
		LeaseSeconds: lease, HeartbeatSeconds: lease / 3, StartedAt: w.StartedAt, HeartbeatAt: w.HeartbeatAt, ExpiresAt: w.ExpiresAt,
	}
}

func viewAssignment(a remote.Assignment) (api.RemoteExecution, error) {
	view := api.RemoteExecution{
		ExecutionID: a.ID, JobID: a.Job, JobName: a.JobName, FunctionName: a.Function, Attempt: a.Attempt, MaxAttempts: a.MaxAttempts,
		ScheduledAt: a.ScheduledAt, TriggerType: api.TriggerType(a.Trigger), TimeoutSeconds: a.Timeout.Seconds(),
		IdempotencyKey: a.ID.String(), Token: a.CallToken,
	}
	if a.Traced != "" {
		view.Traceparent = &a.Traced
	}
	if a.Parameters == nil {
		return view, nil
	}
	object := map[string]any{}
	if err := json.Unmarshal(a.Parameters, &object); err != nil {
		return view, fmt.Errorf("read parameters: %w", err)
	}
	view.Parameters = &object
	return view, nil
}
