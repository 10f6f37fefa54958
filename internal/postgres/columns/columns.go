// Package column converts between Go values and columns that may be null.
//
// It owns that a zero value is null and the reverse, that a time is in UTC, and
// the time that statements write for "never". It refuses to know any table.
package columns

import "time"

// Never lies after every time that is stored.
var Never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// OrZero is the value of a column, or the zero value where it is null.
func OrZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// OrNull is a value for a column, or null where it is the zero value.
func OrNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// UTC is a column's time in UTC, in whole microseconds as columns hold it; null stays
// null.
func UTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	in := t.UTC().Truncate(time.Microsecond)
	return &in
}
