package seed

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/statistics"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

type bundle struct {
	seed    *store
	api     *postgres.DB
	engine  *postgres.DB
	jobs    *job.Store
	who     tenant.Actor
	created []uuid.UUID // one of each kind
}

func setup(t *testing.T) bundle {
	t.Helper()
	own := pgtest.New(t)
	open := func(role postgres.Role) *postgres.DB {
		opened, err := postgres.Open(t.Context(), postgres.Config{URL: own.URL, Role: role, Name: "seed-test", MaxConns: 2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(opened.Close)
		return opened
	}
	b := bundle{api: open(postgres.API), engine: open(postgres.Engine), who: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}}
	b.jobs = job.NewStore(b.api, job.Config{})
	if err := tenant.NewStore(b.api, true).Admit(t.Context(), b.who.TenantID); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		config := strings.ReplaceAll(k.config, "ECHO", "http://127.0.0.1:1")
		made, _, err := b.jobs.Create(t.Context(), b.who, job.Spec{Name: k.name, Type: k.jobType, Config: []byte(config), Tags: []string{k.team}, Retry: job.DefaultRetry()}.WithDefaults(), idempotency.Key{})
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		b.created = append(b.created, made.ID)
	}
	var err error
	if b.seed, err = openStore(t.Context(), own.AdminURL, func(string, ...any) {}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.seed.close)
	return b
}

// TestCopiesAreJobs reads copies as the API does: each has its own schedule, the time that
// this says, and a first version with the same definition.
func TestCopiesAreJobs(t *testing.T) {
	t.Parallel()
	b, now := setup(t), clock.Now()
	if err := b.seed.copyJobs(t.Context(), newJobs(b.created, Config{Hostile: true}, now), 90); err != nil {
		t.Fatal(err)
	}
	listed, err := b.jobs.List(t.Context(), b.who, job.Filter{Limit: 100})
	if err != nil || len(listed.Jobs) != 90+len(kinds) {
		t.Fatalf("listed %d jobs: %v", len(listed.Jobs), err)
	}
	names, kindsOf := map[string]bool{}, map[string]bool{}
	for _, one := range listed.Jobs {
		names[one.Name], kindsOf[string(one.Status)] = true, true
		if slices.Contains(b.created, one.ID) {
			continue
		}
		if one.CronExpression != "" && one.Status != "inactive" {
			compiled, err := schedule.Compile(schedule.Definition{Cron: one.CronExpression, Zone: one.Timezone})
			if err != nil {
				t.Fatalf("%s: %v", one.Name, err)
			}
			if want, _ := compiled.Next(now); one.NextExecutionAt == nil || !one.NextExecutionAt.Equal(want) {
				t.Errorf("%s runs next at %v, and its schedule says %v", one.Name, one.NextExecutionAt, want)
			}
		}
		var spec job.Spec
		var text []byte
		if err := b.seed.conn.QueryRow(t.Context(), `SELECT spec FROM job_versions WHERE job_id = $1`, one.ID).Scan(&text); err != nil {
			t.Fatalf("%s has no version: %v", one.Name, err)
		}
		if err := json.Unmarshal(text, &spec); err != nil || spec.Name != one.Name || spec.CronExpression != one.CronExpression || !slices.Equal(spec.Tags, one.Tags) {
			t.Errorf("version 1 of %s is %s: %v", one.Name, text, err)
		}
	}
	if !names[hostile[1]] || len(kindsOf) != 3 {
		t.Errorf("states %v, and hostile names: %v", kindsOf, names[hostile[1]])
	}
}

// TestHistoryIsCounted writes a history twice and has the collector count it: the statistics
// know each execution once, with outcomes of every kind, and so does each job.
func TestHistoryIsCounted(t *testing.T) {
	t.Parallel()
	b, now := setup(t), clock.Now()
	if err := b.seed.copyJobs(t.Context(), newJobs(b.created, Config{Hostile: true}, now), 90); err != nil {
		t.Fatal(err)
	}
	const n = 3000
	for piece := range 2 {
		from := now.AddDate(0, 0, -40+20*piece)
		if err := b.seed.writeHistory(t.Context(), history{templates: b.created, from: from, to: from.AddDate(0, 0, 19), n: n, hostile: true}); err != nil {
			t.Fatal(err)
		}
		if err := b.seed.rollUp(t.Context(), b.engine); err != nil {
			t.Fatal(err)
		}
	}
	total, err := statistics.NewStore(b.api).Statistics(t.Context(), b.who, statistics.Query{From: now.AddDate(0, 0, -41), To: now, Zone: time.UTC})
	if err != nil {
		t.Fatal(err)
	}
	if got := total.Whole; got.Count != 2*n || got.Completed == 0 || got.Failed == 0 || got.Cancelled == 0 || got.Skipped == 0 || got.Missed == 0 || got.Retried == 0 {
		t.Errorf("the statistics know %+v", got)
	}
	var executions, jobs, lines int
	if err := b.seed.conn.QueryRow(t.Context(), `SELECT sum(execution_count), count(*) FILTER (WHERE last_execution_at IS NOT NULL), (SELECT count(*) FROM execution_output) FROM scheduled_jobs`).Scan(&executions, &jobs, &lines); err != nil {
		t.Fatal(err)
	}
	if executions != 2*n || jobs != 100 || lines != 400 {
		t.Errorf("%d executions of %d jobs are counted, and %d have output", executions, jobs, lines)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"-jobs 3", "-executions -1", "-days 0", "-days 500", "-nonsense"} {
		var said bytes.Buffer
		if _, err := Parse(strings.Fields(args), &said); err == nil || said.Len() == 0 {
			t.Errorf("%s: %v %s", args, err, said.String())
		}
	}
	if c, err := Parse(nil, io.Discard); err != nil || c.Jobs != 100_000 || c.Executions != 5_000_000 {
		t.Errorf("without flags: %+v, %v", c, err)
	}
}
