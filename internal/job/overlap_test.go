package job_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/job"
)

func TestAdmit(t *testing.T) {
	t.Parallel()
	run, gated := job.Admission{Run: true}, job.Admission{Run: true, Gated: true}
	for _, test := range []struct {
		name   string
		policy job.Overlap
		max    int
		places job.Places
		want   job.Admission
	}{
		{"skip, nothing active", job.OverlapSkip, 1, job.Places{}, run},
		{"skip, one active", job.OverlapSkip, 1, job.Places{Taken: 1}, job.Admission{}},
		{"skip, a trigger waits", job.OverlapSkip, 2, job.Places{Taken: 1, Waiting: 1}, job.Admission{}},
		{"skip, place for another", job.OverlapSkip, 2, job.Places{Taken: 1}, run},
		{"queue_one, nothing active", job.OverlapQueue1, 1, job.Places{}, run},
		{"queue_one, one runs", job.OverlapQueue1, 1, job.Places{Taken: 1}, gated},
		{"queue_one, one waits", job.OverlapQueue1, 1, job.Places{Taken: 1, Waiting: 1}, job.Admission{Gated: true}},
		{"queue_all, below its limit", job.OverlapQueue, 1, job.Places{Taken: 1, Waiting: 2}, gated},
		{"queue_all, at its limit", job.OverlapQueue, 1, job.Places{Taken: 1, Waiting: 3}, job.Admission{Gated: true}},
		{"cancel_running, nothing active", job.OverlapCancel, 1, job.Places{}, run},
		{"cancel_running, one runs", job.OverlapCancel, 1, job.Places{Taken: 1}, job.Admission{Run: true, Gated: true, CancelOthers: true}},
		{"allow", job.OverlapAllow, 1, job.Places{Taken: 50, Waiting: 2}, run},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			spec := job.Spec{Policy: job.Policy{Overlap: test.policy, MaxConcurrent: test.max, OverlapQueueLimit: 3}}
			got := spec.Admit(test.places)
			if !got.Run && got.Reason == "" {
				t.Error("a refusal gives no reason")
			}
			got.Reason = ""
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Admit (-want +got):\n%s", diff)
			}
		})
	}
}

// No policy but allow lets more runs have a place than may run
// at once, and no queue grows beyond its bound.
func TestAdmissionsKeepTheLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := job.Spec{
			Policy: job.Policy{
				Overlap:           rapid.SampledFrom([]job.Overlap{job.OverlapSkip, job.OverlapQueue1, job.OverlapQueue, job.OverlapCancel}).Draw(t, "policy"),
				MaxConcurrent:     rapid.IntRange(1, 5).Draw(t, "max"),
				OverlapQueueLimit: rapid.IntRange(1, 5).Draw(t, "limit"),
			},
		}
		var p job.Places
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				p = p.Took(spec.Admit(p))
			case 2: // a run ends, and the next in line takes its place
				p.Taken = max(0, p.Taken-1)
				if p.Waiting > 0 {
					p.Taken, p.Waiting = p.Taken+1, p.Waiting-1
				}
			default:
				p.Waiting = max(0, p.Waiting-1)
			}
			if p.Taken > spec.MaxConcurrent || p.Waiting > max(1, spec.OverlapQueueLimit) {
				t.Fatalf("%+v under %+v", p, spec)
			}
		}
	})
}
