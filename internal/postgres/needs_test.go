package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// as is the address of a database for another login.
func as(t *testing.T, address, login string) string {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.User(login)
	return at.String()
}

// A managed PostgreSQL gives nobody a superuser. An owner without any attribute
// migrates a database of its own where an administrator made the roles, and says what
// is missing before that.
func TestAnOwnerThatMayCreateNoRoles(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t) // whose server has the roles
	admin := connect(t, database.AdminURL)
	name := strings.ReplaceAll(uuid.NewString(), "-", "")
	owner, login := "owner_"+name, "login_"+name
	exec(t, admin, fmt.Sprintf("CREATE ROLE %s LOGIN; CREATE ROLE %s LOGIN; GRANT %[1]s TO postgres", owner, login))
	exec(t, admin, "CREATE DATABASE "+owner)
	t.Cleanup(func() {
		for _, drop := range []string{"DROP DATABASE " + owner + " WITH (FORCE)", "DROP ROLE " + owner, "DROP ROLE " + login} {
			if _, err := admin.Exec(context.Background(), drop); err != nil {
				t.Error(err)
			}
		}
	})
	at, err := url.Parse(as(t, database.OwnerURL, owner))
	if err != nil {
		t.Fatal(err)
	}
	at.Path = "/" + owner
	ownerURL, loginURL := at.String(), as(t, at.String(), login)

	if _, err = postgres.Migrate(t.Context(), ownerURL, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "ALTER DATABASE") {
		t.Errorf("without the schema: %v", err)
	}
	exec(t, admin, fmt.Sprintf("ALTER DATABASE %s OWNER TO %[1]s", owner))
	if _, err = postgres.Migrate(t.Context(), ownerURL, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err = postgres.EnsureLogin(t.Context(), ownerURL, loginURL); err == nil || !strings.Contains(err.Error(), "an administrator can: GRANT scheduler_api, scheduler_engine TO \""+login) {
		t.Errorf("without the grant: %v", err)
	}
	open := postgres.Config{URL: loginURL, Role: postgres.Engine, Name: "test", MaxConns: 1}
	if _, err = postgres.Open(t.Context(), open); err == nil || !strings.Contains(err.Error(), "may not act as scheduler_engine: ") {
		t.Errorf("without the grant: %v", err)
	}
	exec(t, admin, "GRANT scheduler_api, scheduler_engine TO "+login)
	if err = postgres.EnsureLogin(t.Context(), ownerURL, loginURL); err != nil {
		t.Error(err)
	}
	db, err := postgres.Open(t.Context(), open)
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
}

// A login that may create roles can give itself what it lacks, so it is advised
// against; those that administrators of managed servers make often may.
func TestALoginThatMayCreateRoles(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	admin := connect(t, database.AdminURL)
	login := "login_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	exec(t, admin, "CREATE ROLE "+login+" LOGIN CREATEROLE CREATEDB IN ROLE scheduler_engine")
	t.Cleanup(func() {
		if _, err := admin.Exec(context.Background(), "DROP ROLE "+login); err != nil {
			t.Error(err)
		}
	})
	db, err := postgres.Open(t.Context(), postgres.Config{URL: as(t, database.URL, login), Role: postgres.Engine, Name: "test", MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if got := strings.Join(advice(t, db), "\n"); !strings.Contains(got, "may create roles and should not") {
		t.Errorf("got %q", got)
	}
}
