package simulation

import (
	"time"

	"github.com/scheduler-service/scheduler/internal/job"
)

// drawSpec makes a job that is due every few seconds, of any policy.
func drawSpec(intn func(int) int) job.Spec {
	overlaps := []job.Overlap{job.OverlapSkip, job.OverlapQueue1, job.OverlapQueue, job.OverlapCancel, job.OverlapAllow}
	misfires := []job.MisfirePolicy{job.MisfireSkip, job.FireOnce, job.FireAll}
	s := job.Spec{
		Type: []string{"function", "http"}[intn(2)], Retry: job.Retry{MaxRetries: intn(3), DelayMS: 500, MaxDelayMS: 4000, Exponential: true, OnErrorTypes: []string{"NETWORK_ERROR", "TIMEOUT"}},
		Policy: job.Policy{
			Interval: job.Duration(time.Duration(1+intn(4)) * time.Second), Timezone: "UTC", Timeout: 1 + intn(5), Priority: intn(3) * 4,
			MaxConcurrent: 1 + intn(3), Overlap: overlaps[intn(len(overlaps))], OverlapQueueLimit: 1 + intn(4),
			Misfire: job.Misfire{Policy: misfires[intn(len(misfires))], Limit: 1 + intn(5), GraceSeconds: 1 + intn(6)},
		},
	}
	if intn(3) == 0 {
		s.ConcurrencyKey = []string{"press", "lathe"}[intn(2)]
	}
	if intn(6) == 0 {
		s.MaxExecutions = int64(3 + intn(10))
	}
	return s
}
