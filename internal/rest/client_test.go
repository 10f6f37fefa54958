package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// The generated client and the server understand one another, over a socket.
func TestTheGeneratedClient(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := httptest.NewServer(b.handler)
	t.Cleanup(server.Close)
	token := b.token(t, b.ours, identity.Developer)
	client, err := api.NewClientWithResponses(server.URL, api.WithHTTPClient(server.Client()),
		api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+token)
			return nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	key := "key-1"
	var config api.JobConfig
	if err := config.FromHTTPConfig(api.HTTPConfig{URL: "https://example.com/"}); err != nil {
		t.Fatal(err)
	}
	created, err := client.CreateJobWithResponse(t.Context(), &api.CreateJobParams{IdempotencyKey: &key}, api.JobSpec{
		Name: "a", JobType: api.JobTypeHTTP, Config: config, Interval: new("30s"),
	})
	if err != nil || created.JSON201 == nil {
		t.Fatalf("create: %v, %s", err, created.Body)
	}
	if sent, err := created.JSON201.Config.AsHTTPConfig(); err != nil || sent.URL != "https://example.com/" {
		t.Errorf("the client reads the config as %+v, %v", sent, err)
	}
	match := created.HTTPResponse.Header.Get("ETag")
	updated, err := client.UpdateJobWithResponse(t.Context(), created.JSON201.ID, &api.UpdateJobParams{IfMatch: &match}, api.JobSpec{
		Name: "b", JobType: "http", Config: created.JSON201.Config, RetryConfig: &created.JSON201.RetryConfig,
		Trigger: new(api.JobSpecTriggerManual),
	})
	if err != nil || updated.JSON200 == nil || updated.JSON200.Version != 2 || updated.JSON200.Interval != nil {
		t.Fatalf("update: %v, %s", err, updated.Body)
	}
	stale, err := client.UpdateJobWithResponse(t.Context(), created.JSON201.ID, &api.UpdateJobParams{IfMatch: &match}, api.JobSpec{
		Name: "c", JobType: "http", Config: created.JSON201.Config, Trigger: new(api.JobSpecTriggerManual),
	})
	if err != nil || stale.JSON412 == nil || stale.JSON412.Error.Code != "PRECONDITION_FAILED" {
		t.Fatalf("stale update: %v, %s", err, stale.Body)
	}
	run, err := client.TriggerJobWithResponse(t.Context(), created.JSON201.ID, nil, api.TriggerRequest{Parameters: json.RawMessage(`{"a":1}`)})
	if err != nil || run.JSON202 == nil {
		t.Fatalf("trigger: %v, %s", err, run.Body)
	}
	list, err := client.ListExecutionsWithResponse(t.Context(), &api.ListExecutionsParams{
		JobID: &created.JSON201.ID, Status: &api.ExecutionStatuses{"pending", "running"}, From: &created.JSON201.CreatedAt,
	})
	if err != nil || list.JSON200 == nil || len(list.JSON200.Items) != 1 || list.JSON200.Items[0].ID != run.JSON202.ID {
		t.Fatalf("list: %v, %s", err, list.Body)
	}
}
