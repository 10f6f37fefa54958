// Package past counts the finished runs of a tenant's monitors, by hour or day.
//
// It owns the bounds of such a count: how many runs it reads, and from when on it is complete.
// It refuses to judge a run, which is package monitor's, and to count runs of jobs, which is
// package statistics'.
package past

import (
	"context"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/period"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// mostCounted is how many runs one count reads, the newest ones.
const mostCounted = 100_000

// Query says which runs are counted.
type Query struct {
	From, To time.Time // To excluded
	Daily    bool      // by day; otherwise by hour
	Zone     *time.Location
}

// Counts are runs by hour or day.
type Counts struct {
	Buckets []Bucket // those that have a run, in order of time
	// CompleteFrom is the time from which on no run is missing: From, unless more were stored
	// than are read.
	CompleteFrom time.Time
	Truncated    bool
}

// Bucket is an hour or a day of a zone's clock.
type Bucket struct {
	At           time.Time // where it begins, which may lie before From
	Runs, Failed int64
}

// Store counts. It acts for one tenant.
type Store struct {
	db   *postgres.DB
	most int // runs that one count reads
}

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store { return &Store{db: db, most: mostCounted} }

// Count counts a tenant's finished runs, by the time at which it was stored first that they
// started, ended or did not come. Each monitor has its last 1,000 runs.
func (s *Store) Count(ctx context.Context, who tenant.Actor, q Query) (c Counts, err error) {
	c.CompleteFrom = q.From
	var rows []db.CountMonitorRunsRow
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err = tx.CountMonitorRuns(ctx, db.CountMonitorRunsParams{TenantID: who.TenantID, FromAt: q.From, ToAt: q.To, Most: int32(s.most)})
		return err
	})
	if err != nil {
		return c, fmt.Errorf("count the runs of monitors: %w", err)
	}
	var read int64
	for _, r := range rows {
		if read += r.ReadRows; r.Runs == 0 {
			continue
		}
		at, _ := period.Hour(clock.Later(r.Quarter, q.From), q.Zone)
		if q.Daily {
			at, _ = period.Day(clock.Later(r.Quarter, q.From), q.Zone)
		}
		if n := len(c.Buckets); n == 0 || !c.Buckets[n-1].At.Equal(at) {
			c.Buckets = append(c.Buckets, Bucket{At: at})
		}
		last := &c.Buckets[len(c.Buckets)-1]
		last.Runs, last.Failed = last.Runs+r.Runs, last.Failed+r.Failed
	}
	if read == int64(s.most) {
		c.Truncated, c.CompleteFrom = true, rows[0].FirstAt.UTC()
	}
	return c, nil
}
