package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
)

// A target fails, two workers hold back what would call it, and once it is well again one
// call closes the breaker and the others follow.
func TestFailingTargetIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := stores(t, hinted)
	s.up(2)
	var well atomic.Bool
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(target.Close)
	retries, delay, allow := 5, int64(100), api.OverlapPolicyAllow
	job := s.create(api.JobSpec{
		Name: "call", OverlapPolicy: &allow, RetryConfig: &api.RetryConfig{MaxRetries: &retries, RetryDelayMs: &delay}, JobType: api.JobTypeHTTP, Config: config(t, map[string]any{"url": target.URL}),
	}).ID
	var held []uuid.UUID
	s.eventually("two calls are held back", func() bool {
		s.trigger(job)
		held = nil
		for _, e := range s.executions(job) {
			if w := e.WaitingOn; w != nil && w.Reason == api.WaitReasonCircuitBreaker {
				held = append(held, e.ID)
			}
		}
		return len(held) >= 2
	})
	open, err := s.client.ListCircuitBreakersWithResponse(t.Context(), &api.ListCircuitBreakersParams{})
	if err != nil || open.JSON200 == nil || len(open.JSON200.Items) != 1 || open.JSON200.Items[0].Host != "127.0.0.1" {
		t.Fatalf("the list of breakers: %v, %s", err, open.Body)
	}
	well.Store(true)
	s.eventually("those that were held back complete", func() bool {
		var moved int // the pause passes and one of the waits; the others are let go when the breaker closes
		s.query(&moved, `WITH probe AS (UPDATE circuit_breakers SET retry_at = now() WHERE state = 'open'),
			waits AS (UPDATE active_executions SET available_at = now() WHERE status IN ('pending', 'retrying') AND held_until = available_at AND id = $1) SELECT 1`, held[0])
		for _, id := range held {
			if s.execution(id).Status != api.ExecutionStatusCompleted {
				return false
			}
		}
		return true
	})
}
