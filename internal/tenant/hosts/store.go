package hosts

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Every is the distance between two refreshes: how much later a changed list holds.
const Every = 10 * time.Second

// Lists are the lists of all tenants that have one, as a process read them last.
type Lists struct {
	db   *postgres.DB
	kept atomic.Pointer[map[uuid.UUID][]string]
	read atomic.Pointer[clock.Mark] // when
}

// Load reads the lists for the first time; without them no call could be decided on.
func Load(ctx context.Context, db *postgres.DB) (*Lists, error) {
	l := &Lists{db: db}
	return l, l.Refresh(ctx)
}

// Fresh reads the lists again unless it was done within Every: for those who seldom ask. One
// goroutine at a time calls it.
func (l *Lists) Fresh(ctx context.Context) error {
	if l.read.Load().Elapsed() < Every {
		return nil
	}
	return l.Refresh(ctx)
}

// Refresh reads the lists again. After an error those before go on holding.
func (l *Lists) Refresh(ctx context.Context) error {
	rows, err := db.New(l.db.Pool()).ListAllowedHosts(ctx)
	if err != nil {
		return fmt.Errorf("read the allowed hosts of tenants: %w", postgres.Fault(err))
	}
	kept := make(map[uuid.UUID][]string, len(rows))
	for _, row := range rows {
		kept[row.ID] = row.AllowedHosts
	}
	now := clock.Start()
	l.kept.Store(&kept)
	l.read.Store(&now)
	return nil
}

// Admit tells whether a tenant's jobs may call a host.
func (l *Lists) Admit(tenant uuid.UUID, host string) bool {
	return Admit((*l.kept.Load())[tenant], host)
}
