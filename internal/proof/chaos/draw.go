package chaos

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
)

// draw makes up a job.
func (l *load) draw(n int) (*work, api.JobSpec) {
	r := l.random
	w := l.work(n%l.tenants, fmt.Sprintf("job %d", n))
	spec := api.JobSpec{Name: w.name, JobType: api.JobTypeHTTP, EndDate: new(l.end)}
	if r.IntN(3) == 0 {
		w.step = time.Duration(1000+100*r.IntN(25)) * time.Millisecond
		spec.Interval = new(w.step.String())
	} else {
		seconds := []int{1, 2, 2, 3, 5}[r.IntN(5)]
		w.every = time.Duration(seconds) * time.Second
		spec.CronExpression = new(fmt.Sprintf("*/%d * * * * *", seconds))
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
		spec.ConcurrencyKey = new(w.key)
	}
	query := fmt.Sprintf("?tenant=%d&ms=%d", w.tenant, takes)
	delay := int64(200 + r.IntN(600))
	fails := r.IntN(8)
	if w.overlap == api.OverlapPolicyQueueAll || w.key != "" {
		fails = 7 // nor must its retries
	}
	failure, retries := l.failure(fails)
	query += failure
	spec.OverlapPolicy, spec.MaxConcurrent = &w.overlap, &w.maxConcurrent
	timeout := 10
	spec.Timeout = &timeout
	spec.RetryConfig = &api.RetryConfig{MaxRetries: &retries, RetryDelayMs: &delay}
	method := []api.HTTPConfigMethod{api.HTTPConfigMethodGET, api.HTTPConfigMethodPOST}[r.IntN(2)]
	called := api.HTTPConfig{Method: &method}
	query += l.callback(&called, fails > 1, w.overlap != api.OverlapPolicyQueueAll && w.key == "")
	called.URL = l.stack.sink.target(query)
	_ = spec.Config.FromHTTPConfig(called) // cannot fail
	if called.Completion == nil && !l.plain {
		l.otherType(&spec, query, fails == 0 && takes <= 50)
	}
	w.jobType = string(spec.JobType)
	w.unwell = spec.JobType == api.JobTypeHTTP && strings.HasPrefix(called.URL, l.stack.sink.unwell)
	return w, spec
}

// failure is what the query says of calls that fail on purpose, and how often those are
// repeated.
func (l *load) failure(drawn int) (query string, retries int) {
	switch {
	case drawn == 0:
		return "&fail=1", 3
	case drawn == 1:
		return "&fail=99", 2
	case drawn == 2 && l.drops:
		return "&drop=1", 3
	}
	return "", 3
}

// otherType has most calls made by a function, a script, a program or a tenant's own worker.
func (l *load) otherType(spec *api.JobSpec, query string, mayBeDeaf bool) {
	switch url := l.stack.sink.url + "/" + query; l.random.IntN(6) {
	case 0, 1:
		l.function(spec, url, mayBeDeaf)
	case 2:
		l.script(spec, url)
	case 3:
		l.command(spec, query)
	case 4:
		l.remote(spec, url)
	}
}

// tellByScript calls the target as a job of type http does, from a runner process.
const tellByScript = `export default async ({ parameters, idempotencyKey, scheduledAt }) => {
	const url = parameters.url + '&scheduled=' + encodeURIComponent(scheduledAt);
	const answer = await fetch(url, { headers: { 'Idempotency-Key': idempotencyKey } });
	if (!answer.ok) throw new Error('the target answers ' + answer.status);
	return { status: answer.status };
};`

// tellByCommand does the same from a program of its own.
const tellByCommand = `exec 3<>"/dev/tcp/127.0.0.1/$PORT"
printf 'GET /%s HTTP/1.1\r\nHost: target\r\nConnection: close\r\nX-Execution-Id: %s\r\nX-Job-Id: %s\r\nX-Attempt: %s\r\nX-Scheduled-At: %s\r\nIdempotency-Key: %s\r\n\r\n' \
	"$QUERY" "$SCHEDULER_EXECUTION_ID" "$SCHEDULER_JOB_ID" "$SCHEDULER_ATTEMPT" "$SCHEDULER_SCHEDULED_AT" "$SCHEDULER_EXECUTION_ID" >&3
read -r _ status _ <&3
[ "$status" = 200 ]`

// repeated has a job repeat each failure, also those that scripts and programs call their
// own.
func repeated(spec *api.JobSpec) {
	spec.RetryConfig.RetryOnErrorTypes = &[]api.ErrorType{api.ErrorTypeTimeout, api.ErrorTypeNetworkError, api.ErrorTypeSystemError, api.ErrorTypeUserError}
}

// script makes of a job that calls its target one whose script does.
func (l *load) script(spec *api.JobSpec, url string) {
	repeated(spec)
	spec.JobType = api.JobTypeJavascript
	_ = spec.Config.FromJavascriptConfig(api.JavascriptConfig{Source: tellByScript, Parameters: &map[string]any{"url": url}}) // cannot fail
}

// command makes of it one whose program does. No program that ends by itself leaves
// another behind, and one that is killed takes all along.
func (l *load) command(spec *api.JobSpec, query string) {
	repeated(spec)
	network, port := true, l.stack.sink.port()
	spec.JobType = api.JobTypeCommand
	_ = spec.Config.FromCommandConfig(api.CommandConfig{ // cannot fail
		Command: "bash", Args: &[]string{"-c", tellByCommand}, Environment: &map[string]string{"PORT": port, "QUERY": query}, Network: &network,
	})
}

// callback has the target of one call in five, if it may, take it and report its end
// later. One report in three comes twice, and one in three too late, if one may. It returns
// what the query says of it.
func (l *load) callback(called *api.HTTPConfig, may, mayBeLate bool) (query string) {
	if l.random.IntN(5) > 0 || l.plain || !may {
		return ""
	}
	how := []string{reportOnce, reportTwice, reportLate}[l.random.IntN(3)]
	if how == reportLate && !mayBeLate {
		how = reportTwice
	}
	completion, heartbeat := api.HTTPConfigCompletionCallback, float64(silence)
	called.Completion, called.HeartbeatTimeout = &completion, &heartbeat
	return "&callback=" + how
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
		Name: w.name, JobType: api.JobTypeHTTP, EndDate: new(l.end),
		CronExpression: new("*/5 * * * * *"), OverlapPolicy: &w.overlap,
	}
	_ = spec.Config.FromHTTPConfig(api.HTTPConfig{URL: fmt.Sprintf("%s/?tenant=%d&ms=1000", l.stack.sink.url, tenant)}) // cannot fail
	return w, spec
}
