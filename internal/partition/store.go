package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Keep makes the partitions that are missing, from the oldest time that may
// still be written to so many months ahead of now, or less where partitions are
// shorter, and answers how many it made. Any number of processes may do so at
// once. A zero now means the database's clock.
func Keep(ctx context.Context, q *db.Queries, span Span, monthsAhead int, now time.Time) (made int, err error) {
	row, err := q.OldestDue(ctx, postgres.At(now))
	if err != nil {
		return 0, fmt.Errorf("find the oldest scheduled time: %w", postgres.Fault(err))
	}
	days := span.Plan(row.Oldest, row.At, monthsAhead)
	coming, _ := slices.BinarySearchFunc(days, span.first(row.At), time.Time.Compare)
	made, err = makeMissing(ctx, q, days[coming:], span)
	// The past gets few partitions, however long it is: few rows are written into it.
	before, failed := makeMissing(ctx, q, days[:coming], Month)
	return made + before, errors.Join(err, failed)
}

// Missing is a day of UTC that has no partition.
type Missing struct {
	Day time.Time
	// Detached is the table that has the day in its name and is no partition: somebody
	// detached it by hand. Empty: there is none.
	Detached string
}

// String names the day.
func (m Missing) String() string { return m.Day.Format(time.DateOnly) }

// Holds says whether a time is of the day.
func (m Missing) Holds(at time.Time) bool { return Day.first(at).Equal(m.Day) }

// ListMissing lists the days of the given times that have no partition, oldest
// first. The catalogue says so, and not the name of a table.
func ListMissing(ctx context.Context, q *db.Queries, times []time.Time) ([]Missing, error) {
	var asked []time.Time
	seen := make(map[time.Time]bool)
	for _, at := range times {
		if day := Day.first(at); !seen[day] {
			seen[day] = true
			asked = append(asked, day)
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	rows, err := q.ListDaysWithoutPartition(ctx, asked)
	if err != nil {
		return nil, fmt.Errorf("look for missing partitions: %w", postgres.Fault(err))
	}
	missing := make([]Missing, len(rows))
	for i, r := range rows {
		missing[i] = Missing{r.Day.UTC(), r.Detached}
	}
	return missing, nil
}

// Make makes the partitions that are missing for rows of the given times,
// and answers how many it made. It is for rows of the past that are about to be
// written: such a partition has the month of its time, as far as it has none.
// Keep makes the others ahead. A day that somebody detached by hand gets a partition
// of another name.
func Make(ctx context.Context, q *db.Queries, times []time.Time) (made int, err error) {
	return makeMissing(ctx, q, times, Month)
}

func makeMissing(ctx context.Context, q *db.Queries, times []time.Time, span Span) (made int, err error) {
	missing, err := ListMissing(ctx, q, times)
	if err != nil {
		return 0, err
	}
	var end time.Time // of the last partition that was made
	for _, m := range missing {
		// A partition that somebody made by hand may leave a day in pieces.
		for next := m.Day.AddDate(0, 0, 1); end.Before(next); made++ {
			until, err := q.MakePartition(ctx, db.MakePartitionParams{At: m.Day, Span: string(span)})
			if err != nil {
				return made, fmt.Errorf("make the partition of %s: %w", m, postgres.Fault(err))
			}
			if !until.After(m.Day) {
				break
			}
			end = until
		}
	}
	return made, nil
}

// Kept is the first time that is kept, see Term.Oldest. A zero now means the
// database's clock.
func Kept(ctx context.Context, q *db.Queries, t Term, now time.Time) (time.Time, error) {
	row, err := q.OldestDue(ctx, postgres.At(now))
	if err != nil {
		return time.Time{}, fmt.Errorf("find the oldest scheduled time: %w", postgres.Fault(err))
	}
	return t.Oldest(row.Oldest, row.At), nil
}

// busy is what the database's functions answer when they did not get a lock in
// time.
const busy = "busy"

// Retire removes the partitions that lie wholly before a time, and
// answers the names of what it dropped. Readers and writers of the others are not
// held up for more than a tenth of a second: where a partition cannot be taken out
// within that, done is false, and Retire is to be called again later. So it is
// after an interruption; it goes on where it was. Any number of processes may do
// so at once. The database refuses those of the last LeastDays.
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

// soon is for how many days there must be partitions for Prepare to make none: some of
// those that processes make ahead.
const soon = 7

// Prepare is Keep as the owner of the schema, for the migration of a new
// database, before any process may log in. Where the coming days have partitions it
// makes none: the processes keep them, and know for how long executions are kept where that
// was changed while they ran.
func Prepare(ctx context.Context, ownerURL string, span Span, monthsAhead int) (made int, err error) {
	err = postgres.AsOwner(ctx, ownerURL, func(q *db.Queries) error {
		row, err := q.OldestDue(ctx, nil)
		if err != nil {
			return fmt.Errorf("ask for the time: %w", postgres.Fault(err))
		}
		days := make([]time.Time, soon)
		for i := range days {
			days[i] = row.At.AddDate(0, 0, i)
		}
		if missing, err := ListMissing(ctx, q, days); err != nil || len(missing) == 0 {
			return err
		}
		made, err = Keep(ctx, q, span, monthsAhead, time.Time{})
		return err
	})
	return made, err
}
