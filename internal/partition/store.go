package partition

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Keep makes the partitions that are missing, from the oldest time that may
// still be written to so many months ahead of now, and answers how many it made.
// Any number of processes may do so at once. A zero now means the database's clock.
func Keep(ctx context.Context, q *db.Queries, ahead int, now time.Time) (made int, err error) {
	row, err := q.OldestDue(ctx, postgres.At(now))
	if err != nil {
		return 0, fmt.Errorf("find the oldest scheduled time: %w", postgres.Fault(err))
	}
	return Make(ctx, q, Plan(row.Oldest, row.At, ahead))
}

// Month is a month of UTC that has no partition.
type Month struct {
	Start time.Time
	// Detached is the table with the month's name that is no partition: somebody
	// detached the month by hand. Empty: there is none.
	Detached string
}

// String names the month.
func (m Month) String() string { return m.Start.Format("2006-01") }

// Holds says whether a time is of the month.
func (m Month) Holds(at time.Time) bool { return monthOf(at).Equal(m.Start) }

// Missing lists the months of the given times that have no partition, oldest
// first. The catalogue says so, and not the name of a table.
func Missing(ctx context.Context, q *db.Queries, times []time.Time) ([]Month, error) {
	var asked []time.Time
	for _, at := range times {
		if month := monthOf(at); !slices.ContainsFunc(asked, month.Equal) {
			asked = append(asked, month)
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	rows, err := q.ListMissingMonths(ctx, asked)
	if err != nil {
		return nil, fmt.Errorf("look for missing partitions: %w", postgres.Fault(err))
	}
	missing := make([]Month, len(rows))
	for i, r := range rows {
		missing[i] = Month{r.Month.UTC(), r.Detached}
	}
	return missing, nil
}

// Make makes the partitions that are missing for rows of the given times,
// and answers how many it made. It is for rows of the past that are about to be
// written; Keep makes the others ahead. A month that somebody detached by hand
// gets a partition of another name.
func Make(ctx context.Context, q *db.Queries, times []time.Time) (made int, err error) {
	missing, err := Missing(ctx, q, times)
	if err != nil {
		return 0, err
	}
	for _, month := range missing {
		fresh, err := q.CreatePartition(ctx, month.Start)
		if err != nil {
			return made, fmt.Errorf("make the partition of %s: %w", month, postgres.Fault(err))
		}
		if fresh {
			made++
		}
	}
	return made, nil
}

// Kept is the first time that is kept when so many months are, see Oldest. A
// zero now means the database's clock.
func Kept(ctx context.Context, q *db.Queries, months int, now time.Time) (time.Time, error) {
	row, err := q.OldestDue(ctx, postgres.At(now))
	if err != nil {
		return time.Time{}, fmt.Errorf("find the oldest scheduled time: %w", postgres.Fault(err))
	}
	return Oldest(row.Oldest, row.At, months), nil
}

// busy is what the database's functions answer when they did not get a lock in
// time.
const busy = "busy"

// Retire removes the partitions whose month lies wholly before a time, and
// answers the names of what it dropped. Readers and writers of the others are not
// held up for more than a tenth of a second: where a partition cannot be taken out
// within that, done is false, and Retire is to be called again later. So it is
// after an interruption; it goes on where it was. Any number of processes may do
// so at once. The database refuses the current month and the last.
func Retire(ctx context.Context, q *db.Queries, before time.Time) (dropped []string, done bool, err error) {
	done = true
	for range maxPlan {
		part, err := q.DetachPartition(ctx, before)
		if err != nil {
			return nil, false, fmt.Errorf("detach an old partition: %w", postgres.Fault(err))
		}
		if done = part != busy; part == "" || !done {
			break
		}
	}
	for range maxPlan {
		part, err := q.DropPartition(ctx)
		if err != nil {
			return dropped, false, fmt.Errorf("drop an old partition: %w", postgres.Fault(err))
		}
		if part == "" {
			return dropped, done, nil
		}
		if part == busy {
			break
		}
		dropped = append(dropped, part)
	}
	return dropped, false, nil
}

// Prepare is Keep as the owner of the schema, for the migration of a new
// database, before any process may log in.
func Prepare(ctx context.Context, ownerURL string, ahead int) (made int, err error) {
	err = postgres.AsOwner(ctx, ownerURL, func(q *db.Queries) error {
		made, err = Keep(ctx, q, ahead, time.Time{})
		return err
	})
	return made, err
}
