// Package clock is the only place that reads the system's time.
//
// It owns four things: the wall clock, as every stored or compared time of
// this program is written (UTC, whole microseconds, which is all that
// PostgreSQL keeps), the monotonic clock, for measuring how long something
// took, a sleep that ends with its context, and the rest after what took long. It
// refuses to be a clock that tests replace: a testing/synctest bubble drives what
// sleeps.
//
// Durable decisions use the database's clock, not this one; see
// package postgres.
package clock

import (
	"context"
	"time"
)

// Clock tells the current time. Production passes Now; tests pass a
// function of their own.
type Clock func() time.Time

// Now is the wall clock: UTC, rounded down to whole microseconds, so that a
// time equals itself after a round trip through the database. The reading
// carries no monotonic part.
func Now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// Mark is a reading of the monotonic clock, for measuring a distance.
type Mark struct{ at time.Time }

// Start reads the monotonic clock.
func Start() Mark { return Mark{at: time.Now()} }

// Elapsed is the time since the mark was made, unaffected by changes of the
// wall clock.
func (m Mark) Elapsed() time.Duration { return time.Since(m.at) }

// Sleep waits for a while, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Rest is how long to leave something alone that took so long: so many times as long, but
// most at most, and in any case least. Without a bound above, what took long because the
// database did not answer would be left alone for minutes after it answers again.
func Rest(took time.Duration, times int, least, most time.Duration) time.Duration {
	// Divided, because the product of a long time may be none.
	if took > most/time.Duration(times) {
		return max(most, least)
	}
	return max(took*time.Duration(times), least)
}

// Later is the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Earlier is the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
