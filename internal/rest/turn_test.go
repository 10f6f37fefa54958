package rest_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// A tenant whose bulk calls hang, because somebody holds what they need, gets no
// more of them, and takes neither its own plain requests nor another tenant the
// connections. The two that hang hold half of the four that the API has here.
func TestHeavyRequestsLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := b.makeJob(t, b.ours)
	theirs := b.makeJob(t, b.theirs)
	watch := b.connect(t)
	lock, err := b.connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "SELECT 1 FROM scheduled_jobs WHERE id = $1 FOR UPDATE", held.ID); err != nil {
		t.Fatal(err)
	}
	bulk := request{method: "POST", path: base + "/jobs/bulk/pause", token: b.token(t, b.ours, identity.Operator), body: `{"ids":` + ids(t, held.ID) + `}`}
	var ended atomic.Int64
	var hanging sync.WaitGroup
	for range 4 {
		hanging.Go(func() {
			b.send(bulk)
			ended.Add(1)
		})
	}
	waitForLocks(t, watch, 4, &ended)
	var more sync.WaitGroup
	answers := make([]answer, 196)
	for i := range answers {
		more.Go(func() { answers[i] = b.send(bulk) })
	}
	more.Wait()
	reading := request{method: "GET", path: base + "/jobs/" + theirs.ID.String(), token: b.token(t, b.theirs, identity.Viewer)}
	theirAnswer := b.do(t, reading)
	refusals := slices.DeleteFunc(slices.Clone(answers), func(a answer) bool { return a.status != http.StatusTooManyRequests })
	if len(refusals) == 0 { // when they came, all hung for certain
		t.Error("none of 196 more was refused")
	}
	reading.path, reading.token = base+"/jobs/"+held.ID.String(), bulk.token
	ourAnswer := b.do(t, reading)
	if ended.Load() == 0 { // they hung all the time, and were not cut short by their own bounds
		read[api.Job](t, theirAnswer, http.StatusOK)
		read[api.Job](t, ourAnswer, http.StatusOK)
		for _, got := range answers {
			met(t, got, http.StatusTooManyRequests, "RATE_LIMITED", "heavyRequestsAtOnce", 4)
		}
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	hanging.Wait()
	if result, _, _ := b.bulk(t, "/jobs/bulk/pause", bulk.body); len(result.Done) != 1 {
		t.Errorf("afterwards: %+v", result)
	}
}

// A tenant whose ordinary requests all hang takes no connection from another, nor
// from the health checks and the platform's own calls; one more of it is told
// which limit it met.
func TestOneTenantLeavesConnectionsToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := b.makeJob(t, b.ours)
	theirs := b.makeJob(t, b.theirs)
	watch, lock := b.connect(t), b.connect(t)
	pause := request{method: "POST", path: base + "/jobs/" + held.ID.String() + "/pause", token: b.token(t, b.ours, identity.Operator)}
	for try := 1; ; try++ {
		if _, err := lock.Exec(t.Context(), "BEGIN; SELECT 1 FROM scheduled_jobs WHERE tenant_id = '"+b.ours.TenantID.String()+"' FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		var ended atomic.Int64 // those that were not refused at once
		var hanging sync.WaitGroup
		for range 40 {
			hanging.Go(func() {
				if b.send(pause).status != http.StatusTooManyRequests {
					ended.Add(1)
				}
			})
		}
		waitForLocks(t, watch, 6, &ended)
		theirJob := b.do(t, request{method: "GET", path: base + "/jobs/" + theirs.ID.String(), token: b.token(t, b.theirs, identity.Viewer)})
		tenants := b.do(t, request{method: "GET", path: base + "/tenants", token: b.token(t, b.theirs, identity.PlatformAdmin)})
		ping := b.db.Ping(t.Context())
		ourJob := b.do(t, request{method: "GET", path: base + "/jobs/" + held.ID.String(), token: b.token(t, b.ours, identity.Viewer)})
		n := ended.Load()
		if _, err := lock.Exec(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		hanging.Wait()
		if n > 0 && try < 5 {
			continue // each hangs for 15 s, which a busy machine may take for anything
		}
		if n > 0 {
			t.Errorf("others were answered after %d of the hanging requests had ended", n)
		}
		read[api.Job](t, theirJob, http.StatusOK)
		read[api.ListTenants200JSONResponse](t, tenants, http.StatusOK)
		if ping != nil {
			t.Error(ping)
		}
		met(t, ourJob, http.StatusTooManyRequests, "RATE_LIMITED", "connectionsAtOnce", 6)
		return
	}
}

// connect is a connection of the superuser's.
func (b *bundle) connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// waitForLocks returns once so many sessions wait for a lock, or something ended.
func waitForLocks(t *testing.T, watch *pgx.Conn, n int, ended *atomic.Int64) {
	t.Helper()
	began := clock.Start()
	for waiting := 0; waiting < n && ended.Load() == 0; {
		if err := watch.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if began.Elapsed() > time.Minute {
			t.Fatal("the requests do not reach the lock")
		}
		<-time.After(5 * time.Millisecond)
	}
}

// A heavy request whose body does not come keeps nobody out.
func TestSlowBodiesAreNoHeavyRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := request{method: "POST", path: base + "/jobs/bulk/pause", token: b.token(t, b.ours, identity.Operator)}
	body, end := io.Pipe()
	slow := httptest.NewRequest(r.method, "http://localhost"+r.path, body)
	slow.Header.Set("Content-Type", "application/json")
	slow.Header.Set("Authorization", "Bearer "+r.token)
	var reading sync.WaitGroup
	reading.Go(func() { b.handler.ServeHTTP(httptest.NewRecorder(), slow) })
	if _, err := end.Write([]byte("{")); err != nil { // returns when it is read
		t.Fatal(err)
	}
	r.body = `{"ids":` + ids(t, b.makeJob(t, b.ours).ID) + `}`
	read[api.BulkResult](t, b.do(t, r), http.StatusOK)
	if err := end.Close(); err != nil {
		t.Fatal(err)
	}
	reading.Wait()
}
