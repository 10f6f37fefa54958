package apikey_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/apikey"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// bundle is two processes' stores on one database, and two tenants.
type bundle struct {
	db           *postgres.DB
	here, there  *apikey.Store
	ours, theirs tenant.Actor
	admin        identity.Principal
}

func setup(t *testing.T) *bundle {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.New(t).URL, Role: postgres.API, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	b := &bundle{
		db: db, here: apikey.NewStore(db), there: apikey.NewStore(db),
		ours: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}, theirs: tenant.Actor{TenantID: uuid.New(), Subject: "eve"},
	}
	b.admin = identity.Principal{Actor: b.ours, Roles: []identity.Role{identity.Admin}}
	for _, who := range []tenant.Actor{b.ours, b.theirs} {
		if err := tenant.NewStore(db, true).Admit(t.Context(), who.TenantID); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *bundle) make(t *testing.T, spec apikey.Spec) (apikey.Key, string) {
	t.Helper()
	if spec.Name == "" {
		spec.Name = "deployment"
	}
	if spec.Scopes == nil {
		spec.Scopes = []identity.Permission{"jobs:read"}
	}
	key, text, err := b.here.Create(t.Context(), b.ours, spec)
	if err != nil {
		t.Fatal(err)
	}
	return key, text
}

// next is the way in for what is no API key.
func next(context.Context, http.Header) (identity.Principal, error) {
	return identity.Principal{Actor: tenant.Actor{Subject: "next"}}, nil
}

func use(t *testing.T, s *apikey.Store, text string) (identity.Principal, error) {
	t.Helper()
	return s.Before(next)(t.Context(), http.Header{"Authorization": {"Bearer " + text}})
}

func refused(t *testing.T, what string, s *apikey.Store, text string) {
	t.Helper()
	who, err := use(t, s, text)
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Unauthenticated || f.Code != "UNAUTHORIZED" || !cmp.Equal(who, identity.Principal{}) {
		t.Errorf("%s: answered %+v, %v; want UNAUTHORIZED", what, who, err)
	}
}

func TestAKeyActsForItsTenantWithItsScopes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key, text := b.make(t, apikey.Spec{Scopes: []identity.Permission{"jobs:write", "jobs:read", "jobs:write"}})
	for range 3 { // the first looks, the others remember
		who, err := use(t, b.here, text)
		want := identity.Principal{
			Actor: tenant.Actor{TenantID: b.ours.TenantID, Subject: "api-key:" + key.ID.String()},
			Key:   key.ID, Scopes: []identity.Permission{"jobs:read", "jobs:write"},
		}
		if diff := cmp.Diff(want, who); err != nil || diff != "" {
			t.Errorf("%v, principal (-want +got):\n%s", err, diff)
		}
	}
	if !strings.HasPrefix(text, key.Prefix) || len(text)-len(key.Prefix) < 43 {
		t.Errorf("the prefix %q shows too much, or none of the key", key.Prefix)
	}
	if who, err := use(t, b.here, "eyJhbGciOi.e30.x"); err != nil || who.Actor.Subject != "next" {
		t.Errorf("a JWT was not left to the next: %+v, %v", who, err)
	}
}

