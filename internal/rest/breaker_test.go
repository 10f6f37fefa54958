package rest_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// makeBreaker stores an open circuit breaker, as a worker would.
func (b *bundle) makeBreaker(t *testing.T, owner tenant.Actor, id uuid.UUID) {
	t.Helper()
	if _, err := b.engine.Pool().Exec(t.Context(), `
		INSERT INTO circuit_breakers (id, tenant_id, host, state, failures, failing_since, failed_at, reason, opened_at, retry_at, pause_seconds, created_at)
		VALUES ($1, $2, $3, 'open', 10, now(), now(), 'TIMEOUT: slow', now(), now() + interval '30 seconds', 30, now())`,
		id, owner.TenantID, id.String()+".example.com"); err != nil {
		t.Fatal(err)
	}
}

// A tenant lists its breakers in pages and closes one, which the audit log records.
func TestCircuitBreakers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Operator)
	for range 3 {
		b.makeBreaker(t, b.ours, uuid.New())
	}
	b.makeBreaker(t, b.theirs, uuid.New())
	first := read[api.CircuitBreakerPage](t, b.do(t, request{method: "GET", path: base + "/circuit-breakers?limit=2", token: token}), http.StatusOK)
	if len(first.Items) != 2 || !first.HasMore {
		t.Fatalf("the first page is %+v", first)
	}
	second := read[api.CircuitBreakerPage](t, b.do(t, request{method: "GET", path: base + "/circuit-breakers?limit=2&cursor=" + *first.NextCursor, token: token}), http.StatusOK)
	if len(second.Items) != 1 || second.HasMore {
		t.Errorf("the second page is %+v", second)
	}
	one := second.Items[0]
	if one.State != api.CircuitBreakerStateOpen || one.Failures != 10 || one.Reason != "TIMEOUT: slow" || one.OpenedAt == nil || one.RetryAt == nil {
		t.Errorf("a breaker is %+v", one)
	}
	closing := request{method: "DELETE", path: base + "/circuit-breakers/" + one.ID.String(), token: token}
	if got := b.do(t, closing); got.status != http.StatusNoContent {
		t.Fatalf("closing it: %d %s", got.status, got.body)
	}
	refused(t, b.do(t, closing), http.StatusNotFound, "NOT_FOUND")
	entries := read[api.AuditPage](t, b.do(t, request{method: "GET", path: base + "/audit?objectType=circuitBreaker", token: b.token(t, b.ours, identity.Admin)}), http.StatusOK)
	if len(entries.Items) != 1 || entries.Items[0].Action != "closeCircuitBreaker" {
		t.Errorf("the audit log says %+v", entries.Items)
	}
}
