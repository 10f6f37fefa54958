package definition_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/job/definition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Definitions of several tenants are read at once, each as it was stored. One that cannot be
// read has an error, and the others are read all the same.
func TestRead(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	open := func(role postgres.Role) *postgres.DB {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 2, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	api, engine := open(postgres.API), open(postgres.Engine)
	jobs := job.NewStore(api, job.Config{})
	create := func(edit func(*job.Spec)) definition.Key {
		who := tenant.Actor{TenantID: uuid.New(), Subject: "ada"}
		if err := tenant.NewStore(api, true).Admit(t.Context(), who.TenantID); err != nil {
			t.Fatal(err)
		}
		spec := job.Spec{Name: "one", Type: "function", Config: []byte(`{"n": 1}`), Retry: job.Retry{MaxRetries: 7, OnErrorTypes: []string{"TIMEOUT"}}}
		edit(&spec)
		j, _, err := jobs.Create(t.Context(), who, spec.WithDefaults(), idempotency.Key{})
		if err != nil {
			t.Fatal(err)
		}
		return definition.Key{Job: j.ID, Version: j.Version}
	}
	plain := create(func(*job.Spec) {})
	limited := create(func(s *job.Spec) { s.Name, s.ExecutionTimeout = "two", 90 })
	broken := map[string]definition.Key{}
	for _, spec := range []string{
		`[1, "x"]`, `7`, `{"jobType": 7, "config": [[]], "retryConfig": "x"}`, `{"retryConfig": {"maxRetries": "2"}}`,
		`{"executionTimeout": 1.5}`, `{"executionTimeout": "soon"}`, `{"executionTimeout": {}}`,
	} {
		broken[spec] = create(func(*job.Spec) {})
		pgtest.Exec(t, database.AdminURL, "UPDATE job_versions SET spec = $2 WHERE job_id = $1", broken[spec].Job, spec)
	}
	unknown := definition.Key{Job: plain.Job, Version: 2}

	keys := []definition.Key{plain, limited, unknown, plain}
	for _, k := range broken {
		keys = append(keys, k)
	}
	got, err := definition.Read(t.Context(), engine, keys)
	if err != nil {
		t.Fatal(err)
	}
	want := definition.Definition{Name: "one", Type: "function", Config: []byte(`{"n": 1}`), Retry: job.Retry{MaxRetries: 7, OnErrorTypes: []string{"TIMEOUT"}}}
	if diff := cmp.Diff(want, got[plain]); diff != "" {
		t.Errorf("a plain one (-want +got):\n%s", diff)
	}
	want.Name, want.Limit = "two", 90
	if diff := cmp.Diff(want, got[limited]); diff != "" {
		t.Errorf("one with a limit (-want +got):\n%s", diff)
	}
	if d, there := got[unknown]; there {
		t.Errorf("a version that does not exist: %+v", d)
	}
	for spec, k := range broken {
		if d := got[k]; d.Err == nil || d.Type != "" || d.Config != nil || d.Retry.MaxRetries != 0 || d.Limit != 0 {
			t.Errorf("%s was read as %+v", spec, d)
		}
	}
	if len(got) != 2+len(broken) {
		t.Errorf("%d definitions, want %d", len(got), 2+len(broken))
	}
}
