package rest_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/breaker"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/deadletter"
	"github.com/scheduler-service/scheduler/internal/deadletter/replay"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/function"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/monitor"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/objective"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/remote"
	"github.com/scheduler-service/scheduler/internal/rest"
	secrets "github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// wire stands between an API and its database, and notes the kind and the
// length of each message in either direction.
type wire struct {
	mu    sync.Mutex
	notes []string
}

// through starts a wire to a database, and gives its address.
func through(t *testing.T, database string) (*wire, string) {
	t.Helper()
	target, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	network, address := "tcp", target.Host
	if dir := target.Query().Get("host"); strings.HasPrefix(dir, "/") {
		network, address = "unix", filepath.Join(dir, ".s.PGSQL.5432")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed at the end
			}
			server, err := net.Dial(network, address)
			if err != nil {
				_ = client.Close()
				continue
			}
			conns.Go(func() { w.pass(server, client, "> ", true) })
			conns.Go(func() { w.pass(client, server, "< ", false) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); conns.Wait() }) // the pool is closed by then
	query := target.Query()
	query.Del("host")
	query.Set("sslmode", "disable")
	target.Host, target.RawQuery = listener.Addr().String(), query.Encode()
	return w, target.String()
}

// pass hands messages on. The first of a client has no kind.
func (w *wire) pass(to io.WriteCloser, from io.Reader, mark string, greets bool) {
	defer func() { _ = to.Close() }()
	for {
		head := make([]byte, 5)
		if greets {
			head = head[:4]
		}
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		length := binary.BigEndian.Uint32(head[len(head)-4:])
		body := make([]byte, length-4)
		if _, err := io.ReadFull(from, body); err != nil {
			return
		}
		w.mu.Lock()
		w.notes = append(w.notes, fmt.Sprintf("%s%q %d", mark, head[:len(head)-4], length))
		w.mu.Unlock()
		greets = false
		if _, err := to.Write(append(head, body...)); err != nil {
			return
		}
	}
}

// noted is what passed while something was done.
func (w *wire) noted(do func()) []string {
	w.mu.Lock()
	w.notes = nil
	w.mu.Unlock()
	do()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.notes)
}

// For another tenant's id the API asks the database the same as for one that is
// not there, and hears the same: no answer can take longer, nor differ.
func TestAnothersThingsAreAskedForInTheSameWords(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, address := through(t, b.database.URL)
	db, err := postgres.Open(t.Context(), postgres.Config{URL: address, Role: postgres.API, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	deps := b.deps
	deps.Jobs, deps.Executions, deps.Backfills = job.NewStore(db, job.Config{Keys: b.keys, Changed: rest.ChangedFields}), execution.NewStore(db, execution.Config{}), backfill.NewStore(db, backfill.Config{Kept: func() partition.Term { return partition.Term{Months: 13} }})
	deps.Calendars, deps.Secrets, deps.Tenants = calendar.NewStore(db, job.Reschedule), secrets.NewStore(db, b.keys), tenant.NewStore(db, true)
	deps.Breakers, deps.Objectives = breaker.NewStore(db), objective.NewStore(db)
	deps.Monitors, deps.Pings = monitor.NewStore(db), newDesk(t, open(t, address, postgres.Engine))
	deps.DeadLetters, deps.Replays = deadletter.NewStore(db), replay.NewStore(db)
	deps.Notifications, deps.Functions, deps.Remote = notification.NewStore(db, b.keys), function.NewStore(db), remote.NewStore(db)
	deps.Claims = remote.NewDesk(remote.Config{DB: open(t, address, postgres.Engine), Keys: b.keys, Callbacks: b.deps.Callbacks, Metrics: b.deps.Metrics, Log: b.deps.Log})
	watched := *b
	watched.handler = newHandler(t, deps)
	token := b.token(t, b.theirs, identity.Admin)
	tried := 0
	for name, operation := range operations(t) {
		sample, id := b.sampleOf(t, operation, b.ours)
		if !strings.Contains(sample.path, id.String()) || strings.HasPrefix(operation.Permission, "tenants:") || strings.HasPrefix(operation.ID, "internal") || strings.HasSuffix(operation.ID, "ApiKey") {
			continue // keys of tenants are remembered by their own store
		}
		tried++
		sample.token = token
		ask := func(of string) []string {
			r := sample
			r.path = strings.Replace(sample.path, id.String(), of, 1)
			return w.noted(func() {
				if got := watched.send(r); got.status != http.StatusNotFound {
					t.Errorf("%s: answered %d %s", name, got.status, got.body)
				}
			})
		}
		ask(uuid.NewString()) // prepares the statements
		var foreign, unknown []string
		for range 20 { // what is remembered for a while may be read anew in between
			if foreign, unknown = ask(id.String()), ask(uuid.NewString()); slices.Equal(foreign, unknown) {
				break
			}
		}
		if !slices.Equal(foreign, unknown) || len(foreign) == 0 {
			t.Errorf("%s: for another tenant's id\n%v\nfor one that is not there\n%v", name, foreign, unknown)
		}
	}
	if tried < 8 {
		t.Errorf("only %d operations take an id", tried)
	}
}
