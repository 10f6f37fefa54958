package promoter_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/job"
)

// A job that was away for longer than history is kept still ends what it runs:
// each time has the partition that its outcome goes to.
func TestRunsOfTimesLongPastHaveTheirPartition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) {
		s.CronExpression, s.Misfire, s.Overlap = "0 0 0 1 * *", job.Misfire{Policy: job.FireAll}, job.OverlapAllow
	})
	admin, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	_, err = admin.Exec(t.Context(), "UPDATE scheduled_jobs SET next_execution_at = date_trunc('month', now(), 'UTC') - interval '20 months', anchor_at = '2001-01-01' WHERE id = $1", j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r := b.pass(t, b.promoter, time.Time{}); r.Promoted < 20 {
		t.Fatalf("promoted %+v", r)
	}
	var without int
	err = admin.QueryRow(t.Context(), `SELECT count(*) FROM active_executions
		WHERE to_regclass('job_executions_' || to_char(scheduled_at AT TIME ZONE 'UTC', 'YYYY_MM')) IS NULL`).Scan(&without)
	if err != nil || without > 0 {
		t.Errorf("%d runs have no partition: %v", without, err)
	}
}
