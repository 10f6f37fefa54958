package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/output"
	"github.com/scheduler-service/scheduler/internal/ratelimit"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// admitCallback opens the token in the path and counts the call: of a good token for its
// tenant, apart from the tenant's own requests; of any other as a request without a good
// token. Nothing of the body was read yet.
func (s *server) admitCallback(r *http.Request, c *call) error {
	attempt, err := s.Callbacks.Open(chi.URLParam(r, "token"))
	if err != nil {
		bucket, failures := "auth:"+guesser(c.from), ratelimit.Rate{Requests: max(1, s.FailuresPerMinute()), Window: time.Minute}
		if v := s.Buckets.Take(r.Context(), bucket, failures); !v.OK {
			return s.tooMany(failures, "authenticationFailures", v.Retry, "too many requests from this address had no good token")
		}
		return callback.NotFound()
	}
	c.attempt = attempt
	rate := ratelimit.Rate{Requests: max(1, orZero(s.Limits().RequestsPerSecond)), Window: time.Second, Cost: c.cost()}
	if v := s.Buckets.Take(r.Context(), "callbacks:"+attempt.Tenant.String(), rate); !v.OK {
		return s.tooMany(rate, "callbacksPerSecond", v.Retry, fmt.Sprintf("the targets of one tenant may report %d times a second", rate.Requests))
	}
	return nil
}

// callbackContext has the log lines of a report name its tenant.
func callbackContext(r *http.Request, c *call) *http.Request {
	return r.WithContext(telemetry.WithIDs(r.Context(), telemetry.IDs{Tenant: c.attempt.Tenant.String()}))
}

// SendHeartbeat is POST /callbacks/{token}/heartbeat.
func (s *server) SendHeartbeat(ctx context.Context, _ api.SendHeartbeatRequestObject) (api.SendHeartbeatResponseObject, error) {
	if err := s.Callbacks.Heartbeat(ctx, callOf(ctx).attempt, -1, ""); err != nil {
		return nil, err
	}
	return api.SendHeartbeat200JSONResponse{Status: api.ExecutionStatus(execution.Running)}, nil
}

// ReportProgress is POST /callbacks/{token}/progress.
func (s *server) ReportProgress(ctx context.Context, request api.ReportProgressRequestObject) (api.ReportProgressResponseObject, error) {
	if err := s.Callbacks.Heartbeat(ctx, callOf(ctx).attempt, request.Body.Progress, orZero(request.Body.Message)); err != nil {
		return nil, err
	}
	return api.ReportProgress200JSONResponse{Status: api.ExecutionStatus(execution.Running)}, nil
}

// ReportOutput is POST /callbacks/{token}/output.
func (s *server) ReportOutput(ctx context.Context, request api.ReportOutputRequestObject) (api.ReportOutputResponseObject, error) {
	lines := make([]output.Line, len(request.Body.Lines))
	for i, l := range request.Body.Lines {
		lines[i] = output.Line{At: s.Clock(), Stream: executor.Stdout, Text: l.Text}
		if l.Stream != nil {
			lines[i].Stream = executor.Stream(*l.Stream)
		}
		override(&lines[i].At, l.At)
	}
	if err := s.Claims.Output(ctx, callOf(ctx).attempt, request.Body.FirstLine, lines); err != nil {
		return nil, err
	}
	return api.ReportOutput200JSONResponse{Status: api.ExecutionStatus(execution.Running)}, nil
}

// ReportCompletion is POST /callbacks/{token}/complete.
func (s *server) ReportCompletion(ctx context.Context, request api.ReportCompletionRequestObject) (api.ReportCompletionResponseObject, error) {
	report, fields := reportOf(orZero(request.Body))
	if len(fields) > 0 {
		return nil, wrong(fields...)
	}
	status, err := s.Callbacks.Complete(ctx, callOf(ctx).attempt, report)
	if err != nil {
		return nil, err
	}
	return api.ReportCompletion200JSONResponse{Status: api.ExecutionStatus(status)}, nil
}

func reportOf(body api.CompletionReport) (report callback.Report, fields []fault.Field) {
	report.Result = orZero[json.RawMessage](body.Result)
	if len(report.Result) > executor.MaxResult {
		fields = append(fields, fault.Field{Path: "result", Rule: "length", Message: fmt.Sprintf("must have at most %d bytes", executor.MaxResult)})
	}
	if body.Error == nil {
		return report, fields
	}
	if len(report.Result) > 0 {
		fields = append(fields, fault.Field{Path: "result", Rule: "conflict", Message: "must be left out beside error"})
	}
	report.Err = &callback.Failure{Type: string(executor.SystemError), Message: body.Error.Message, Retry: body.Error.Retry}
	if body.Error.Type != nil {
		report.Err.Type = string(*body.Error.Type)
	}
	return report, fields
}
