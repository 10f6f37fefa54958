package queue

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/scheduler-service/scheduler/internal/clock"
)

func TestSparse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSparse()
		ask := func(key string, wantN int, want bool) {
			t.Helper()
			if n, ok := s.allow(key); n != wantN || ok != want {
				t.Errorf("allow(%q) = %d, %v; want %d, %v", key, n, ok, wantN, want)
			}
		}
		ask("a", 0, true)
		ask("a", 0, false)
		ask("a", 0, false)
		ask("b", 0, true)
		<-time.After(quietFor)
		ask("a", 2, true)
		ask("a", 0, false)
		<-time.After(quietFor)
		ask("a", 1, true)
	})
}

func TestAsynqLogGroupsByWhatNotWhich(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	l := asynqLog{log: slog.New(slog.NewTextHandler(&out, nil)), quiet: newSparse()}
	l.Error("Could not remove task id=1 from active")
	l.Warn("Could not remove task id=2 from active")
	l.Error("Dequeue error: EOF")
	l.Fatal("short")
	l.Error("Failed to extend lease for tasks " + strings.Repeat("é", 4000))
	l.Debug("nothing")
	l.Info("nothing")
	if got := strings.Count(out.String(), "\n"); got != 4 || out.Len() > 1000 || strings.Contains(out.String(), "ERROR") {
		t.Errorf("got %d lines:\n%s", got, out.String())
	}
}

// The circuit in a bubble: how it opens, that it probes off the caller's path
// and not too often, and that it closes by itself.
func TestCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		probes, answer := 0, errors.New("away")
		c := &circuit{log: discard(), quiet: newSparse(), probe: func(context.Context) error {
			probes++
			return answer
		}}
		fail := func(took time.Duration) { c.record(t.Context(), io.EOF, took) }
		allowed := func(want bool) {
			t.Helper()
			if got := c.allow(); got != want {
				t.Fatalf("allow = %v", got)
			}
		}
		fail(time.Millisecond)
		fail(time.Millisecond)
		c.record(t.Context(), nil, 0) // a success between them starts the count anew
		fail(time.Millisecond)
		fail(time.Millisecond)
		allowed(true)
		fail(time.Millisecond)
		allowed(false)

		for range 4 {
			<-time.After(probeEvery)
			for range 100 {
				allowed(false)
			}
			synctest.Wait()
		}
		if probes != 4 {
			t.Errorf("%d probes, want one for each half second", probes)
		}
		answer = nil
		<-time.After(probeEvery)
		allowed(false) // starts the probe, does not wait for it
		synctest.Wait()
		allowed(true)

		fail(slowFailure) // one that takes long is enough
		allowed(false)
		c.shut()
		<-time.After(probeEvery)
		allowed(false)
		synctest.Wait()
		if probes != 5 {
			t.Errorf("%d probes, want none after shut", probes)
		}
	})
}

func TestPauseAfterErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error
		want time.Duration
	}{
		{"none", nil, 0},
		{"an empty lane", redis.Nil, 0},
		{"a script not loaded", replyError("NOSCRIPT No matching script"), 0},
		{"a wiped task", replyError("NOT FOUND"), 0},
		{"a closed connection", io.EOF, time.Second},
		{"a key of the wrong type", replyError("WRONGTYPE Operation against a key"), time.Second},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				var away atomic.Bool
				call := pause{length: time.Second, stop: stop, away: &away}.ProcessHook(func(context.Context, redis.Cmder) error { return tc.err })
				begun := clock.Start()
				if err := call(t.Context(), nil); !errors.Is(err, tc.err) {
					t.Errorf("the error became %v", err)
				}
				if got := begun.Elapsed(); got != tc.want {
					t.Errorf("paused %v, want %v", got, tc.want)
				}
				if got, want := away.Load(), tc.want > 0; got != want {
					t.Errorf("away: %v, want %v", got, want)
				}
				close(stop)
				begun = clock.Start()
				_ = call(t.Context(), nil)
				if got := begun.Elapsed(); got != 0 {
					t.Errorf("paused %v after the stop", got)
				}
			})
		})
	}
}

// replyError is an error that Redis answered with.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}
