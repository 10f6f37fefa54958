package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Keep makes the partitions that are missing, from the oldest instant that may
// still be written to Ahead months from now, and answers how many it made. Any
// number of processes may do so at once. A zero now means the database's clock.
func Keep(ctx context.Context, q *db.Queries, now time.Time) (made int, err error) {
	row, err := q.OldestDue(ctx, postgres.At(now))
	if err != nil {
		return 0, fmt.Errorf("find the oldest due instant: %w", postgres.Fault(err))
	}
	for _, month := range Plan(row.Oldest, row.At) {
		fresh, err := q.CreatePartition(ctx, month)
		if err != nil {
			return made, fmt.Errorf("make the partition of %s: %w", month.Format("2006-01"), postgres.Fault(err))
		}
		if fresh {
			made++
		}
	}
	return made, nil
}

// Prepare is Keep as the owner of the schema, for the migration of a new
// database, before any process may log in.
func Prepare(ctx context.Context, ownerURL string) (made int, err error) {
	err = postgres.AsOwner(ctx, ownerURL, func(q *db.Queries) error {
		made, err = Keep(ctx, q, time.Time{})
		return err
	})
	return made, err
}
