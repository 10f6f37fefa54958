package rest_test

import (
	"log/slog"
	"testing"

	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest"
)

// BenchmarkRequests is one request after another through the whole handler and
// the database, without a network.
func BenchmarkRequests(b *testing.B) {
	api := setup(b, func(d *rest.Deps) { d.Log = slog.New(slog.DiscardHandler) })
	token := api.token(b, api.ours, identity.Admin)
	for range 100 {
		api.makeJob(b, api.ours)
	}
	one := base + "/jobs/" + api.makeJob(b, api.ours).ID.String()
	for _, sample := range []struct {
		name   string
		status int
		request
	}{
		{"refused token", 401, request{method: "GET", path: one, token: "x.y.z"}},
		{"refused body", 400, request{method: "POST", path: base + "/jobs", token: token, body: `{"name":1,"x":2}`}},
		{"get", 200, request{method: "GET", path: one, token: token}},
		{"list 20", 200, request{method: "GET", path: base + "/jobs", token: token}},
		{"list 100", 200, request{method: "GET", path: base + "/jobs?limit=100", token: token}},
		{"create", 201, request{method: "POST", path: base + "/jobs", token: token, body: webhook}},
	} {
		b.Run(sample.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := api.send(sample.request); got.status != sample.status {
					b.Fatalf("answered %d %s", got.status, got.body)
				}
			}
		})
	}
}
