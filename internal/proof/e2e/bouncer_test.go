package e2e_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// documentedLogins makes the two logins that docs/run/databases.md describes for a pooler, under
// names of the test's own, once the roles are there.
func documentedLogins(t *testing.T, database *pgtest.Database, rename func(string) string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "run", "databases.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)## PgBouncer.*?```sql\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/run/databases.md describes no logins for PgBouncer")
	}
	admin, err := pgx.Connect(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(context.Background()) }()
	for statement := range strings.SplitSeq(strings.TrimRight(rename(string(block[1])), ";\n"), ";") {
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err, statement)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		admin, err := pgx.Connect(ctx, database.AdminURL)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = admin.Close(ctx) }()
		if _, err := admin.Exec(ctx, rename("DROP ROLE app_api, app_engine")); err != nil {
			t.Error(err)
		}
	})
}

// All processes work behind a PgBouncer that lends its connections for one transaction each, with
// fewer connections than they have between them, and as the logins that the documents describe.
func TestPgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	database := pgtest.Empty(t)
	direct, err := url.Parse(database.URL)
	if err != nil {
		t.Fatal(err)
	}
	server := direct.Query().Get("host")
	if server == "" {
		t.Skip("The server of TEST_DATABASE_URL is not on a socket of this machine.")
	}
	rename := strings.NewReplacer("app_api", "api_"+database.Name, "app_engine", "engine_"+database.Name).Replace
	bouncer, err := devstack.StartBouncer(t.Context(), devstack.Options{}, server, 3, rename("app_api"), rename("app_engine"))
	if missing := (devstack.NoBouncer{}); errors.As(err, &missing) {
		t.Skip(missing.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bouncer.Stop(); err != nil {
			t.Error(err)
		}
	})
	through := func(login string) string {
		u := *direct
		u.User = url.User(rename(login))
		query := u.Query()
		query.Set("host", bouncer.Socket)
		u.RawQuery = query.Encode()
		return u.String()
	}
	s := &installation{t: t, database: database, backend: polled, tenant: uuid.New(), env: []string{
		"DATABASE_POOL_MODE=transaction", "DATABASE_ENGINE_URL=" + through("app_engine"), "DATABASE_DIRECT_URL=" + database.URL, "SECRETS_KEYS=" + keyring.Generate("k1"),
	}}
	s.logins = map[string]string{"api": through("app_api"), "promoter": through("app_engine"), "worker": through("app_engine")}
	s.migrate()
	documentedLogins(t, database, rename)
	s.serve(2)
	target, calls := sink(t)
	config := config(t, map[string]any{"url": target, "method": "POST", "body": "x"})
	s.create(api.JobSpec{Name: "scheduled", JobType: api.JobTypeHTTP, Config: config, CronExpression: new("* * * * * *")})
	triggered := s.create(api.JobSpec{Name: "triggered", JobType: api.JobTypeHTTP, Config: config, MaxConcurrent: new(2)})
	for range 20 {
		s.trigger(triggered.ID)
	}
	for range 23 {
		<-calls
	}
	// They listen past the pooler.
	conn, err := pgx.Connect(t.Context(), database.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, name := range []string{"scheduler-api-calls", "scheduler-promoter-calls", "scheduler-worker-calls"} {
		var listens int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()", name).Scan(&listens); err != nil || listens == 0 {
			t.Errorf("%s: %d sessions, %v", name, listens, err)
		}
	}
	_, err = postgres.Open(t.Context(), postgres.Config{URL: through("app_api"), Role: postgres.Engine, Name: "test", MaxConns: 1, Pooled: true})
	if err == nil || !strings.Contains(err.Error(), "ALTER ROLE") {
		t.Errorf("the wrong login is refused with %v, want what to do", err)
	}
}
