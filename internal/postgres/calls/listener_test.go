package calls

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// next is what comes next, which lasts on a busy machine.
func next[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(pgtest.Patience):
		t.Fatal("nothing comes")
	}
	return value
}

// lines receives each line of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// logged has the carrier log to lines.
func (b *bundle) logged() lines {
	l := make(lines, 100)
	b.carrier.c.Log = slog.New(slog.NewTextHandler(l, nil))
	return l
}

// levels are the levels of the next lines.
func (l lines) levels(t *testing.T, n int) (levels []string) {
	t.Helper()
	for range n {
		line := next(t, l)
		t.Log(line)
		_, level, _ := strings.Cut(line, " level=")
		level, _, _ = strings.Cut(level, " ")
		levels = append(levels, level)
	}
	return levels
}

// Notifications are those of one database. A process whose session is in another one does not believe
// that it is called, and says so once.
func TestASessionInAnotherDatabaseHearsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.carrier.c.URL, b.carrier.hearWithin = pgtest.New(t).URL, 0 // so it hears with the answer to the ping, or not at all
	logged := b.logged()
	stands, heard, stop := b.listen()
	if next(t, stands) {
		t.Fatal("it hears what is sent to another database")
	}
	got := logged.levels(t, 3) // and of the second session
	stop()
	if want := []string{"WARN", "INFO", "INFO"}; !slices.Equal(got, want) {
		t.Errorf("it logs %v, want %v", got, want)
	}
	if len(heard) > 0 {
		t.Error("it heard something")
	}
}

// A session that heard nothing for a while has to prove that it hears. If it does not, it is opened
// again. It warns if notifications do not arrive, and not if the database is away.
func TestASilentSessionProvesThatItHears(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		second func(b *bundle) error // sends the second proof
		want   []string
	}{
		{"nothing arrives", func(*bundle) error { return nil }, []string{"WARN", "INFO"}},
		{"the database is away", func(*bundle) error { return errors.New("the database is away") }, []string{"INFO"}},
		{"the session ended", func(b *bundle) error {
			if err := b.endSession(); err != nil {
				b.t.Error(err)
			}
			return nil
		}, []string{"INFO"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			logged, send, proofs := b.logged(), b.carrier.notify, 0
			b.carrier.askAfter, b.carrier.hearWithin = time.Millisecond, 0 // so it hears with the answer to the ping
			b.carrier.notify = func(ctx context.Context, channels []string) error {
				if proofs++; proofs == 2 {
					return test.second(b)
				}
				return send(ctx, channels)
			}
			stands, heard, stop := b.listen()
			for i, want := range []bool{true, false, true} {
				if got := next(t, stands); got != want {
					t.Errorf("%d: it hears: %v, want %v", i, got, want)
				}
			}
			next(t, heard)
			next(t, heard) // again, as it begins to hear again
			stop()
			if got := logged.levels(t, len(logged)); !slices.Equal(got, test.want) {
				t.Errorf("it logs %v, want %v", got, test.want)
			}
		})
	}
}

// A proof is heard by the session that it is for, and is no call.
func TestAProofIsNoCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var mu sync.Mutex
	sent, proofs, send := map[string]bool{}, make(chan struct{}, 1), b.carrier.notify
	b.carrier.askAfter = time.Millisecond
	b.carrier.notify = func(ctx context.Context, channels []string) error {
		mu.Lock()
		sent[channels[0]] = true
		mu.Unlock()
		select {
		case proofs <- struct{}{}:
		default:
		}
		return send(ctx, channels)
	}
	_, first, stopFirst := b.listen()
	_, second, stopSecond := b.listen() // another session, which hears the same calls
	next(t, first)
	next(t, second)
	for range 20 {
		next(t, proofs)
	}
	b.carrier.Call(channel)
	next(t, first)
	next(t, second)
	stopFirst()
	stopSecond()
	b.carrier.senders.Wait()
	if len(sent) != 3 || len(first) > 0 || len(second) > 0 {
		t.Errorf("notifications in %v, want the call and a channel for each session; %d and %d calls heard beside it", sent, len(first), len(second))
	}
}
