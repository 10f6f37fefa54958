package execution_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
)

// An execution waits for a limit while a long run of its job goes on that began a
// day before, then behind an earlier one of its tenant, and never for another tenant's.
func TestTimelineReadsWhatRanBeside(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	now := clock.Now().UTC().Truncate(time.Millisecond).Add(-time.Minute)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	job, other, stranger := uuid.New(), uuid.New(), uuid.New()
	p.exec("INSERT INTO tenants (id, name) VALUES ($1, 'y')", stranger)
	p.exec(`INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, overlap_policy, max_concurrent)
		VALUES ($1, $2, 'slow', 'ada', 'http', '{"url":"https://example.com/"}', 1, 1, 'queue_all', 1)`, job, p.who.TenantID)
	for _, month := range []time.Time{at(-86400), at(0)} {
		p.exec("SELECT create_job_executions_partition($1)", month)
	}
	add := func(tenant, of uuid.UUID, scheduled, made, started, ended int) uuid.UUID {
		id := execution.ScheduledID(of, at(scheduled))
		p.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, worker_id, created_at, started_at, completed_at)
			VALUES ($1, $2, $3, $4, 1, 'scheduled', 'http', 'completed', 1, gen_random_uuid(), $5, $6, $7)`, id, at(scheduled), tenant, of, at(made), at(started), at(ended))
		return id
	}
	add(p.who.TenantID, job, -86400, -86400, -86400, 5)
	add(p.who.TenantID, other, -10, -10, 7, 20)
	add(stranger, uuid.New(), -10, -10, 8, 20)
	id := add(p.who.TenantID, job, 0, 1, 9, 10)
	line, err := p.store.Timeline(t.Context(), p.who, id)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[execution.PhaseKind]time.Duration{
		execution.PhasePromotion: time.Second, execution.PhaseLimit: 4 * time.Second, execution.PhaseBacklog: 2 * time.Second,
		execution.PhaseQueue: 2 * time.Second, execution.PhaseAttempt: time.Second,
	} {
		if got := line.Spent(kind); got != want {
			t.Errorf("%s took %v, want %v: %+v", kind, got, want, line.Phases)
		}
	}
	if late, known := line.Late(); !known || late != 9*time.Second || line.Partial {
		t.Errorf("it was late by %v (%v), partial: %v", late, known, line.Partial)
	}
	foreign := p.who
	foreign.TenantID = stranger
	if _, err := p.store.Timeline(t.Context(), foreign, id); fault.KindOf(err) != fault.NotFound {
		t.Errorf("another tenant gets %v", err)
	}
}
