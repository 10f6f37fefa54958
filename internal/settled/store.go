package settled

import (
	"context"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// listWriters are the transactions that have written and not ended, at a time.
func listWriters(ctx context.Context, d *postgres.DB) (at time.Time, writers []string, err error) {
	row, err := db.New(d.Pool()).ListWriters(ctx)
	if err != nil {
		return at, nil, fmt.Errorf("find the transactions that write: %w", postgres.Fault(err))
	}
	return row.At, row.Writers, nil
}
