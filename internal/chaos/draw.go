package chaos

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"

	"github.com/scheduler-service/scheduler/api"
)

// draw makes up a job.
func (l *load) draw(n int) (*work, api.JobSpec) {
	r := l.random
	w := &work{name: fmt.Sprintf("job %d", n), end: l.end, places: 1, triggers: map[string]uuid.UUID{}, overlap: api.OverlapPolicyAllow}
	spec := api.JobSpec{Name: w.name, JobType: api.HTTP, EndDate: nullable.NewNullableWithValue(l.end)}
	if r.IntN(3) == 0 {
		w.step = time.Duration(1000+100*r.IntN(25)) * time.Millisecond
		spec.Interval = nullable.NewNullableWithValue(w.step.String())
	} else {
		seconds := []int{1, 2, 2, 3, 5}[r.IntN(5)]
		w.every = time.Duration(seconds) * time.Second
		spec.CronExpression = nullable.NewNullableWithValue(fmt.Sprintf("*/%d * * * * *", seconds))
	}
	switch r.IntN(8) {
	case 0, 1:
		w.overlap = api.OverlapPolicySkip
	case 2:
		w.overlap, w.places = api.OverlapPolicyQueueAll, 2
	case 3:
		w.overlap = api.OverlapPolicyQueueOne
	case 4:
		w.overlap = api.OverlapPolicyCancelRunning
	}
	takes := []int{0, 0, 50, 200, 700, 1500, 3000}[r.IntN(7)]
	if w.overlap == api.OverlapPolicyQueueAll {
		takes = min(takes, 700) // what it may queue must not outlast the run
	}
	query := fmt.Sprintf("?ms=%d", takes)
	retries, delay := 3, int64(200+r.IntN(600))
	switch r.IntN(8) {
	case 0:
		query += "&fail=1"
	case 1:
		query += "&fail=99"
		retries = 2
	case 2:
		if l.drops {
			query += "&drop=1"
		}
	}
	spec.OverlapPolicy, spec.MaxConcurrent = &w.overlap, &w.places
	timeout := 10
	spec.Timeout = &timeout
	spec.RetryConfig = &api.RetryConfig{MaxRetries: &retries, RetryDelayMs: &delay}
	method := []string{"GET", "POST"}[r.IntN(2)]
	spec.Config, _ = json.Marshal(map[string]any{"url": l.stack.sink.url + "/" + query, "method": method})
	return w, spec
}
