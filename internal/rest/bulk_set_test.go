package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/audit"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// stock gives a tenant jobs in every state that a verb treats differently, the same for
// each tenant that it is called for: with executions, of one job more than one request
// cancels, and with backfills.
func (b *bundle) stock(t testing.TB, admin *pgx.Conn, who tenant.Actor, jobs int) {
	t.Helper()
	for _, statement := range []string{
		`INSERT INTO tenants (id, name) VALUES ($1, 'x') ON CONFLICT DO NOTHING`,
		`INSERT INTO running_counts (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING`,
		fmt.Sprintf(`INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, created_at, cron_expression, job_type, config, retry_config, max_attempts, timeout_seconds,
				status, next_execution_at, misfire_policy, max_executions, execution_count, start_date, end_date, calendars)
			SELECT gen_random_uuid(), $1, to_char(n, 'FM000000'), 'ada', now() - n * interval '1 s', '0 0 0 1 1 *', 'http', '{"url":"https://example.com/"}', '{}', 1, 1,
				(ARRAY['active', 'paused', 'paused', 'inactive', 'inactive', 'paused', 'paused'])[1 + n %% 7],
				(ARRAY['2099-01-01', '2020-01-01', '2099-01-01', NULL, '2020-01-01', '2020-01-01', NULL]::timestamptz[])[1 + n %% 7],
				(ARRAY['skip', 'fire_once', 'fire_all'])[1 + n %% 3],
				CASE WHEN n %% 7 = 5 THEN 3 END, CASE WHEN n %% 7 = 5 THEN 3 ELSE 0 END,
				CASE WHEN n %% 7 = 6 THEN '2000-01-01'::timestamptz END, CASE WHEN n %% 7 = 6 THEN '2001-01-01'::timestamptz END,
				CASE WHEN n %% 35 = 3 THEN '[{"calendarId":"00000000-0000-7000-8000-000000000001","mode":"exclude"}]'::jsonb ELSE '[]' END
			FROM generate_series(1, %d) n`, jobs),
		`INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by) SELECT id, version, tenant_id, '{}', 'ada' FROM scheduled_jobs WHERE tenant_id = $1`,
		`INSERT INTO active_executions (id, tenant_id, job_id, job_version, job_type, scheduled_at, available_at, deadline_at, trigger_type, triggered_by, max_attempts, status, timeout_ms, sweep_at)
			SELECT gen_random_uuid(), j.tenant_id, j.id, 1, 'http', now(), now(), now() + interval '1 day', 'manual', 'ada', 1, 'pending', 1000, now()
			FROM scheduled_jobs j CROSS JOIN LATERAL generate_series(1, CASE WHEN j.name = '000002' THEN 1500 WHEN right(j.name, 2) = '04' THEN 3 ELSE 0 END) n WHERE j.tenant_id = $1`,
		`INSERT INTO backfills (id, tenant_id, job_id, job_version, from_at, to_at, cursor_at, rate_per_minute, total, requested_by)
			SELECT gen_random_uuid(), tenant_id, id, 1, '2026-01-01', '2026-01-02', '2026-01-01', 1, 1, 'ada' FROM scheduled_jobs WHERE tenant_id = $1 AND right(name, 2) = '07'`,
	} {
		if _, err := admin.Exec(t.Context(), statement, who.TenantID); err != nil {
			t.Fatalf("%.60s: %v", statement, err)
		}
	}
}

// stocked gives two tenants of an API of its own the same jobs, and has a bulk call act on those
// of one.
func stocked(t *testing.T, jobs int, path, body string) (b *bundle, admin *pgx.Conn, single tenant.Actor, got answer) {
	t.Helper()
	b = setup(t)
	admin, single = b.admin(t), tenant.Actor{TenantID: b.theirs.TenantID, Subject: b.ours.Subject}
	b.stock(t, admin, b.ours, jobs)
	b.stock(t, admin, single, jobs)
	got = b.do(t, request{method: "POST", path: base + path, token: b.token(t, b.ours, identity.Operator, identity.Admin), body: body})
	return b, admin, single, got
}

