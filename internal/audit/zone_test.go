package audit_test

import (
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/audit"
)

// TestTimesAreRecordedInUTC changes jobs in a session of another zone, one change at the commit
// and one within the transaction: the record is in UTC, and the session keeps its zone.
func TestTimesAreRecordedInUTC(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(b.ours, "a")
	conn := b.session()
	b.byHand(conn,
		"SET timezone = 'Australia/Lord_Howe'", "SET app.tenant_id = '"+b.ours.TenantID.String()+"'",
		"UPDATE scheduled_jobs SET status = 'paused', paused_until = '2099-06-01 12:00:00Z'",
		"BEGIN", "SET CONSTRAINTS ALL IMMEDIATE", "UPDATE scheduled_jobs SET version = version + 1, start_date = '2099-07-01 12:00:00Z'")
	var zone string
	if err := conn.QueryRow(t.Context(), "SHOW timezone").Scan(&zone); err != nil || zone != "Australia/Lord_Howe" {
		t.Errorf("within the transaction the zone is %q, %v", zone, err)
	}
	b.byHand(conn, "COMMIT", "RESET app.tenant_id", "RESET timezone")
	list := b.entries(b.ours, audit.Filter{})
	if len(list) < 2 || !strings.Contains(string(list[0].After), "2099-07-01T12:00:00+00:00") || !strings.Contains(string(list[1].After), "2099-06-01T12:00:00+00:00") {
		t.Errorf("recorded %+v", list)
	}
	if r := b.verify(); r.Problem != nil {
		t.Errorf("%+v", r.Problem)
	}
}
