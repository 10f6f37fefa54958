package chaos

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"

	"github.com/scheduler-service/scheduler/api"
)

// draw makes up a job.
func (l *load) draw(n int) (*work, api.JobSpec) {
	r := l.random
	w := l.work(n%l.tenants, fmt.Sprintf("job %d", n))
	spec := api.JobSpec{Name: w.name, JobType: api.JobTypeHTTP, EndDate: nullable.NewNullableWithValue(l.end)}
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
		w.overlap, w.maxConcurrent = api.OverlapPolicyQueueAll, 2
	case 3:
		w.overlap = api.OverlapPolicyQueueOne
	case 4:
		w.overlap = api.OverlapPolicyCancelRunning
	}
	takes := []int{0, 0, 50, 200, 700, 1500, 3000}[r.IntN(7)]
	if w.overlap == api.OverlapPolicyQueueAll {
		takes = min(takes, 700) // what it may queue must not outlast the run
	}
	if r.IntN(6) == 0 { // one after the other, which must suffice
		w.overlap, w.key, takes = api.OverlapPolicyAllow, fmt.Sprintf("device-%d", r.IntN(2)), min(takes, 50)
		spec.ConcurrencyKey = nullable.NewNullableWithValue(w.key)
	}
	query := fmt.Sprintf("?tenant=%d&ms=%d", w.tenant, takes)
	retries, delay := 3, int64(200+r.IntN(600))
	fails := r.IntN(8)
	if w.overlap == api.OverlapPolicyQueueAll || w.key != "" {
		fails = 7 // nor must its retries
	}
	switch fails {
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
	spec.OverlapPolicy, spec.MaxConcurrent = &w.overlap, &w.maxConcurrent
	timeout := 10
	spec.Timeout = &timeout
	spec.RetryConfig = &api.RetryConfig{MaxRetries: &retries, RetryDelayMs: &delay}
	method, url := []api.HTTPConfigMethod{api.HTTPConfigMethodGET, api.HTTPConfigMethodPOST}[r.IntN(2)], l.stack.sink.url+"/"
	_ = spec.Config.FromHTTPConfig(api.HTTPConfig{URL: url + query, Method: &method}) // cannot fail
	if r.IntN(3) == 0 && !l.plain {
		l.function(&spec, url+query, fails == 0 && takes <= 50)
	}
	return w, spec
}

// function makes of a job that calls its target one whose function does (see
// Modules). Where the target fails, the
// function may panic, or not listen when its time is up.
func (l *load) function(spec *api.JobSpec, url string, mayBeDeaf bool) {
	then := []string{"fail", "panic", "deaf"}[l.random.IntN(3)]
	if then == "deaf" && !mayBeDeaf {
		then = "panic"
	}
	if then == "deaf" {
		*spec.Timeout = 1
	}
	spec.JobType = api.JobTypeFunction
	_ = spec.Config.FromFunctionConfig(api.FunctionConfig{ // cannot fail
		ModulePath: "chaos", FunctionName: "call", Parameters: &map[string]any{"url": url, "then": then},
	})
}

func (l *load) work(tenant int, name string) *work {
	return &work{
		tenant: tenant, name: name, end: l.end, maxConcurrent: 1, overlap: api.OverlapPolicyAllow,
		triggers: map[string]uuid.UUID{}, retries: map[string]uuid.UUID{}, cancels: map[uuid.UUID]window{},
	}
}

// burstJob is the job of the burst: it runs as often at once as anybody asks.
func (l *load) burstJob() (*work, api.JobSpec) {
	tenant := l.tenants - 1
	w := l.work(tenant, "burst")
	w.of = w.name
	w.every = 5 * time.Second
	spec := api.JobSpec{
		Name: w.name, JobType: api.JobTypeHTTP, EndDate: nullable.NewNullableWithValue(l.end),
		CronExpression: nullable.NewNullableWithValue("*/5 * * * * *"), OverlapPolicy: &w.overlap,
	}
	_ = spec.Config.FromHTTPConfig(api.HTTPConfig{URL: fmt.Sprintf("%s/?tenant=%d&ms=1000", l.stack.sink.url, tenant)}) // cannot fail
	return w, spec
}
