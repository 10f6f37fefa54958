package calls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

const channel = "scheduler_test"

// bundle is a database with a carrier, and how many notifications that sent.
type bundle struct {
	t        *testing.T
	database *pgtest.Database
	db       *postgres.DB
	carrier  *Carrier
	sent     atomic.Int64
	end      func()
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{t: t, database: pgtest.New(t)}
	var err error
	b.db, err = postgres.Open(t.Context(), postgres.Config{
		URL: b.database.URL, Role: postgres.API, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience, RoundTrip: func(statement string) {
			if statement == "NotifyListeners" {
				b.sent.Add(1)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.db.Close)
	b.carrier = New(Config{DB: b.db, URL: b.database.URL, Name: "calls-of-" + b.database.Name, Log: slog.New(slog.DiscardHandler)})
	b.carrier.answerWithin, b.carrier.hearWithin, b.carrier.sendWithin = pgtest.Patience, pgtest.Patience, pgtest.Patience
	b.end = sync.OnceFunc(b.carrier.Close)
	t.Cleanup(b.end)
	return b
}

// listen listens until the test ends. The channels say when it hears, or not any more, and
// receive each call.
func (b *bundle) listen() (stands <-chan bool, heard <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	states, calls, ended := make(chan bool, 100), make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(ended)
		err := b.carrier.Listen(ctx, channel, func(s bool) { states <- s }, func() { calls <- struct{}{} })
		if err != nil {
			b.t.Error(err)
		}
	}()
	stop = func() { cancel(); <-ended }
	b.t.Cleanup(stop)
	return states, calls, stop
}

// endSession ends the one session that listens.
func (b *bundle) endSession() error {
	admin, err := pgx.Connect(b.t.Context(), b.database.AdminURL)
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close(context.Background()) }()
	const end = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'calls-of-%'"
	if ended, err := admin.Exec(b.t.Context(), end); err != nil || ended.RowsAffected() != 1 {
		return fmt.Errorf("%v: %w", ended, err)
	}
	return nil
}

// Processes that listen on a channel hear its calls, and none of another channel.
func TestACallIsHeardOnItsChannel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stands, heard, stop := b.listen()
	if !<-stands {
		t.Fatal("it does not hear")
	}
	<-heard // nobody heard those before
	b.carrier.Call("scheduler_other")
	b.carrier.senders.Wait()
	b.carrier.Call(channel)
	<-heard
	b.carrier.senders.Wait()
	b.carrier.Call("scheduler_end")
	b.carrier.senders.Wait() // by now it would have heard more
	stop()
	if <-stands {
		t.Error("it hears after its end")
	}
	if len(heard) > 0 {
		t.Error("it heard the call of another channel")
	}
}

// A process that lost its session polls, listens again, and then looks for what it did not hear.
func TestASessionThatEndsIsOpenedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stands, heard, _ := b.listen()
	<-stands
	<-heard
	if err := b.endSession(); err != nil {
		t.Fatal(err)
	}
	if <-stands {
		t.Error("it hears although its session has ended")
	}
	if !<-stands {
		t.Error("it does not hear again")
	}
	<-heard
	b.carrier.Call(channel)
	<-heard
}

// Calls that come together are one notification, and the last of them is among those heard.
func TestManyCallsAreFewNotifications(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mark := clock.Start()
	for range 10_000 {
		b.carrier.Call(channel)
	}
	b.carrier.senders.Wait()
	if most := int64(mark.Elapsed()/leastApart) + 2; b.sent.Load() > most {
		t.Errorf("%d notifications in %v, want at most %d", b.sent.Load(), mark.Elapsed(), most)
	}
	stands, heard, _ := b.listen()
	<-stands
	<-heard
	before := b.sent.Load()
	b.carrier.Call(channel)
	<-heard
	if b.sent.Load() != before+1 {
		t.Errorf("%d notifications for one call", b.sent.Load()-before)
	}
}

// A notification leaves the session as it was, and what comes after it is on the disk when it is
// acknowledged.
func TestANotificationLeavesTheSessionAsItWas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.db.Pool().Exec(t.Context(), "SET synchronous_commit = on"); err != nil { // its only connection
		t.Fatal(err)
	}
	commits := func() (how string) {
		if err := b.db.Pool().QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&how); err != nil {
			t.Fatal(err)
		}
		return how
	}
	b.carrier.Call(channel)
	b.carrier.senders.Wait()
	if got := commits(); b.sent.Load() != 1 || got != "on" {
		t.Errorf("after %d notifications synchronous_commit is %s", b.sent.Load(), got)
	}
}

// A carrier that is closed sends what was wanted before, and nothing later.
func TestACarrierEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 100 { // the first at once, and the last after a pause that the end cuts short
		b.carrier.Call(channel)
	}
	b.carrier.Call("scheduler_last")
	b.end()
	sent := b.sent.Load()
	if len(b.carrier.wanted) > 0 || sent == 0 {
		t.Errorf("%d notifications, and %v are wanted still", sent, b.carrier.wanted)
	}
	b.carrier.Call(channel)
	b.carrier.senders.Wait()
	if b.sent.Load() != sent {
		t.Errorf("%d notifications after the end", b.sent.Load()-sent)
	}
}

// A notification that the database does not take is tried again, and given up soon.
func TestANotificationIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tried := 0
	b.carrier.notify = func(_ context.Context, channels []string) error {
		if tried++; !slices.Equal(channels, []string{channel}) {
			t.Errorf("try %d notifies %v", tried, channels)
		}
		return errors.New("the database is away")
	}
	for call := 1; call <= 2; call++ {
		b.carrier.Call(channel)
		b.carrier.senders.Wait()
		if tried != call*tries {
			t.Errorf("after %d calls it was tried %d times, want %d", call, tried, call*tries)
		}
	}
}

// The address of a pool says where to listen, too: settings of the pool are none of the session.
func TestListeningTakesTheAddressOfAPool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	address, err := url.Parse(b.database.URL)
	if err != nil {
		t.Fatal(err)
	}
	query := address.Query()
	for name, value := range map[string]string{"pool_max_conns": "3", "pool_min_conns": "1", "pool_max_conn_lifetime": "1h"} {
		query.Set(name, value)
	}
	address.RawQuery = query.Encode()
	b.carrier.c.URL = address.String()
	stands, heard, _ := b.listen()
	if !<-stands {
		t.Fatal("it does not hear")
	}
	<-heard
}

// A process that cannot connect tries again until it is told to stop, and one without an address
// listens to nobody.
func TestListeningEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, address := range []string{"postgres://nobody@localhost:1/nothing?connect_timeout=1", ""} {
		carrier := New(Config{DB: b.db, URL: address, Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		if address == "" {
			stop()
		}
		err := carrier.Listen(ctx, channel, func(stands bool) {
			if stands {
				t.Error("it hears although there is no server")
			}
			stop()
		}, func() { t.Error("it heard something") })
		stop()
		carrier.Close()
		if err != nil {
			t.Error(err)
		}
	}
}
