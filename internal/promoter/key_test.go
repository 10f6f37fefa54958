package promoter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/promoter"
)

// Every way in which an execution is made renders its job's concurrency key.
func TestExecutionsCarryTheirKey(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	keyed := func(template string) func(*job.Spec) {
		return func(s *job.Spec) {
			s.ConcurrencyKey, s.Config = template, []byte(`{"modulePath":"builtin","functionName":"noop","parameters":{"device":7}}`)
		}
	}
	past := p.hourly(t, keyed("device-{{config.parameters.device}} {{parameters.account}}"))
	p.ask(t, past, 2, 1)
	if _, err := p.promoter.Backfill(t.Context(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	due := p.create(t, keyed("{{job.name}}: {{config.parameters.device}}"))
	p.pass(t, p.promoter, *due.NextExecutionAt)
	for _, parameters := range []string{`{"account":"a"}`, `{}`} {
		if _, _, err := p.executions.Trigger(t.Context(), p.who, past.ID, []byte(parameters), idempotency.Key{}); err != nil {
			t.Fatal(err)
		}
	}
	plain := p.create(t, keyed("{{parameters.nothing}}"))
	p.pass(t, p.promoter, *plain.NextExecutionAt)

	conn, err := pgx.Connect(t.Context(), p.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	count := func(want int, where string, args ...any) {
		t.Helper()
		var n int // of jobs: on a slow machine a second passes, and a job is due again
		if err := conn.QueryRow(t.Context(), "SELECT count(DISTINCT job_id) FROM active_executions WHERE "+where, args...).Scan(&n); err != nil || n != want {
			t.Errorf("executions of %d jobs where %s %v, want %d; %v", n, where, args, want, err)
		}
	}
	count(1, "job_id = $1 AND concurrency_key = $2", due.ID, "every second: 7")
	count(1, "job_id = $1 AND concurrency_key = $2", past.ID, "device-7 a")
	count(1, "trigger_type = 'manual' AND concurrency_key = $1", "device-7 ")
	count(1, "trigger_type = 'backfill' AND concurrency_key = $1", "device-7 ")
	count(1, "job_id = $1 AND concurrency_key IS NULL", plain.ID)
}

// A promoter that can send no hints calls the workers for each run, in the pool or not.
func TestWorkersAreCalledForWhatHasNoHint(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*job.Spec){
		"in the pool":          nil,
		"of a concurrency key": func(s *job.Spec) { s.ConcurrencyKey = "one" },
		"behind a slot":        func(s *job.Spec) { s.MaxConcurrent = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, called := setup(t), 0
			p, _ := b.countedWith(t, func(c *promoter.Config) { c.CallWorkers = func(context.Context) { called++ } })
			j := b.create(t, edit)
			b.pass(t, p, *j.NextExecutionAt)
			if called != 0 {
				t.Errorf("called %d times for what was hinted", called)
			}
			b.hints.err = errors.New("there is no redis")
			j = b.create(t, edit)
			b.pass(t, p, *j.NextExecutionAt)
			if called != 1 {
				t.Errorf("called %d times for what has no hint, want once", called)
			}
		})
	}
}
