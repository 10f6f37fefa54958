package secret_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

const canary = "canary-4b1d7e90aa"

type bundle struct {
	t           *testing.T
	database    *pgtest.Database
	api, engine *postgres.DB
	admin       *pgx.Conn
	ours        tenant.Actor
	theirs      tenant.Actor
}

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	open := func(role postgres.Role) *postgres.DB {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	b := &bundle{
		t: t, database: database, api: open(postgres.API), engine: open(postgres.Engine),
		ours: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}, theirs: tenant.Actor{TenantID: uuid.New(), Subject: "eve"},
	}
	for _, who := range []tenant.Actor{b.ours, b.theirs} {
		if err := tenant.NewStore(b.api, true).Admit(t.Context(), who.TenantID); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if b.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.admin.Close(context.Background()) })
	return b
}

func ring(t *testing.T, text string) *keyring.Ring {
	t.Helper()
	r, err := keyring.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bundle) put(keys *keyring.Ring, who tenant.Actor, name, value string) secret.Secret {
	b.t.Helper()
	stored, _, err := secret.NewStore(b.api, keys).Put(b.t.Context(), who, secret.Draft{Name: name, Value: keyring.NewText(value)})
	if err != nil {
		b.t.Fatal(err)
	}
	return stored
}

// value is what an attempt of a tenant gets for a secret.
func (b *bundle) value(keys *keyring.Ring, who tenant.Actor, name string) (string, error) {
	b.t.Helper()
	ready, err := secret.NewResolver(b.engine, keys).Resolve(b.t.Context(), secret.Input{
		Version: secret.Version{Tenant: who.TenantID, Job: uuid.New(), Number: 1}, Config: json.RawMessage(`{"body":"{{secret:` + name + `}}"}`),
	})
	if err != nil {
		return "", err
	}
	var got struct{ Body string }
	if err := json.Unmarshal(ready.Config, &got); err != nil {
		b.t.Fatal(err)
	}
	return got.Body, nil
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.admin.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

// dump is every row of every table, as text.
func (b *bundle) dump() string {
	b.t.Helper()
	rows, err := b.admin.Query(b.t.Context(), `SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')`)
	if err != nil {
		b.t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	var all strings.Builder
	for _, table := range tables {
		var text string
		if err := b.admin.QueryRow(b.t.Context(), "SELECT coalesce(string_agg(encode(convert_to(t::text, 'UTF8'), 'escape'), chr(10)), '') FROM "+table+" t").Scan(&text); err != nil {
			b.t.Fatal(err)
		}
		all.WriteString(text)
	}
	return all.String()
}

func TestPutGetListDelete(t *testing.T) {
	t.Parallel()
	b, keys := setup(t), ring(t, keyring.Generate("k1"))
	store := secret.NewStore(b.api, keys)
	text := "for billing"
	first, fresh, err := store.Put(t.Context(), b.ours, secret.Draft{Name: "key", Value: keyring.NewText(canary), Description: &text})
	if err != nil || !fresh || first.Version != 1 || first.KeyID != "k1" || first.CreatedBy != "ada" || first.Description != text {
		t.Fatalf("stored %+v, %v, %v", first, fresh, err)
	}
	second, fresh, err := store.Put(t.Context(), b.ours, secret.Draft{Name: "key", Value: keyring.NewText(canary + "2")})
	if err != nil || fresh || second.Version != 2 || second.ID != first.ID || second.Description != text {
		t.Fatalf("replaced by %+v, %v, %v", second, fresh, err)
	}
	b.put(keys, b.theirs, "key", "theirs-0123")
	for who, want := range map[tenant.Actor]string{b.ours: canary + "2", b.theirs: "theirs-0123"} {
		if got, err := b.value(keys, who, "key"); err != nil || got != want {
			t.Errorf("%s gets %q, %v; want %q", who.Subject, got, err, want)
		}
	}
	if found, err := store.Get(t.Context(), b.ours, "key"); err != nil || found != second {
		t.Errorf("read %+v, %v", found, err)
	}
	if list, err := store.List(t.Context(), b.ours, 10, nil); err != nil || cmp.Diff([]secret.Secret{second}, list) != "" {
		t.Errorf("listed %+v, %v", list, err)
	}
	if strings.Contains(b.dump(), canary) {
		t.Error("a table holds the value")
	}
	if err := store.Delete(t.Context(), b.ours, "key", 0); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), b.ours, "key", 0); fault.KindOf(err) != fault.NotFound {
		t.Errorf("deleted again: %v", err)
	}
	if _, err := b.value(keys, b.ours, "key"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("resolved a deleted secret: %v", err)
	}
	if _, err := b.value(keys, b.theirs, "key"); err != nil {
		t.Errorf("theirs went too: %v", err)
	}
}

// However many put at once, the bound holds.
func TestConcurrentPutsKeepTheBound(t *testing.T) {
	t.Parallel()
	b, keys := setup(t), ring(t, keyring.Generate("k1"))
	b.exec(`INSERT INTO secrets (id, tenant_id, name, key_id, sealed, created_by, updated_by)
		SELECT gen_random_uuid(), $1, 'n' || i, 'k1', '', 'ada', 'ada' FROM generate_series(1, 999) i`, b.ours.TenantID)
	store := secret.NewStore(b.api, keys)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			_, _, err := store.Put(t.Context(), b.ours, secret.Draft{Name: fmt.Sprint("late-", i), Value: keyring.NewText(canary)})
			if err != nil && fault.KindOf(err) != fault.Forbidden {
				t.Error(err)
			}
		})
	}
	group.Wait()
	var n int
	if err := b.admin.QueryRow(t.Context(), "SELECT count(*) FROM secrets WHERE tenant_id = $1", b.ours.TenantID).Scan(&n); err != nil || n != 1000 {
		t.Errorf("there are %d secrets, %v", n, err)
	}
}

func TestWithoutKeysNothingIsStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := secret.NewStore(b.api, ring(t, "")).Put(t.Context(), b.ours, secret.Draft{Name: "a", Value: keyring.NewText(canary)})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != "SECRETS_NOT_CONFIGURED" {
		t.Errorf("answered %v", err)
	}
}

// The API's role may write values and read none, not even sealed.
func TestTheAPIsRoleCannotReadValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(ring(t, keyring.Generate("k1")), b.ours, "key", canary)
	err := b.api.InTenant(t.Context(), b.ours.TenantID, func(tx *postgres.Tx) error {
		_, err := tx.ListSealedSecrets(t.Context(), dbNames(b.ours.TenantID, "key"))
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("the API's role read a sealed value: %v", err)
	}
}

// A row that somebody moves to another tenant or name opens for nobody.
func TestMovedRowsDoNotOpen(t *testing.T) {
	t.Parallel()
	b, keys := setup(t), ring(t, keyring.Generate("k1"))
	b.put(keys, b.ours, "a", canary+"a")
	b.put(keys, b.ours, "b", canary+"b")
	b.put(keys, b.theirs, "a", canary+"c")
	for name, move := range map[string]string{
		"the value of another name":   `UPDATE secrets s SET sealed = o.sealed FROM secrets o WHERE s.tenant_id = $1 AND s.name = 'a' AND o.tenant_id = $1 AND o.name = 'b' AND $2::uuid IS NOT NULL`,
		"the value of another tenant": `UPDATE secrets s SET sealed = o.sealed FROM secrets o WHERE s.tenant_id = $1 AND s.name = 'a' AND o.tenant_id = $2 AND o.name = 'a'`,
		"the row under another name":  `UPDATE secrets SET name = CASE name WHEN 'a' THEN 'old' ELSE 'a' END WHERE tenant_id = $1 AND $2::uuid IS NOT NULL`,
	} {
		b.exec(move, b.ours.TenantID, b.theirs.TenantID)
		if got, err := b.value(keys, b.ours, "a"); fault.KindOf(err) != fault.Internal || got != "" || err == nil {
			t.Errorf("%s opened: %q, %v", name, got, err)
		} else if strings.Contains(fmt.Sprintf("%+v", err), canary) {
			t.Errorf("the error tells: %v", err)
		}
	}
	b.exec("UPDATE secrets SET tenant_id = $1, name = 'moved' WHERE tenant_id = $2", b.ours.TenantID, b.theirs.TenantID)
	if got, err := b.value(keys, b.ours, "moved"); err == nil {
		t.Errorf("a row of another tenant opened: %q", got)
	}
}

// A rotation goes on beside readers and writers: every read finds the value,
// and afterwards the new key alone opens everything.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	oldText, newText := keyring.Generate("k1"), keyring.Generate("k2")
	old, both, fresh := ring(t, oldText), ring(t, newText+","+oldText), ring(t, newText)
	const n = 450 // more than two batches
	for i := range n {
		b.put(old, b.ours, fmt.Sprintf("s%03d", i), fmt.Sprintf("%s-%d", canary, i))
	}
	jobs := job.NewStore(b.api, job.Config{Keys: old})
	made, _, err := jobs.Create(t.Context(), b.ours, webhook(`{"Authorization":"Bearer `+canary+`"}`), idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for r := range 3 {
		readers.Go(func() {
			for i := 0; ; i = (i + 7) % n {
				select {
				case <-done:
					return
				default:
				}
				name := fmt.Sprintf("s%03d", i)
				if r == 0 && i%5 == 0 {
					b.put(both, b.ours, name, fmt.Sprintf("%s-%d", canary, i))
				}
				if got, err := b.value(both, b.ours, name); err != nil || got != fmt.Sprintf("%s-%d", canary, i) {
					t.Errorf("%s is %q, %v during the rotation", name, got, err)
					return
				}
			}
		})
	}
	first, err := secret.Rotate(t.Context(), b.engine, both)
	close(done)
	readers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	second, err := secret.Rotate(t.Context(), b.engine, both) // what a writer held locked meanwhile
	if err != nil || first.Rewrapped < n/2 || second.Unopened != 0 || cmp.Diff(map[string]int{"k2": n + 1}, second.Sealed) != "" {
		t.Fatalf("rotated %+v, then %+v, %v", first, second, err)
	}
	for i := range n {
		if got, err := b.value(fresh, b.ours, fmt.Sprintf("s%03d", i)); err != nil || got != fmt.Sprintf("%s-%d", canary, i) {
			t.Fatalf("s%03d is %q, %v under the new key alone", i, got, err)
		}
	}
	if got := b.attempt(fresh, made); !strings.Contains(string(got.Config), canary) {
		t.Errorf("the job's credential did not come along: %s", got.Config)
	}
	if _, err := b.value(old, b.ours, "s000"); err == nil {
		t.Error("the old key still opens")
	}
}

func TestRotationNamesWhatItCannotOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(ring(t, keyring.Generate("lost")), b.ours, "a", canary)
	b.put(ring(t, keyring.Generate("k1")), b.ours, "b", canary)
	unheld, err := secret.CountUnopenable(t.Context(), b.engine, ring(t, keyring.Generate("k1")))
	if diff := cmp.Diff(map[string]int{"lost": 1}, unheld); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	got, err := secret.Rotate(t.Context(), b.engine, ring(t, keyring.Generate("k2")))
	if err != nil || got.Rewrapped != 0 || got.Unopened != 2 || cmp.Diff(map[string]int{"lost": 1, "k1": 1}, got.Sealed) != "" {
		t.Errorf("rotated %+v, %v", got, err)
	}
}
