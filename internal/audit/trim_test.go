package audit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/audit"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/retention"
)

// age makes the entries of a shard up to one so many days older, with their
// hashes, as if they had been written then.
func (b *bundle) age(shard, upTo, days int) {
	b.t.Helper()
	b.tamper(fmt.Sprintf(`DO $do$ DECLARE e record; own bytea;
		previous bytea := coalesce((SELECT hash FROM audit_anchors WHERE $t AND strand = %[1]d), decode(repeat('00', 32), 'hex')); BEGIN
		FOR e IN SELECT * FROM audit_log WHERE $t AND strand = %[1]d ORDER BY seq LOOP
			IF e.seq <= %[2]d THEN e.at := e.at - interval '%[3]d days'; END IF;
			own := sha256(previous || convert_to(audit_part(e.tenant_id::text) || audit_part(e.strand::text) || audit_part(e.seq::text)
				|| audit_part((extract(epoch FROM e.at) * 1000000)::bigint::text) || audit_part(e.actor_kind) || audit_part(e.actor) || audit_part(e.address)
				|| audit_part(e.request_id) || audit_part(e.action) || audit_part(e.object_type) || audit_part(e.object_id) || audit_part(e.change)
				|| audit_part(e.before) || audit_part(e.after), 'UTF8'));
			UPDATE audit_log SET at = e.at, prev_hash = previous, hash = own WHERE $t AND strand = %[1]d AND seq = e.seq;
			previous := own;
		END LOOP;
		UPDATE audit_heads SET hash = previous WHERE $t AND strand = %[1]d; END $do$`, shard, upTo, days))
}

