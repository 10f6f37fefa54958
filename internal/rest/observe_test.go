package rest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// Requests are counted by operation and outcome; what a caller can make up, a
// path or a method, is no label.
func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	registry := telemetry.NewRegistry()
	b := setup(t, func(d *parts.Deps) { d.Metrics = telemetry.NewMetrics(registry) })
	token := b.token(t, b.ours, identity.Viewer)
	for _, r := range []request{
		{method: "GET", path: "/health/live"},
		{method: "GET", path: base + "/jobs", token: token},
		{method: "GET", path: base + "/jobs", token: token},
		{method: "GET", path: base + "/jobs"},
		{method: "POST", path: base + "/jobs", token: token, body: webhook},
		{method: "GET", path: base + "/jobs/" + uuid.NewString(), token: token},
		{method: "GET", path: base + "/jobs/x", token: token},
		{method: "GET", path: "/" + uuid.NewString()},
		{method: "XYZZY", path: base + "/jobs"},
	} {
		b.send(r)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		if name := family.GetName(); name != "scheduler_operations_total" && name != "scheduler_errors_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			got = append(got, fmt.Sprintf("%s %s %v", family.GetName(), strings.Join(labels, " "), metric.GetCounter().GetValue()))
		}
	}
	slices.Sort(got)
	want := []string{
		"scheduler_errors_total forbidden createJob 1",
		"scheduler_errors_total invalid getJob 1",
		"scheduler_errors_total invalid unknown 1",
		"scheduler_errors_total not_found getJob 1",
		"scheduler_errors_total not_found unknown 1",
		"scheduler_errors_total unauthenticated listJobs 1",
		"scheduler_operations_total createJob refused 1",
		"scheduler_operations_total getJob refused 2",
		"scheduler_operations_total getLiveness ok 1",
		"scheduler_operations_total listJobs ok 2",
		"scheduler_operations_total listJobs refused 1",
		"scheduler_operations_total unknown refused 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts differ (-want +got):\n%s", diff)
	}
}

// The log names request, tenant and operation, and nothing that was sent.
func TestTheLogHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	canary := "canary-7f3a"
	b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: strings.Replace(webhook, "example.com/", "user:"+canary+"@example.com/?key="+canary, 1)})
	b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: `{"name":"` + canary + `","` + canary + `":1}`})
	b.do(t, request{method: "GET", path: base + "/jobs?cursor=" + canary, token: token, header: map[string]string{"X-Secret": canary}})
	b.send(request{method: "GET", path: "/" + canary + "%0a%22level%22", token: canary})
	log := b.log.String()
	if strings.Contains(log, canary) || strings.Contains(log, token) || strings.Contains(log, "eyJ") {
		t.Errorf("the log repeats what was sent:\n%s", log)
	}
	for _, needed := range []string{`"tenant_id":"` + b.ours.TenantID.String() + `"`, `"operation":"createJob"`, `"status":201`, `"duration_ms":`} {
		if !strings.Contains(log, needed) {
			t.Errorf("the log has no %s:\n%s", needed, log)
		}
	}
}
