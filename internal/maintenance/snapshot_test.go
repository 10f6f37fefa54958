package maintenance_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/maintenance"
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
	m := b.anotherMaintainer(func(c *maintenance.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if warned, err := m.WatchSnapshots(t.Context(), 1<<40); err != nil || warned {
		t.Errorf("warned %v of a young transaction (%v)", warned, err)
	}
	warned, err := m.WatchSnapshots(t.Context(), 4)
	// Other tests share the server, so an older one may be named.
	if err != nil || !warned || !strings.Contains(log.String(), "holder=\"the session with pid ") {
		t.Errorf("warned %v (%v), %s; want the session with pid %d", warned, err, log.String(), conn.PgConn().PID())
	}
}
