package audit_test

import (
	"testing"

	"github.com/scheduler-service/scheduler/internal/audit"
)

// A filter over many entries costs a page 10,000 of them at most, and the next one
// goes on.
func TestAListReadsABoundedNumberOfEntries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(b.ours, "a")
	b.exec(`INSERT INTO audit_log (tenant_id, strand, seq, at, actor_kind, actor, address, request_id, action, object_type, object_id, change, prev_hash, hash)
		SELECT $1, 7, n, now() + n * interval '1 ms', 'user', 'bob', '', '', 'x', 'job', 'o', 'update', sha256('x'), sha256('x') FROM generate_series(1, 10000) n`, b.ours.TenantID)
	list, next, err := b.log.List(t.Context(), b.ours, audit.Filter{Actor: "ada", Limit: 20})
	if err != nil || len(list) != 0 || next == nil {
		t.Fatalf("the first page is %v, next %v, %v", list, next, err)
	}
	list, next, err = b.log.List(t.Context(), b.ours, audit.Filter{Actor: "ada", Limit: 20, After: next})
	if err != nil || len(list) != 2 || next != nil {
		t.Errorf("the second page is %v, next %v, %v", list, next, err)
	}
}
