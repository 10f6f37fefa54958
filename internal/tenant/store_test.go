package tenant_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// reads counts how often tenants are looked at.
type reads struct{ n atomic.Int64 }

func (l *reads) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	l.n.Add(1) // each transaction is opened with one
	return ctx
}
func (l *reads) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (l *reads) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (l *reads) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (l *reads) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func open(t testing.TB, url string, counted *reads) *postgres.DB {
	t.Helper()
	c := postgres.Config{URL: url, Role: postgres.API, Name: "test", MaxConns: 4}
	if counted != nil {
		c.Tracer = counted
	}
	db, err := postgres.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// A refusal is remembered for two seconds as an admission is, so what refused
// tenants ask for does not reach the database each time.
func TestRefusalsAreRemembered(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	var counted reads
	here := tenant.NewStore(open(t, database.URL, &counted), false)
	there := tenant.NewStore(open(t, database.URL, nil), false)
	suspended, unknown := uuid.New(), uuid.New()
	if _, err := there.Create(t.Context(), suspended, tenant.Spec{Name: "late payer"}); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Suspend(t.Context(), suspended, "unpaid"); err != nil {
		t.Fatal(err)
	}
	counted.n.Store(0)
	began := clock.Start()
	for range 100 {
		for _, id := range []uuid.UUID{suspended, unknown} {
			if err := here.Admit(t.Context(), id); fault.KindOf(err) != fault.Forbidden {
				t.Fatalf("admitted: %v", err)
			}
		}
	}
	if most := 2 * (1 + int64(began.Elapsed()/(2*time.Second))); counted.n.Load() > most {
		t.Errorf("the database was asked %d times, at most %d were needed", counted.n.Load(), most)
	}
	// In the process that changes it, an answer is forgotten at once.
	if _, err := here.Activate(t.Context(), suspended); err != nil {
		t.Fatal(err)
	}
	if err := here.Admit(t.Context(), suspended); err != nil {
		t.Errorf("after its activation: %v", err)
	}
	if _, err := here.Create(t.Context(), unknown, tenant.Spec{Name: "new"}); err != nil {
		t.Fatal(err)
	}
	if err := here.Admit(t.Context(), unknown); err != nil {
		t.Errorf("after its creation: %v", err)
	}
}

// A change by another process holds within two seconds, in both directions.
func TestWhatAnotherProcessChangesHoldsSoon(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	here, there := tenant.NewStore(open(t, database.URL, nil), false), tenant.NewStore(open(t, database.URL, nil), false)
	id := uuid.New()
	become := func(want fault.Kind, admitted bool) {
		t.Helper()
		began := clock.Start()
		for {
			err := here.Admit(t.Context(), id)
			if admitted == (err == nil) && (admitted || fault.KindOf(err) == want) {
				return
			}
			if began.Elapsed() > time.Minute {
				t.Fatalf("answered %v", err)
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	become(fault.Forbidden, false)
	if _, err := there.Create(t.Context(), id, tenant.Spec{Name: "x"}); err != nil {
		t.Fatal(err)
	}
	become(0, true)
	if _, err := there.Suspend(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	become(fault.Forbidden, false)
	if _, err := there.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	become(0, true)
}

// BenchmarkRefusals is what a request of a suspended tenant costs before it is
// refused.
func BenchmarkRefusals(b *testing.B) {
	database := pgtest.New(b)
	store := tenant.NewStore(open(b, database.URL, nil), false)
	id := uuid.New()
	b.ReportAllocs()
	for b.Loop() {
		if store.Admit(b.Context(), id) == nil {
			b.Fatal("admitted")
		}
	}
}
