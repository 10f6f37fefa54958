package rest_test

import (
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
)

// BenchmarkCreateAmongMany creates jobs of a tenant that has 100,000 already,
// and a bound on them.
func BenchmarkCreateAmongMany(b *testing.B) {
	api := setup(b, func(d *parts.Deps) { d.Log = slog.New(slog.DiscardHandler) })
	api.makeJob(b, api.ours)
	admin, err := pgx.Connect(b.Context(), api.database.AdminURL)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = admin.Close(b.Context()) }()
	_, err = admin.Exec(b.Context(), `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds)
		SELECT gen_random_uuid(), $1, 'n', 'ada', 'http', '{}', 1, 1 FROM generate_series(1, 100000)`, api.ours.TenantID)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := admin.Exec(b.Context(), "UPDATE tenants SET max_jobs = 10000000 WHERE id = $1", api.ours.TenantID); err != nil {
		b.Fatal(err)
	}
	token := api.token(b, api.ours, identity.Admin)
	for b.Loop() {
		if got := api.send(request{method: "POST", path: base + "/jobs", token: token, body: webhook}); got.status != 201 {
			b.Fatalf("answered %d %s", got.status, got.body)
		}
	}
}
