package rest_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
)

// BenchmarkRequests is one request after another through the whole handler and
// the database, without a network.
func BenchmarkRequests(b *testing.B) {
	api := setup(b, func(d *parts.Deps) { d.Log = slog.New(slog.DiscardHandler) })
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

// BenchmarkBulk acts on 100,000 jobs by one call of each verb; with
// SCHEDULER_TEST_POSTGRES=stock on a PostgreSQL with all its defaults, which waits for
// the disk at each commit.
func BenchmarkBulk(b *testing.B) {
	const jobs = 100_000
	all := setup(b, func(d *parts.Deps) { d.Log = slog.New(slog.DiscardHandler) })
	admin, token := all.connect(b), all.token(b, all.ours, identity.Admin)
	if _, err := admin.Exec(b.Context(), "INSERT INTO tenants (id, name) VALUES ($1, 'x')", all.ours.TenantID); err != nil {
		b.Fatal(err)
	}
	if _, err := admin.Exec(b.Context(), `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, created_at, cron_expression, job_type, config, max_attempts, timeout_seconds, next_execution_at)
		SELECT gen_random_uuid(), $1, 'job ' || n, 'ada', now() - n * interval '1 s', '0 */5 * * * *', 'http',
		       jsonb_build_object('url', 'https://example.com/' || n, 'body', repeat('x', 300)), 1, 1, now() + n % 300 * interval '1 s'
		FROM generate_series(1, $2::int) n`, all.ours.TenantID, jobs); err != nil {
		b.Fatal(err)
	}
	if _, err := admin.Exec(b.Context(), "VACUUM ANALYZE job_definitions, job_schedule"); err != nil {
		b.Fatal(err)
	}
	for _, verb := range []string{"pause", "resume", "stop", "delete"} {
		b.Run(verb, func(b *testing.B) {
			for b.Loop() {
				for done, calls, next := 0, 1, ""; done < jobs; calls++ {
					got := all.send(request{method: "POST", path: base + "/jobs/bulk/" + verb, token: token, body: `{"all":true,"limit":100000` + next + `}`})
					var result api.BulkResult
					if err := json.Unmarshal([]byte(got.body), &result); err != nil || got.status != http.StatusOK || result.FaultCount > 0 || result.DoneCount == 0 {
						b.Fatalf("answered %d %.300s: %v", got.status, got.body, err)
					}
					if done += result.DoneCount; done < jobs {
						next = fmt.Sprintf(`,"cursor":%q`, *result.NextCursor)
					}
					b.ReportMetric(float64(calls), "calls")
				}
			}
		})
	}
}
