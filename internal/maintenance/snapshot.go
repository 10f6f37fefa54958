package maintenance

import "context"

// oldTransactions is how many transactions may begin during another one before
// WatchSnapshots warns of it. With some six dead rows each, scans of the indexes
// by time pass over six million by then and take seconds (measured: 250 to 400 ms
// for 600,000).
const oldTransactions = 1_000_000

// WatchSnapshots looks for a transaction, prepared transaction or replication slot
// that keeps PostgreSQL from removing dead rows since more than so many transactions,
// and says who it is. Nothing here can end it; its operator can.
func (m *Maintainer) WatchSnapshots(ctx context.Context, most int64) (warned bool, err error) {
	oldest, err := m.store.oldestSnapshot(ctx)
	if err != nil {
		return false, err
	}
	m.c.Metrics.SetOldestSnapshot(oldest.transactions)
	if oldest.transactions <= most {
		return false, nil
	}
	m.c.Log.WarnContext(ctx, "an old transaction keeps PostgreSQL from removing dead rows, so every pass takes longer and longer: end it (pg_terminate_backend, ROLLBACK PREPARED, pg_drop_replication_slot)",
		"holder", oldest.holder, "transactions_since", oldest.transactions)
	return true, nil
}
