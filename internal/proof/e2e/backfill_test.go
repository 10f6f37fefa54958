package e2e_test

import (
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/api"
)

// A backfill of a day two months ago, from the request to the last stored
// outcome: each hour once, never more at a time than the job may, and ended in a
// partition that did not exist.
func TestBackfill(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{hinted, polled} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			s := start(t, backend, 2)
			spec := sleepJob(t, "hourly", 50*time.Millisecond)
			atOnce := 2
			spec.CronExpression, spec.MaxConcurrent = new("0 0 * * * *"), &atOnce
			job := s.create(spec)
			from := s.now().UTC().Truncate(24*time.Hour).AddDate(0, -2, 0)
			fast := 6000
			asked, err := s.client.CreateBackfillWithResponse(t.Context(), job.ID, nil, api.BackfillRequest{From: from, To: from.Add(24 * time.Hour), RatePerMinute: &fast})
			if err != nil {
				t.Fatal(err)
			}
			if asked.JSON202 == nil {
				t.Fatalf("create backfill: %s: %s", asked.Status(), asked.Body)
			}
			s.eventually("the backfill is completed", func() bool {
				got, err := s.client.GetBackfillWithResponse(t.Context(), job.ID, asked.JSON202.ID)
				return err == nil && got.JSON200 != nil && got.JSON200.Status == api.BackfillStatusCompleted && got.JSON200.Outcomes.Completed == 24
			})
			var rows, times, together int
			s.query(&rows, "SELECT count(*) FROM job_executions WHERE backfill_id = $1", asked.JSON202.ID)
			s.query(&times, "SELECT count(DISTINCT scheduled_at) FROM job_executions WHERE backfill_id = $1 AND scheduled_at >= $2 AND scheduled_at < $2 + interval '1 day'", asked.JSON202.ID, from)
			s.query(&together, `SELECT max(n) FROM (SELECT (SELECT count(*) FROM job_executions b WHERE b.started_at <= a.started_at AND b.completed_at > a.started_at) AS n
				FROM job_executions a WHERE backfill_id = $1) q`, asked.JSON202.ID)
			if rows != 24 || times != 24 || together > atOnce {
				t.Errorf("%d rows of %d times, %d at once", rows, times, together)
			}
		})
	}
}
