package function_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/function"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// bundle is a database with two tenants.
type bundle struct {
	api, engine  *postgres.DB
	store        *function.Store
	modules      *function.Modules
	ours, theirs tenant.Actor
}

func setup(t *testing.T) *bundle {
	t.Helper()
	url := pgtest.New(t).URL
	open := func(role postgres.Role) *postgres.DB {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: url, Role: role, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	b := &bundle{
		api: open(postgres.API), engine: open(postgres.Engine),
		ours: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}, theirs: tenant.Actor{TenantID: uuid.New(), Subject: "eve"},
	}
	b.store, b.modules = function.NewStore(b.api), function.NewModules(b.engine)
	for _, who := range []tenant.Actor{b.ours, b.theirs} {
		if err := tenant.NewStore(b.api, true).Admit(t.Context(), who.TenantID); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *bundle) put(t *testing.T, who tenant.Actor, name, module string) function.Function {
	t.Helper()
	stored, _, err := b.store.Put(t.Context(), who, name, []byte(module))
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// job makes a job that runs a function.
func (b *bundle) job(t *testing.T, config string) job.Job {
	t.Helper()
	made, _, err := job.NewStore(b.api, job.Config{}).Create(t.Context(), b.ours, job.Spec{Name: "a", Type: "wasm", Config: []byte(config)}.WithDefaults(), idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// A worker reads the version that a job names, or the newest, and no other tenant's.
func TestModules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, b.ours, "f", "one")
	b.put(t, b.ours, "f", "two")
	b.put(t, b.theirs, "f", "theirs")
	for version, want := range map[int32]string{0: "two", 1: "one", 2: "two"} {
		found, err := b.modules.Find(t.Context(), b.ours.TenantID, "f", version)
		if err != nil {
			t.Fatal(err)
		}
		if code, err := b.modules.Load(t.Context(), b.ours.TenantID, found); err != nil || string(code) != want {
			t.Errorf("version %d is %q, %v, want %q", version, code, err, want)
		}
		if code, err := b.modules.Load(t.Context(), b.theirs.TenantID, found); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another tenant reads %q, %v", code, err)
		}
	}
	if _, err := b.modules.Find(t.Context(), b.theirs.TenantID, "f", 2); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a version of another tenant: %v", err)
	}
	for _, test := range []struct {
		name    string
		version int32
		want    int
	}{{"f", 0, 0}, {"f", 2, 0}, {"f", 3, 1}, {"g", 0, 1}} {
		if faults, err := b.store.Has(t.Context(), b.ours, test.name, test.version); err != nil || len(faults) != test.want {
			t.Errorf("a job that names %s %d: %v, %v", test.name, test.version, faults, err)
		}
	}
}

// A function that jobs run is not deleted, and a version that one names is kept.
func TestUseKeepsFunctions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, b.ours, "f", "one")
	b.put(t, b.ours, "f", "two")
	made := b.job(t, `{"function":"f","version":2}`)
	for i := range 23 {
		b.put(t, b.ours, "f", strings.Repeat("x", i+1))
	}
	_, versions, err := b.store.Get(t.Context(), b.ours, "f")
	if err != nil || len(versions) != 21 || versions[20].Version != 2 {
		t.Errorf("kept %d versions, %v: %+v", len(versions), err, versions)
	}
	if err := b.store.Delete(t.Context(), b.ours, "f"); fault.KindOf(err) != fault.Conflict {
		t.Errorf("deleted although a job runs it: %v", err)
	}
	if err := b.store.Delete(t.Context(), b.theirs, "f"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("another tenant deletes it: %v", err)
	}
	if err := job.NewStore(b.api, job.Config{}).Delete(t.Context(), b.ours, made.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Delete(t.Context(), b.ours, "f"); err != nil {
		t.Error(err)
	}
	var left int
	if err := b.engine.Pool().QueryRow(t.Context(), "SELECT count(*) FROM function_modules").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d modules are left, %v", left, err)
	}
}

// A tenant has so many functions, and so many bytes of modules.
func TestQuotas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := b.put(t, b.ours, "held", "small")
	err := b.api.InTenant(t.Context(), b.ours.TenantID, func(tx *postgres.Tx) error {
		for version := range int32(32) {
			p := db.InsertFunctionVersionParams{FunctionID: held.ID, Version: version + 2, TenantID: b.ours.TenantID, Digest: held.Digest, SizeBytes: 8 << 20, CreatedBy: "ada", Now: tx.At}
			if version == 31 {
				p.SizeBytes -= 10
			}
			if err := tx.InsertFunctionVersion(t.Context(), p); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.put(t, b.ours, "f", "fits")
	if _, _, err := b.store.Put(t.Context(), b.ours, "g", []byte("no more")); fault.KindOf(err) != fault.Forbidden {
		t.Errorf("a byte too many: %v", err)
	}
	for i := range 100 {
		b.put(t, b.theirs, "f"+string(rune('a'+i/26))+string(rune('a'+i%26)), "small")
	}
	_, _, err = b.store.Put(t.Context(), b.theirs, "more", []byte("small"))
	if fault.KindOf(err) != fault.Forbidden {
		t.Errorf("the 101st function: %v", err)
	}
	b.put(t, b.theirs, "faa", "another version")
}
