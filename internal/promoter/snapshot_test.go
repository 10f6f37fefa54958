package promoter_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// A transaction that stays open while others come and go is named to the operator.
func TestOldSnapshotsAreNamed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM tenants"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		b.create(t, nil)
	}
	var log bytes.Buffer
	p := promoter.New(promoter.Deps{
		DB: b.engine, Hints: b.hints, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.NewTextHandler(&log, nil)), CatchupPerSecond: 100,
	})
	if warned, err := p.WatchSnapshots(t.Context(), 1<<40); err != nil || warned {
		t.Errorf("warned %v of a young transaction (%v)", warned, err)
	}
	warned, err := p.WatchSnapshots(t.Context(), 4)
	// Other tests share the server, so an older one may be named.
	if err != nil || !warned || !strings.Contains(log.String(), "holder=\"the session with pid ") {
		t.Errorf("warned %v (%v), %s; want the session with pid %d", warned, err, log.String(), conn.PgConn().PID())
	}
}
