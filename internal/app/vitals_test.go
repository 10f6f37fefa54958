package app

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// The services are well while a worker lives and a promoter has counted lately; the
// API's role may ask for both.
func TestServicesLive(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: postgres.API, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	admin, err := pgx.Connect(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context()) // it has done its work
	v := vitals{db: db, fleet: fleet.NewStore(db)}
	for _, step := range []struct {
		name, sql string
		well      bool
	}{
		{"nobody was ever there", "", false},
		{"a worker alone", "INSERT INTO workers (id, host, pid, slots, expires_at) VALUES (gen_random_uuid(), 'test', 1, 1, now() + interval '1 hour')", false},
		{"and a promoter", "INSERT INTO service_gauges (name, value) VALUES ('counted', 1), ('active_jobs', 7), ('running_executions', 2)", true},
		{"the promoter is silent", "UPDATE service_gauges SET taken_at = now() - interval '3 minutes'", false},
		{"it is back", "UPDATE service_gauges SET taken_at = now()", true},
		{"the worker is dead", "UPDATE workers SET dead = true", false},
	} {
		if step.sql != "" {
			if _, err := admin.Exec(t.Context(), step.sql); err != nil {
				t.Fatal(err)
			}
		}
		h := v.services(t.Context())
		if h.Services.Healthy != step.well {
			t.Errorf("%s: %+v", step.name, h.Services)
		}
		if step.well && (h.ActiveJobs == nil || *h.ActiveJobs != 7 || h.Running == nil || *h.Running != 2) {
			t.Errorf("%s: %v active jobs, %v running", step.name, h.ActiveJobs, h.Running)
		}
	}
}
