package rest_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Creations of one tenant wait for each other near its bound on jobs alone: each would wait
// for the commit of the one before.
func TestCreationsWaitForEachOtherNearTheBoundAlone(t *testing.T) {
	t.Parallel()
	const bound = 1001 // one more than what is much room
	b, token := limited(t, tenant.Spec{Limits: tenant.Limits{MaxJobs: ptr(bound)}})
	create := func() int {
		return b.send(request{method: "POST", path: base + "/jobs", token: token, body: webhook}).status
	}
	last := make(chan int, 1)
	err := b.db.InTenant(t.Context(), b.ours.TenantID, func(underWay *postgres.Tx) error {
		if err := underWay.ShareJobCount(t.Context(), b.ours.TenantID); err != nil {
			return err
		}
		for n := range 2 { // 1,001 and 1,000 short of the bound
			if got := create(); got != http.StatusCreated {
				t.Errorf("creation %d beside one that is under way: %d", n+1, got)
			}
		}
		go func() { last <- create() }()
		for waiting := 0; waiting == 0; {
			if len(last) > 0 {
				return errors.New("a creation near the bound did not wait for one that is under way")
			}
			if err := b.engine.Pool().QueryRow(t.Context(), `SELECT count(*) FROM pg_locks
				WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&waiting); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := <-last; got != http.StatusCreated {
		t.Errorf("the creation that waited: %d", got)
	}
}
