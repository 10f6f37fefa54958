package live_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/live"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// settings are those of a promoter that was started with a backlog of 700.
func settings(t *testing.T, log *slog.Logger) *live.Settings {
	t.Helper()
	loaded, err := config.Load[config.Promoter](func(name string) (string, bool) {
		value, ok := map[string]string{"DATABASE_URL": "postgres://app@db/scheduler", "TENANT_MAX_WAITING": "700"}[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	return live.New(config.Settings(loaded), log)
}

func open(t *testing.T, database *pgtest.Database, role postgres.Role) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 2, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// A process follows what another one sets, and goes by its environment again after a reset.
func TestProcessesFollow(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	level := new(slog.LevelVar)
	var out bytes.Buffer
	log := telemetry.NewLogger(&out, level, false)
	promoter, db := settings(t, log), open(t, database, postgres.Engine)
	api := live.NewStore(open(t, database, postgres.API), settings(t, slog.New(slog.DiscardHandler)))
	who := tenant.Actor{TenantID: uuid.New(), Subject: "ada"}
	waiting := promoter.Int("TENANT_MAX_WAITING")
	expect := func(want int) {
		t.Helper()
		if err := promoter.Refresh(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if got := waiting(); got != want {
			t.Errorf("the backlog is %d, want %d", got, want)
		}
	}
	set := func(name, value string) {
		t.Helper()
		if _, err := api.Set(t.Context(), who, name, value); err != nil {
			t.Fatal(err)
		}
	}
	expect(700)
	set("TENANT_MAX_WAITING", " 5000")
	set("LOG_LEVEL", "DEBUG")
	expect(5000)
	if level.Level() != slog.LevelDebug {
		t.Errorf("the level is %v", level.Level())
	}
	if err := api.Reset(t.Context(), who, "TENANT_MAX_WAITING"); err != nil {
		t.Fatal(err)
	}
	expect(700)
	if text := out.String(); !strings.Contains(text, `"setting":"TENANT_MAX_WAITING","value":"5000","source":"database"`) {
		t.Errorf("the log does not say what changed:\n%s", text)
	}
	if got := promoter.Int("TENANT_MAX_CONNECTIONS")(); got != 0 {
		t.Errorf("a variable that needs a restart is %d", got)
	}
}

// A value that this version refuses, stored by another one or by hand, changes nothing; the
// log says so once. Neither does a database that does not answer.
func TestTheValueBeforeStays(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	var out bytes.Buffer
	promoter := settings(t, telemetry.NewLogger(&out, slog.LevelInfo, false))
	db := open(t, database, postgres.Engine)
	api := live.NewStore(open(t, database, postgres.API), settings(t, slog.New(slog.DiscardHandler)))
	if _, err := api.Set(t.Context(), tenant.Actor{TenantID: uuid.New()}, "TENANT_MAX_WAITING", "5000"); err != nil {
		t.Fatal(err)
	}
	if err := promoter.Refresh(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.WithoutCancel(t.Context())) })
	if _, err := admin.Exec(t.Context(), "UPDATE live_settings SET value = 'many'"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := promoter.Refresh(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	if got := promoter.Int("TENANT_MAX_WAITING")(); got != 5000 {
		t.Errorf("the backlog is %d", got)
	}
	if n := strings.Count(out.String(), "is refused"); n != 1 {
		t.Errorf("the log says %d times that the value is refused:\n%s", n, out.String())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := promoter.Refresh(ended, db); err == nil {
		t.Error("a read that failed is no error")
	}
	if got := promoter.Int("TENANT_MAX_WAITING")(); got != 5000 {
		t.Errorf("after a read that failed the backlog is %d", got)
	}
}

// A refused value is not stored, and the reason names a right one.
func TestRefused(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	api := live.NewStore(open(t, database, postgres.API), settings(t, slog.New(slog.DiscardHandler)))
	who := tenant.Actor{TenantID: uuid.New(), Subject: "ada"}
	for _, test := range []struct {
		name, value string
		kind        fault.Kind
		says        string
	}{
		{"LOG_LEVEL", "loud", fault.Invalid, "debug, info, warn or error"},
		{"TENANT_MAX_WAITING", "-1", fault.Invalid, "from 0 to 100000000"},
		{"TENANT_MAX_WAITING", "1e3", fault.Invalid, "not a whole number"},
		{"AUDIT_RETENTION_DAYS", "7", fault.Invalid, "30 or more"},
		{"RETENTION_MONTHS", "0", fault.Invalid, "from 1 to 120"},
		{"HTTP_ADDR", ":80", fault.NotFound, "no setting"},
		{"JWT_SECRET", "x", fault.NotFound, "no setting"},
	} {
		if _, err := api.Set(t.Context(), who, test.name, test.value); fault.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s=%s: %v", test.name, test.value, err)
		}
	}
	if err := api.Reset(t.Context(), who, "HTTP_ADDR"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("HTTP_ADDR is reset: %v", err)
	}
	all, err := api.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Source != live.Environment || one.ChangedAt != nil {
			t.Errorf("%+v", one)
		}
	}
	at := slices.IndexFunc(all, func(s live.Setting) bool { return s.Name == "TENANT_REQUESTS_PER_SECOND" })
	if one := all[at]; one.Value != "" || one.Default != "1000" || *one.Min != 1 || one.Unit != "requests a second" {
		t.Errorf("a setting of another process is %+v", one)
	}
}
