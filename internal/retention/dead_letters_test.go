package retention_test

import (
	"testing"
)

// A dead letter goes with the month of its execution, and a replay with the month in which it
// ended; one under way stays.
func TestDeadLettersGoWithTheirMonths(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, months := range []int{-20, -14, -13, 0} {
		at := b.month.AddDate(0, months, 0)
		b.exec(`INSERT INTO dead_letters (execution_id, tenant_id, job_id, error_type, error_message, fingerprint, failed_at, scheduled_at)
			VALUES (gen_random_uuid(), $1, $1, 'TIMEOUT', '', '0123456789abcdef', $2, $2)`, b.tenant, at)
		b.exec(`INSERT INTO dead_letter_replays (id, tenant_id, selected, from_at, to_at, rate_per_minute, no_secrets, status, after_at, after_id, total, next_at, requested_by, created_at, finished_at)
			VALUES (gen_random_uuid(), $1, '{}', $2, $2, 1, true, 'completed', $2, $1, 1, $2, 'x', $2, $2)`, b.tenant, at)
	}
	b.exec(`INSERT INTO dead_letter_replays (id, tenant_id, selected, from_at, to_at, rate_per_minute, no_secrets, status, after_at, after_id, total, next_at, requested_by, created_at)
		SELECT gen_random_uuid(), $1, 'x', at, at, 1, true, 'running', at, $1, 1, at, 'x', at FROM (SELECT $2::timestamptz AS at) a`, b.tenant, b.month.AddDate(0, -20, 0))
	if r := b.pass(13); r.DeadLetters != 4 || r.More {
		t.Errorf("removed %d, more %v", r.DeadLetters, r.More)
	}
	for table, want := range map[string]int{"dead_letters": 2, "dead_letter_replays": 3} {
		if n := b.count("SELECT count(*) FROM " + table); n != want {
			t.Errorf("%d rows of %s are left, want %d", n, table, want)
		}
	}
}
