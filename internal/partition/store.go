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
	return Make(ctx, q, Plan(row.Oldest, row.At))
}

// Make makes the partitions that are missing for rows of the given instants,
// and answers how many it made. It is for rows of the past that are about to be
// written; Keep makes the others ahead.
func Make(ctx context.Context, q *db.Queries, instants []time.Time) (made int, err error) {
	asked := make(map[time.Time]bool)
	for _, at := range instants {
		month := monthOf(at)
		if asked[month] {
			continue
		}
		asked[month] = true
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
