// Package clock is the only place that reads the system's time.
//
// It owns two things: the wall clock, as every stored or compared time of
// this program is written (UTC, whole microseconds, which is all that
// PostgreSQL keeps), and the monotonic clock, for measuring how long
// something took. It refuses timers: loops use package time directly, so that
// a testing/synctest bubble can drive them.
//
// Durable decisions use the database's clock, not by this one; see
// package postgres.
package clock

import "time"

// Clock tells the current time. Production passes Now; tests pass a
// function of their own.
type Clock func() time.Time

// Now is the wall clock: UTC, rounded down to whole microseconds, so that an
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