// left is all that became of a tenant's jobs, as far as it is the same for two tenants.
func left(t *testing.T, admin *pgx.Conn, who tenant.Actor) []string {
	t.Helper()
	rows, err := admin.Query(t.Context(), `
		SELECT concat_ws('|', j.name, j.version, j.status, j.status_reason, j.status_by, j.paused_until, coalesce(j.resume_policy, '-'), coalesce(j.next_execution_at::text, '-'),
		       j.deleted_at IS NOT NULL, j.generation, j.status_at = j.updated_at, (SELECT count(*) FROM job_versions v WHERE v.job_id = j.id),
		       (SELECT string_agg(b.status, ',') FROM backfills b WHERE b.job_id = j.id),
		       (SELECT string_agg(DISTINCT concat_ws(' ', x.status, x.reason, x.cancelled_by), ',') FROM job_executions x WHERE x.job_id = j.id),
		       (SELECT count(*) FROM job_executions x WHERE x.job_id = j.id), (SELECT count(*) FROM active_executions a WHERE a.job_id = j.id),
		       (SELECT string_agg(concat_ws(' ', c.generation, c.reason, c.cancelled_by), ',') FROM cancellations c WHERE c.job_id = j.id),
		       (SELECT string_agg(concat_ws(' ', l.change, l.actor_kind, l.actor, l.before, regexp_replace(l.after, '"deleted_at": "[^"]*"', 'deleted')), ' / ' ORDER BY l.at) FROM audit_log l WHERE l.tenant_id = j.tenant_id AND l.object_id = j.id::text))
		FROM scheduled_jobs j WHERE j.tenant_id = $1
		UNION ALL SELECT concat_ws('|', 'counts', (SELECT sum(n.jobs) FROM job_counts n WHERE n.tenant_id = $1), c.cancelling) FROM running_counts c WHERE c.tenant_id = $1
		ORDER BY 1`, who.TenantID)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// A bulk verb over thousands of jobs comes to what the verb for one comes to: the same
// states, the same entries of the audit log, the same refusals, no version more.
func TestBulkVerbsComeToWhatSingleOnesDo(t *testing.T) {
	t.Parallel()
	const jobs = 2100
	for verb, alone := range map[string]func(ctx context.Context, s *job.Store, who tenant.Actor, id uuid.UUID) error{
		`pause","reason":"moving`: func(ctx context.Context, s *job.Store, who tenant.Actor, id uuid.UUID) error {
			_, err := s.Pause(ctx, who, id, "moving", nil)
			return err
		},
		`resume","misfirePolicy":"fire_all`: func(ctx context.Context, s *job.Store, who tenant.Actor, id uuid.UUID) error {
			_, err := s.Resume(ctx, who, id, job.FireAll)
			return err
		},
		`resume","q":"`: func(ctx context.Context, s *job.Store, who tenant.Actor, id uuid.UUID) error {
			_, err := s.Resume(ctx, who, id, "")
			return err
		},
		`stop","reason":"the target is gone`: func(ctx context.Context, s *job.Store, who tenant.Actor, id uuid.UUID) error {
			_, err := s.Stop(ctx, who, id, "the target is gone")
			return err
		},
		`delete","q":"`: func(ctx context.Context, s *job.Store, who tenant.Actor, id uuid.UUID) error {
			return s.Delete(ctx, who, id, "", 0)
		},
	} {
		path, member, _ := strings.Cut(verb, `",`)
		t.Run(strings.ReplaceAll(path+" "+member, `"`, ""), func(t *testing.T) {
			t.Parallel()
			body := `{"all":true,"limit":100000,` + member + `"}`
			if strings.HasPrefix(member, `"q"`) {
				body = `{"all":true,"limit":100000}`
			}
			b, admin, single, got := stocked(t, jobs, "/jobs/bulk/"+path, body)
			// A call ends after 8 s, and another one goes on. On a busy machine all of it begins again.
			for try := 1; try < 5 && (got.status == http.StatusServiceUnavailable || strings.Contains(got.body, `"nextCursor":"`)); try++ {
				b, admin, single, got = stocked(t, jobs, "/jobs/bulk/"+path, body)
			}
			result := read[api.BulkResult](t, got, http.StatusOK)
			refusedAlone := 0
			for _, id := range b.idsOf(t, admin, single) {
				err := alone(asUser(t.Context(), single), b.jobs, single, id)
				if fault.KindOf(err) == fault.Internal && err != nil {
					t.Fatal(err)
				}
				if err != nil {
					refusedAlone++
				}
			}
			if result.DoneCount != jobs-refusedAlone || result.FaultCount != refusedAlone || len(result.Done) != min(1000, result.DoneCount) || result.NextCursor != nil {
				t.Errorf("did %d and refused %d, alone %d are refused; names %d; next %v", result.DoneCount, result.FaultCount, refusedAlone, len(result.Done), result.NextCursor)
			}
			if diff := cmp.Diff(left(t, admin, single), left(t, admin, b.ours)); diff != "" {
				t.Errorf("differs (-alone +bulk):\n%.3000s", diff)
			}
			for _, who := range []tenant.Actor{b.ours, single} {
				reports, err := b.deps.Audit.Verify(t.Context(), who, nil, 100_000)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range reports {
					if r.Problem != nil || !r.Complete {
						t.Errorf("the audit chain: %+v", r.Problem)
					}
				}
			}
		})
	}
}

// A piece of a bulk verb costs as many statements as one job.
func TestPieceCostsAFewStatements(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.stock(t, b.admin(t), b.ours, job.Piece)
	var trips atomic.Int64
	db, err := postgres.Open(t.Context(), postgres.Config{
		URL: b.database.URL, Role: postgres.API, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience,
		RoundTrip: func(string) { trips.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	jobs, all := job.NewStore(db, job.Config{}), b.idsOf(t, b.admin(t), b.ours)
	for name, act := range map[string]func() (map[uuid.UUID]error, error){
		"pause":  func() (map[uuid.UUID]error, error) { return jobs.PauseAll(t.Context(), b.ours, all, "") },
		"resume": func() (map[uuid.UUID]error, error) { return jobs.ResumeAll(t.Context(), b.ours, all, "") },
		"stop":   func() (map[uuid.UUID]error, error) { return jobs.StopAll(t.Context(), b.ours, all, "") },
		"delete": func() (map[uuid.UUID]error, error) { return jobs.DeleteAll(t.Context(), b.ours, all, "") },
	} {
		before := trips.Load()
		if refused, err := act(); err != nil || len(refused) == len(all) {
			t.Fatalf("%s refuses %d: %v", name, len(refused), err)
		}
		if took := trips.Load() - before; took > 15 { // with those that prepare them
			t.Errorf("%s takes %d round trips", name, took)
		}
		if name == "delete" {
			break // nothing is left
		}
	}
}

// A job whose change the database refuses is refused alone, and the others go on.
func TestBulkDividesAPieceThatFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin := b.admin(t)
	b.stock(t, admin, b.ours, 70)
	for _, statement := range []string{
		`CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poison' USING ERRCODE = 'check_violation'; END $$`,
		`CREATE TRIGGER poison BEFORE UPDATE ON job_definitions FOR EACH ROW WHEN (NEW.name = '000014') EXECUTE FUNCTION poison()`,
	} {
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	result, _, _ := b.bulk(t, "/jobs/bulk/pause", `{"all":true}`)
	internal := 0
	for _, f := range result.Faults {
		if f.Code == "INTERNAL_ERROR" {
			internal++
		}
	}
	if result.DoneCount != 49 || result.FaultCount != 21 || internal != 1 || result.NextCursor != nil {
		t.Errorf("did %d, refused %d, %d of them because of the database: %+v", result.DoneCount, result.FaultCount, internal, result.Faults)
	}
}

func (b *bundle) idsOf(t testing.TB, admin *pgx.Conn, who tenant.Actor) []uuid.UUID {
	t.Helper()
	rows, err := admin.Query(t.Context(), "SELECT id FROM scheduled_jobs WHERE tenant_id = $1 ORDER BY created_at DESC", who.TenantID)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// asUser makes changes be recorded as a request's are.
func asUser(ctx context.Context, who tenant.Actor) context.Context {
	return audit.With(ctx, audit.Call{Kind: audit.User, Actor: who.Subject})
}
