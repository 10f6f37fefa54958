package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/api/client"
)

const (
	lease    = 10 // seconds that the worker may be silent
	patience = time.Second
	reports  = 20 // times that a report is sent
)

// Why a run ends before its time.
var (
	errTimeout = errors.New("the time is up")
	errLost    = errors.New("the service asked for its end, or gave the attempt up")
)

// function is what an execution may call.
type function struct {
	run         func(ctx context.Context, e api.RemoteExecution, tell teller) (any, error)
	description string
	parameters  map[string]any // their JSON schema; nil takes any
}

// teller is what a function may say while it runs. It is for people, and may be lost.
type teller struct {
	progress func(percent int)
	print    func(lines ...string) // to standard output; from one goroutine
}

// worker claims executions and runs them.
type worker struct {
	api       *client.Client
	log       *slog.Logger
	functions map[string]function
	slots     chan struct{} // holds one for each that is taken
	runs      sync.WaitGroup
	claimID   uuid.UUID // of the next claim; the same until one brings something

	mu      sync.Mutex
	id      uuid.UUID
	running map[string]context.CancelCauseFunc // by the token of the attempt
}

// work runs executions until ctx ends. Then it claims no more, finishes what runs, and deregisters.
func (w *worker) work(ctx context.Context) error {
	every, err := w.register(ctx)
	if err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx)) // of what it still runs then
	defer end()
	go w.beat(life, every)
	for ctx.Err() == nil {
		w.claim(ctx, life)
	}
	w.runs.Wait()
	_, err = w.api.DeregisterRemoteWorkerWithResponse(life, w.self())
	return err
}

// register starts a lease, and says how often to prolong it.
func (w *worker) register(ctx context.Context) (every time.Duration, err error) {
	host, _ := os.Hostname()
	slots, seconds := cap(w.slots), lease
	spec := api.RemoteWorkerSpec{Name: host, Protocol: 1, Slots: &slots, LeaseSeconds: &seconds}
	for name, f := range w.functions {
		one := api.RemoteFunction{Name: name, Description: &f.description}
		if f.parameters != nil {
			one.Parameters = &f.parameters
		}
		spec.Functions = append(spec.Functions, one)
	}
	answer, err := w.api.RegisterRemoteWorkerWithResponse(ctx, spec)
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	w.id = answer.JSON201.ID
	w.mu.Unlock()
	return time.Duration(answer.JSON201.HeartbeatSeconds) * time.Second, nil
}

func (w *worker) self() uuid.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.id
}

// claim waits for a free slot and then for executions, as many as there are free slots. A claim
// that waits is not broken off: the service may be answering it.
func (w *worker) claim(ctx, life context.Context) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	most := 1
	for ; most < cap(w.slots); most++ {
		select {
		case w.slots <- struct{}{}:
			continue
		default:
		}
		break
	}
	answer, err := w.api.ClaimRemoteExecutionsWithResponse(life, w.self(), api.RemoteClaim{Most: &most, ClaimID: &w.claimID})
	var claimed []api.RemoteExecution
	if err == nil {
		if claimed = answer.JSON200.Executions; len(claimed) > 0 {
			w.claimID = uuid.New() // until then a claim whose answer was lost is repeated
		}
	} else if w.again(life, err); ctx.Err() == nil && is(err, http.StatusNotFound) {
		if _, err := w.register(ctx); err != nil {
			w.log.WarnContext(ctx, "not registered", "error", err)
		}
	}
	for range most - len(claimed) {
		<-w.slots
	}
	for _, e := range claimed {
		w.runs.Go(func() {
			w.execute(life, e)
			<-w.slots
		})
	}
}

// again waits before a call that failed is made again.
func (w *worker) again(ctx context.Context, err error) {
	w.log.WarnContext(ctx, "a call failed", "error", err)
	select {
	case <-time.After(patience):
	case <-ctx.Done():
	}
}

func is(err error, status int) bool {
	var refusal *client.Error
	return errors.As(err, &refusal) && refusal.Status == status
}

// execute runs an execution and reports its end.
func (w *worker) execute(life context.Context, e api.RemoteExecution) {
	timed, stop := context.WithTimeoutCause(life, time.Duration(e.TimeoutSeconds*float64(time.Second)), errTimeout)
	defer stop()
	ctx, end := context.WithCancelCause(timed)
	defer end(nil)
	w.mu.Lock()
	w.running[e.Token] = end
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.running, e.Token)
		w.mu.Unlock()
	}()
	result, err := w.functions[e.FunctionName].run(ctx, e, w.teller(life, e))
	w.report(life, e, reportOf(result, err))
}

func (w *worker) teller(life context.Context, e api.RemoteExecution) teller {
	next := 1 // the number of the next line
	return teller{
		progress: func(percent int) {
			_, _ = w.api.ReportProgressWithResponse(life, e.Token, api.ProgressReport{Progress: percent})
		},
		print: func(texts ...string) {
			report := api.OutputReport{FirstLine: next}
			for _, text := range texts {
				report.Lines = append(report.Lines, api.OutputLine{Text: text})
			}
			next += len(texts)
			_, _ = w.api.ReportOutputWithResponse(life, e.Token, report)
		},
	}
}

// reportOf is how an execution ended. An error is the job's own fault, and not retried; of
// another type it would be.
func reportOf(result any, err error) (report api.CompletionReport) {
	if err == nil {
		var text json.RawMessage
		if text, err = json.Marshal(result); err == nil {
			report.Result = &text
			return report
		}
	}
	kind := api.ErrorTypeUserError
	if errors.Is(err, errTimeout) {
		kind = api.ErrorTypeTimeout
	}
	report.Error = &api.CompletionError{Type: &kind, Message: err.Error()}
	return report
}

// report repeats a report until it is answered: the same one changes nothing twice.
func (w *worker) report(ctx context.Context, e api.RemoteExecution, report api.CompletionReport) {
	for range reports {
		_, err := w.api.ReportCompletionWithResponse(ctx, e.Token, report)
		switch {
		case err == nil, is(err, http.StatusConflict): // or it ended otherwise
			return
		case is(err, http.StatusBadRequest), is(err, http.StatusRequestEntityTooLarge):
			kind := api.ErrorTypeUserError
			report = api.CompletionReport{Error: &api.CompletionError{Type: &kind, Message: fmt.Sprintf("the end cannot be stored: %.500s", err)}}
		}
		w.again(ctx, err)
	}
}

// beat says that the worker and what it runs go on, and ends what shall not.
func (w *worker) beat(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		var tokens []string
		w.mu.Lock()
		for token := range w.running {
			tokens = append(tokens, token)
		}
		w.mu.Unlock()
		answer, err := w.api.SendRemoteHeartbeatWithResponse(ctx, w.self(), api.RemoteHeartbeat{Tokens: &tokens})
		if err != nil { // with 404 the next claim registers again, and the attempts go on
			w.log.WarnContext(ctx, "heartbeat failed", "error", err)
			continue
		}
		for i, status := range answer.JSON200.Attempts {
			if status == api.RemoteAttemptStatusRunning {
				continue
			}
			w.mu.Lock()
			if end := w.running[tokens[i]]; end != nil {
				end(errLost)
			}
			w.mu.Unlock()
		}
	}
}