// trim runs retention that keeps so many days.
func (b *bundle) trim(days int) retention.Report {
	b.t.Helper()
	r, err := retention.New(retention.Config{DB: b.engine, Executions: partition.Term{Months: 13}, MetricDays: 14, AuditDays: days, Budget: time.Hour}).Pass(b.t.Context(), time.Time{})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// aged makes ten entries, of which six are 500 days old.
func aged(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	for i := 2; i <= 10; i++ {
		b.create(b.ours, fmt.Sprintf("job %d", i))
	}
	b.age(0, 6, 500)
	if r := b.verify(); r.Problem != nil || r.Checked != 10 {
		t.Fatalf("before: %+v %+v", r, r.Problem)
	}
	return b
}

func TestTheBeginningOfTheLogIsRemovedAndTheRestHolds(t *testing.T) {
	t.Parallel()
	b := aged(t)
	ends, _ := b.links(6)
	if r := b.trim(0); r.AuditEntries != 0 {
		t.Errorf("kept for ever, and removed %d", r.AuditEntries)
	}
	if r := b.trim(400); r.AuditEntries != 6 || r.Nothing() {
		t.Errorf("removed %+v", r)
	}
	if r := b.trim(400); r.AuditEntries != 0 {
		t.Errorf("the second pass removed %d", r.AuditEntries)
	}
	entries := b.entries(b.ours, audit.Filter{})
	if len(entries) != 5 || entries[0].ObjectType != "auditLog" || entries[0].ActorKind != "process" || entries[4].Seq != 7 {
		t.Fatalf("left are %+v", entries)
	}
	if r := b.verify(); r.Problem != nil || !r.Complete || r.Checked != 5 {
		t.Errorf("%+v %+v", r, r.Problem)
	}
	if r := b.verify(ends...); r.Problem != nil || !r.Complete {
		t.Errorf("from the entry that is gone: %+v %+v", r, r.Problem)
	}
	again, _ := b.links(1000)
	all := func(anchors map[uuid.UUID][]audit.Link) (problem *audit.Problem) {
		err := audit.VerifyAll(t.Context(), b.engine, anchors, func(_ uuid.UUID, r audit.Report) {
			if problem == nil {
				problem = r.Problem
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return problem
	}
	if p := all(map[uuid.UUID][]audit.Link{b.ours.TenantID: append(again, ends...)}); p != nil {
		t.Errorf("all: %+v", p)
	}
	ends[0].Hash = make([]byte, 32)
	if p := all(map[uuid.UUID][]audit.Link{b.ours.TenantID: ends}); p == nil || p.Kind != "anchor" {
		t.Errorf("another entry than the last that is gone: %+v", p)
	}
}

// A shard whose entries are all too old is removed. When the record of the removal
// gets too old too, it is written again.
func TestAWholeShardIsRemoved(t *testing.T) {
	t.Parallel()
	b := aged(t)
	for _, sql := range []string{
		"BEGIN", "SELECT set_config('app.tenant_id', '" + b.ours.TenantID.String() + "', true), set_config('app.strand', '1', true)",
		"UPDATE scheduled_jobs SET status = 'paused' WHERE tenant_id = '" + b.ours.TenantID.String() + "' AND name = 'job 2'", "COMMIT",
	} {
		b.exec(sql)
	}
	b.age(1, 1, 500)
	if r := b.trim(400); r.AuditEntries != 7 {
		t.Errorf("removed %d, want 6 and the only one of the other shard", r.AuditEntries)
	}
	if r := b.verify(); r.Problem != nil || !r.Complete || r.Checked != 6 {
		t.Errorf("%+v %+v", r, r.Problem)
	}
	b.age(0, 12, 500)
	if r := b.trim(400); r.AuditEntries != 6 {
		t.Errorf("removed %d of the 6 that were left", r.AuditEntries)
	}
	if r := b.verify(); r.Problem != nil || !r.Complete || r.Checked != 2 {
		t.Errorf("%+v %+v", r, r.Problem)
	}
	b.create(b.ours, "later")
	if r := b.verify(); r.Problem != nil || !r.Complete || r.Checked != 3 {
		t.Errorf("%+v %+v", r, r.Problem)
	}
}

func TestNobodyRemovesYoungEntries(t *testing.T) {
	t.Parallel()
	b := aged(t)
	for _, sql := range []string{
		"SELECT trim_audit_strand(tenant_id, 0::smallint, now(), 1000) FROM audit_heads", "DELETE FROM audit_anchors", "DELETE FROM audit_log",
		"INSERT INTO audit_anchors SELECT tenant_id, strand, seq, hash, at FROM audit_log",
	} {
		if _, err := b.engine.Pool().Exec(t.Context(), sql); err == nil {
			t.Errorf("the engine's role may %s", sql)
		}
	}
	if _, err := b.api.Pool().Exec(t.Context(), "SELECT trim_audit_strand(gen_random_uuid(), 0::smallint, '2001-01-01', 1)"); err == nil {
		t.Error("the API's role may remove entries")
	}
	for _, sql := range []string{
		"DELETE FROM audit_log WHERE seq = 1", // old, and no anchor stands for it
		"UPDATE audit_anchors SET seq = 9", "TRUNCATE audit_anchors",
	} {
		if _, err := b.admin.Exec(t.Context(), sql); err == nil {
			t.Errorf("the superuser may %s by the way", sql)
		}
	}
	b.trim(400)
	if _, err := b.admin.Exec(t.Context(), "DELETE FROM audit_log"); err == nil {
		t.Error("the superuser may delete young entries by the way")
	}
}

// Verification finds entries that something other than retention removed, also if
// there is an anchor.
func TestARemovalThatIsNotRetentionsIsFound(t *testing.T) {
	t.Parallel()
	const anchor = "INSERT INTO audit_anchors SELECT tenant_id, strand, seq, hash, at FROM audit_log WHERE $t AND strand = 0 AND seq = 8"
	quietly := []string{"ALTER TABLE audit_anchors DISABLE TRIGGER ALL", "ALTER TABLE audit_log DISABLE TRIGGER ALL"}
	for name, test := range map[string]struct {
		do   []string
		kind string
	}{
		"without an anchor":         {append(quietly, "DELETE FROM audit_log WHERE $t AND seq <= 8", "DELETE FROM audit_anchors WHERE $t"), "missing"},
		"with an anchor of its own": {append(quietly, "DELETE FROM audit_anchors WHERE $t", anchor, "DELETE FROM audit_log WHERE $t AND seq <= 8"), "removed"},
		"the anchor moved":          {append(quietly, "UPDATE audit_anchors SET seq = 7 WHERE $t", "DELETE FROM audit_log WHERE $t AND seq = 7"), "removed"},
		"the anchor's hash":         {append(quietly, "UPDATE audit_anchors SET hash = decode(repeat('11', 32), 'hex') WHERE $t"), "removed"},
		"the record is gone":        {append(quietly, "DELETE FROM audit_log WHERE $t AND object_type = 'auditLog'"), "removed"},
		"an entry after the anchor": {append(quietly, "DELETE FROM audit_log WHERE $t AND seq = 7"), "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := aged(t)
			b.trim(400)
			b.tamper(test.do...)
			if r := b.verify(); r.Problem == nil || r.Problem.Kind != test.kind {
				t.Errorf("found %+v %+v, want %s", r, r.Problem, test.kind)
			}
		})
	}
}
