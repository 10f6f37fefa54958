package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/api/client"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// example is what docs/use/clients.md shows.
func example(ctx context.Context, url, token string) (names []string, err error) {
	// begin
	scheduler, err := client.New(client.Config{URL: url, Token: token})
	if err != nil {
		return nil, err
	}
	made, err := scheduler.CreateJobWithResponse(ctx, &api.CreateJobParams{IdempotencyKey: client.Key()}, api.JobSpec{
		Name: "report", CronExpression: new("0 9 * * *"),
		JobType: api.JobTypeHTTP, Config: client.HTTP(api.HTTPConfig{URL: "https://example.com/"}),
	})
	var refused *client.Error
	if errors.As(err, &refused) && refused.Code == "QUOTA_EXCEEDED" {
		return nil, errors.New("there is no room for another job")
	}
	if err != nil {
		return nil, err
	}
	names = append(names, made.JSON201.Name)
	for job, err := range scheduler.Jobs(ctx, api.ListJobsParams{}) {
		if err != nil {
			return nil, err
		}
		names = append(names, job.Name)
	}
	// end
	return names, nil
}

func TestTheGoClient(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := httptest.NewServer(b.handler)
	t.Cleanup(server.Close)
	token := b.token(t, b.ours, identity.Developer)
	for range 45 { // more than two pages
		b.makeJob(t, b.ours)
	}
	names, err := example(t.Context(), server.URL, token)
	if err != nil || len(names) != 47 || names[0] != "report" || names[1] != "report" {
		t.Errorf("the example: %v, %v", names, err)
	}
	scheduler, err := client.New(client.Config{URL: server.URL, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	var refused *client.Error
	_, err = scheduler.GetJobWithResponse(t.Context(), uuid.New())
	if !errors.As(err, &refused) || refused.Status != http.StatusNotFound || refused.Code != "JOB_NOT_FOUND" || refused.RequestID == "" {
		t.Errorf("a job that is not there: %v", err)
	}
	_, err = scheduler.CreateJobWithResponse(t.Context(), nil, api.JobSpec{Name: "", JobType: "http", Config: client.HTTP(api.HTTPConfig{})})
	if !errors.As(err, &refused) || refused.Code != "VALIDATION_FAILED" || len(refused.Details) == 0 || !strings.Contains(err.Error(), refused.Details[0].Field) {
		t.Errorf("a bad job: %v", err)
	}
	for _, err := range scheduler.Executions(t.Context(), api.ListExecutionsParams{Limit: ptr(1000)}) {
		if !errors.As(err, &refused) || refused.Code != "VALIDATION_FAILED" {
			t.Errorf("a bad list: %v", err)
		}
	}
	text, err := scheduler.Call(t.Context(), http.MethodGet, "/api/v1/scheduler/jobs", url.Values{"limit": {"1"}}, nil, nil)
	if err != nil || !strings.Contains(string(text), `"nextCursor":"`) {
		t.Errorf("a call that is written out: %s, %v", text, err)
	}
	if _, err := scheduler.Call(t.Context(), http.MethodGet, "/api/v1/scheduler/jobs/none", nil, nil, nil); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("a call that is refused: %v", err)
	}
	if _, err := client.New(client.Config{URL: "localhost", Token: token}); err == nil {
		t.Error("an address without a host is taken")
	}
	if function, err := client.Function(api.FunctionConfig{FunctionName: "f"}).AsFunctionConfig(); err != nil || function.FunctionName != "f" {
		t.Errorf("a function: %+v, %v", function, err)
	}
}

// lossy loses the first answers, after the service did what it was asked for.
type lossy struct{ lost, sent atomic.Int64 }

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	l.sent.Add(1)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && l.lost.Add(-1) >= 0 {
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		return nil, errors.New("the connection broke")
	}
	return answer, err
}

func TestTheGoClientRepeats(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) {
		d.Limits = func() tenant.Limits { return tenant.Limits{RequestsPerSecond: ptr(5)} }
	})
	server := httptest.NewServer(b.handler)
	t.Cleanup(server.Close)
	broken := &lossy{}
	scheduler, err := client.New(client.Config{URL: server.URL, Token: b.token(t, b.ours, identity.Developer), HTTP: &http.Client{Transport: broken}})
	if err != nil {
		t.Fatal(err)
	}
	spec := api.JobSpec{Name: "a", JobType: "http", Config: client.HTTP(api.HTTPConfig{URL: "https://example.com/"}), Trigger: new(api.JobSpecTriggerManual)}
	broken.lost.Store(2)
	if _, err := scheduler.CreateJobWithResponse(t.Context(), &api.CreateJobParams{IdempotencyKey: client.Key()}, spec); err != nil || broken.sent.Load() != 3 || b.stored(t)["scheduled_jobs"] != 1 {
		t.Errorf("with a key: %v, sent %d times, %d jobs", err, broken.sent.Load(), b.stored(t)["scheduled_jobs"])
	}
	broken.lost.Store(1)
	if _, err := scheduler.CreateJobWithResponse(t.Context(), nil, spec); err == nil || broken.sent.Load() != 4 {
		t.Errorf("without a key: %v, sent %d times", err, broken.sent.Load())
	}
	for range 20 { // beyond the rate, which it waits for
		if _, err := scheduler.ListJobsWithResponse(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	hasty, err := client.New(client.Config{URL: server.URL, Token: b.token(t, b.ours, identity.Developer), MaxWait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var refused *client.Error
	for range 100 {
		if _, err = hasty.ListJobsWithResponse(t.Context(), nil); err != nil {
			break
		}
	}
	if !errors.As(err, &refused) || refused.Code != "RATE_LIMITED" || refused.RetryAfter == 0 || refused.Limit == nil {
		t.Errorf("one that does not wait: %v", err)
	}
}

// The page on clients shows code that a test runs, and both clients have one version.
func TestClientsAreAsDocumented(t *testing.T) {
	t.Parallel()
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, code, _ := strings.Cut(read("goclient_test.go"), "\t// begin\n")
	code, _, _ = strings.Cut(code, "\t// end\n")
	var lines []string
	for line := range strings.Lines(code) {
		lines = append(lines, strings.TrimPrefix(line, "\t"))
	}
	if !strings.Contains(read("../../docs/use/clients.md"), strings.Join(lines, "")) {
		t.Error("docs/use/clients.md does not show the example of this file")
	}
	var published struct{ Version string }
	if err := json.Unmarshal([]byte(read("../../api/typescript/package.json")), &published); err != nil || published.Version != client.Version {
		t.Errorf("the TypeScript client has version %s, the Go client %s: %v", published.Version, client.Version, err)
	}
}
