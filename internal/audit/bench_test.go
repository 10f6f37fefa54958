package audit_test

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Jobs of one tenant, 500 of them created each second, on a PostgreSQL that
// writes each commit to disk: every one waits for the chain's head. Run it with
// -benchtime 5000x for ten seconds. The second run has no triggers.
func BenchmarkCreatesOfOneTenant(b *testing.B) {
	server, err := devstack.StartPostgres(b.Context(), devstack.Options{Dir: b.TempDir(), Log: slog.New(slog.DiscardHandler), Durable: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	if err := postgres.EnsureDatabase(b.Context(), server.AdminURL, "bench", "bench_owner"); err != nil {
		b.Fatal(err)
	}
	owner, login := server.URL("bench", "bench_owner"), server.URL("bench", "bench")
	if _, err := postgres.Migrate(b.Context(), owner, slog.New(slog.DiscardHandler)); err != nil {
		b.Fatal(err)
	}
	if err := postgres.EnsureLogin(b.Context(), owner, login); err != nil {
		b.Fatal(err)
	}
	db, err := postgres.Open(b.Context(), postgres.Config{URL: login, Role: postgres.API, Name: "bench", MaxConns: 20})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for _, name := range []string{"recorded", "not"} {
		b.Run(name, func(b *testing.B) {
			if name == "not" {
				conn, err := pgx.Connect(b.Context(), owner)
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close(b.Context())
				if _, err := conn.Exec(b.Context(), "DROP TRIGGER IF EXISTS record_change ON job_definitions"); err != nil {
					b.Fatal(err)
				}
			}
			creates(b, db)
		})
	}
}

func creates(b *testing.B, db *postgres.DB) {
	b.Helper()
	who := tenant.Actor{TenantID: uuid.New(), Subject: "ada"}
	if err := tenant.NewStore(db, true).Admit(b.Context(), who.TenantID); err != nil {
		b.Fatal(err)
	}
	keys, err := keyring.Parse(keyring.Generate("k1"))
	if err != nil {
		b.Fatal(err)
	}
	jobs := job.NewStore(db, job.Config{Keys: keys})
	took := make([]time.Duration, b.N)
	var all sync.WaitGroup
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	b.ResetTimer()
	for i := range b.N {
		<-tick.C
		all.Go(func() {
			mark := clock.Start()
			if _, _, err := jobs.Create(b.Context(), who, spec(fmt.Sprint(i)), idempotency.Key{}); err != nil {
				b.Error(err)
			}
			took[i] = mark.Elapsed()
		})
	}
	all.Wait()
	b.StopTimer()
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("ms/p%d", p))
	}
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms/max")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
}
