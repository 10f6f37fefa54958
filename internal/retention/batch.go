package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	// rows bounds one statement.
	rows = 1000
	// jobs is the same for jobs, whose versions go with them: up to
	// JOB_VERSIONS_KEPT each.
	jobs = 20
	// outputs is the same for chunks of output, of up to 32 KiB each.
	outputs = 250
	// maxSkipped bounds the rows of one kind that cannot be deleted and that each
	// statement passes over.
	maxSkipped = 1000
)

// batch is what one statement removes: so many rows, the oldest first, after
// those that cannot be deleted.
type batch struct{ size, skipped int }

// kind is one kind of rows that get too old. remove removes a batch of it and
// says whether nothing is left.
type kind struct {
	name    string
	size    int // of its batches
	removed *int
	remove  func(ctx context.Context, b batch) (removed int, done bool, err error)
}

// before makes a kind's remove of one that deletes what is older than a time.
func before(at time.Time, remove func(context.Context, time.Time, batch) (int, error)) func(context.Context, batch) (int, bool, error) {
	return func(ctx context.Context, b batch) (int, bool, error) {
		n, err := remove(ctx, at, b)
		return n, n < b.size, err
	}
}

// progress is how far the removal of a kind came: its batch, which is halved while
// it fails, and how many rows failed alone.
type progress struct {
	batch

	failed error // the last row that failed alone
}

// step removes a batch of a kind and says whether the kind is done for this
// pass. A batch that the database refuses, or does not do in time, is divided until one
// row is left; that row is passed over, and tried again when all others of its kind
// are gone. An error that passes by itself ends the kind's turns in this pass.
func (k *Keeper) step(ctx context.Context, one kind) (done bool, err error) {
	p := k.progress[one.name]
	if p == nil {
		p = &progress{batch: batch{size: one.size}}
		k.progress[one.name] = p
	}
	n, done, err := one.remove(ctx, p.batch)
	*one.removed += n
	switch {
	case err == nil && !done:
		p.size = min(2*p.size, one.size)
		return false, nil
	case err == nil:
		delete(k.progress, one.name)
		return true, p.report(one.name)
	case !postgres.Refused(err) && !postgres.TimedOut(err):
		return true, err
	case p.size > 1:
		p.size /= 2
		return false, nil
	}
	p.skipped, p.failed = p.skipped+1, err
	if p.skipped < maxSkipped {
		return false, nil
	}
	delete(k.progress, one.name)
	return true, p.report(one.name)
}

// report is what the owner of the database has to mend.
func (p *progress) report(name string) error {
	if p.failed == nil {
		return nil
	}
	return fmt.Errorf("%d of the %s that are too old cannot be deleted and stay: %w", p.skipped, name, p.failed)
}
