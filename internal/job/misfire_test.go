package job_test

import (
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/job"
)

func TestMisfireDecide(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	ago := func(seconds ...int) (times []time.Time) {
		for _, s := range seconds {
			times = append(times, now.Add(-time.Duration(s)*time.Second))
		}
		return times
	}
	rule := func(p job.MisfirePolicy, limit int) job.Misfire {
		return job.Misfire{Policy: p, Limit: limit, GraceSeconds: 60}
	}
	for _, test := range []struct {
		name  string
		rule  job.Misfire
		times []time.Time
		want  int
	}{
		{"nothing is due", rule(job.FireOnce, 10), nil, 0},
		{"on time", rule(job.FireOnce, 10), ago(0), 0},
		{"within the grace time all run", rule(job.FireOnce, 10), ago(59, 30, 1), 0},
		{"exactly the grace time is within it", rule(job.MisfireSkip, 10), ago(60), 0},
		{"fire_once runs the newest late one", rule(job.FireOnce, 10), ago(3600, 1800, 61), 2},
		{"fire_once and those in time", rule(job.FireOnce, 10), ago(3600, 1800, 30, 1), 1},
		{"skip runs none that is late", rule(job.MisfireSkip, 10), ago(3600, 1800, 30), 2},
		{"skip of a single late one", rule(job.MisfireSkip, 10), ago(3600), 1},
		{"fire_all runs all", rule(job.FireAll, 10), ago(3600, 1800, 30), 0},
		{"fire_all up to the limit, the newest", rule(job.FireAll, 2), ago(3600, 1800, 900, 30), 2},
		{"the limit holds within the grace time too", rule(job.FireOnce, 2), ago(50, 40, 30), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := test.rule.Decide(test.times, now); got != test.want {
				t.Errorf("Decide = %d missed, want %d", got, test.want)
			}
		})
	}
}