// Nothing that is stored lets anybody act: neither the key nor its secret
// part stands in the database.
func TestTheKeyIsStoredNowhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, text := b.make(t, apikey.Spec{})
	if _, err := use(t, b.here, text); err != nil {
		t.Fatal(err)
	}
	err := b.db.InTenant(t.Context(), b.ours.TenantID, func(tx *postgres.Tx) error {
		keys, err := tx.ListApiKeys(t.Context(), db.ListApiKeysParams{TenantID: b.ours.TenantID, BeforeCreatedAt: clock.Now().Add(time.Hour), PageSize: 10})
		if err != nil || len(keys) != 1 {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		secret, err := base64.RawURLEncoding.DecodeString(text[len(text)-43:])
		if err != nil {
			t.Fatal(err)
		}
		row := keys[0]
		for _, stored := range []string{row.Name, row.Prefix, string(row.Hash), string(row.OldHash), row.CreatedBy} {
			if strings.Contains(stored, text[len(text)-43:]) || strings.Contains(stored, string(secret)) {
				t.Error("the secret part of the key is stored")
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestForgedKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, text := b.make(t, apikey.Spec{})
	_, other := b.make(t, apikey.Spec{})
	const mark = "sched_"
	names := text[len(mark) : len(mark)+43]
	raw, err := base64.RawURLEncoding.DecodeString(names)
	if err != nil {
		t.Fatal(err)
	}
	foreign := append(append([]byte{}, raw[:16]...), b.theirs.TenantID[:]...)
	for name, forged := range map[string]string{
		"another secret":               text[:len(text)-43] + other[len(other)-43:],
		"the id of another":            mark + other[len(mark):len(mark)+43] + text[len(text)-43:],
		"another tenant":               mark + base64.RawURLEncoding.EncodeToString(foreign) + text[len(text)-43:],
		"a stray bit in the ids":       strings.Replace(text, names, names[:42]+string(names[42]+1), 1),
		"a stray bit in the secret":    text[:len(text)-1] + string(text[len(text)-1]^1),
		"one character less":           text[:len(text)-1],
		"one character more":           text + "A",
		"padding":                      text + "=",
		"the mark alone":               mark,
		"the prefix alone":             text[:18],
		"no such key":                  mark + strings.Repeat("A", 86),
		"not base 64":                  mark + strings.Repeat("!", 86),
		"SQL":                          mark + "' OR 1=1 --",
		"a NUL":                        text + "\x00",
		"the hash instead of the text": mark + strings.Repeat("0", 86),
	} {
		refused(t, name, b.here, forged)
	}
	if _, err := use(t, b.here, text); err != nil {
		t.Errorf("the key itself: %v", err)
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var soon time.Time
	var text string
	// On a busy machine a key may end before its first use: then the next one lives longer.
	for life := 6 * time.Second; ; life *= 4 {
		soon = clock.Now().Add(life)
		_, made, err := b.here.Create(t.Context(), b.ours, apikey.Spec{Name: "deployment", Scopes: []identity.Permission{"jobs:read"}, ExpiresAt: &soon})
		if err == nil {
			_, err = use(t, b.here, made)
		}
		if text = made; err == nil {
			break
		}
		if life > time.Minute {
			t.Fatal(err)
		}
	}
	<-time.After(soon.Sub(clock.Now()) + 10*time.Millisecond)
	// Although it is remembered from a moment ago, and for who looks.
	refused(t, "remembered", b.here, text)
	refused(t, "looked up", b.there, text)
}

// noise is what a machine that does other things may add to a promised time.
const noise = 20 * time.Second

// A revoked key is gone at once where it was revoked, and elsewhere within
// the two seconds that a look is remembered, well below the five allowed.
func TestRevocation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key, text := b.make(t, apikey.Spec{})
	for _, s := range []*apikey.Store{b.here, b.there} {
		if _, err := use(t, s, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.here.Delete(t.Context(), b.theirs, key.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("another tenant revoked it: %v", err)
	}
	if err := b.here.Delete(t.Context(), b.ours, key.ID); err != nil {
		t.Fatal(err)
	}
	refused(t, "where it was revoked", b.here, text)
	began := clock.Start()
	for {
		if _, err := use(t, b.there, text); err != nil {
			break
		}
		if began.Elapsed() > 4*time.Second+noise {
			t.Fatal("the key works elsewhere for more than four seconds")
		}
		<-time.After(50 * time.Millisecond)
	}
	if err := b.here.Delete(t.Context(), b.ours, key.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("it was revoked twice: %v", err)
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key, first := b.make(t, apikey.Spec{})
	rotated, second, err := b.here.Rotate(t.Context(), b.admin, key.ID, time.Hour)
	if err != nil || rotated.ID != key.ID || rotated.RotatedAt == nil {
		t.Fatalf("Rotate = %+v, %v", rotated, err)
	}
	for name, text := range map[string]string{"the new": second, "the old, within its grace": first} {
		if _, err := use(t, b.here, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, third, err := b.here.Rotate(t.Context(), b.admin, key.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "the first after two rotations", b.here, first)
	refused(t, "the second without grace", b.here, second)
	if _, err := use(t, b.there, third); err != nil {
		t.Error(err)
	}
	viewer := identity.Principal{Actor: b.ours, Scopes: []identity.Permission{"keys:write"}}
	if _, _, err := b.here.Rotate(t.Context(), viewer, key.ID, 0); fault.KindOf(err) != fault.Forbidden {
		t.Errorf("who may less than the key got it: %v", err)
	}
	if _, _, err := b.here.Rotate(t.Context(), identity.Principal{Actor: b.theirs, Roles: b.admin.Roles}, key.ID, 0); fault.KindOf(err) != fault.NotFound {
		t.Errorf("another tenant got it: %v", err)
	}
	if _, err := use(t, b.there, third); err != nil {
		t.Errorf("a refused rotation changed the key: %v", err)
	}
}

func TestLastUsedIsWrittenOnceAMinute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key, text := b.make(t, apikey.Spec{})
	read := func() *time.Time {
		found, err := b.here.Get(t.Context(), b.ours, key.ID)
		if err != nil {
			t.Fatal(err)
		}
		return found.LastUsedAt
	}
	if read() != nil {
		t.Error("a key that was never used says when")
	}
	if _, err := use(t, b.here, text); err != nil {
		t.Fatal(err)
	}
	first := read()
	if first == nil {
		t.Fatal("the use was not recorded")
	}
	var group sync.WaitGroup
	for range 20 { // each a process that does not remember
		group.Go(func() {
			if _, err := use(t, apikey.NewStore(b.db), text); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := read(); !got.Equal(*first) {
		t.Errorf("it was written again after %v", got.Sub(*first))
	}
}

func TestHowManyKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var group sync.WaitGroup
	var mu sync.Mutex
	made, refusals := 0, 0
	for range 4 {
		group.Go(func() {
			for range 27 {
				_, _, err := b.here.Create(t.Context(), b.ours, apikey.Spec{Name: "n", Scopes: []identity.Permission{"jobs:read"}})
				mu.Lock()
				if err == nil {
					made++
				} else if fault.KindOf(err) == fault.Forbidden {
					refusals++
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if made != 100 || refusals != 8 {
		t.Errorf("%d keys were made and %d refused", made, refusals)
	}
	if _, _, err := b.here.Create(t.Context(), b.theirs, apikey.Spec{Name: "n", Scopes: []identity.Permission{"jobs:read"}}); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	now := clock.Now()
	past, future := now, now.Add(time.Second)
	developer := identity.Principal{Roles: []identity.Role{identity.Developer}}
	all := identity.Principal{Roles: []identity.Role{identity.PlatformAdmin}}
	for _, test := range []struct {
		name string
		who  identity.Principal
		spec apikey.Spec
		want []string // path and rule
	}{
		{"its own", developer, apikey.Spec{Scopes: []identity.Permission{"jobs:read", "jobs:write"}, ExpiresAt: &future}, nil},
		{"unknown", all, apikey.Spec{Scopes: []identity.Permission{"jobs:read", "jobs:*", "", "admin"}}, []string{"scopes[1] enum", "scopes[2] enum", "scopes[3] enum"}},
		{"more than it has", developer, apikey.Spec{Scopes: []identity.Permission{"jobs:read", "keys:read"}}, []string{"scopes[1] exceeds"}},
		{"making keys", all, apikey.Spec{Scopes: []identity.Permission{"keys:write"}}, []string{"scopes[0] withheld"}},
		{"everything at once", developer, apikey.Spec{Scopes: []identity.Permission{"x", "keys:read"}, ExpiresAt: &past}, []string{"scopes[0] enum", "scopes[1] exceeds", "expiresAt future"}},
		{"a key asks", identity.Principal{Scopes: []identity.Permission{"jobs:read"}}, apikey.Spec{Scopes: []identity.Permission{"jobs:write"}}, []string{"scopes[0] exceeds"}},
	} {
		var got []string
		for _, f := range apikey.Validate(test.spec, test.who, now) {
			got = append(got, f.Path+" "+f.Rule)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
