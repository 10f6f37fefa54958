// Package divide sends a statement over many rows so that rows which the
// database refuses do not stop the others.
//
// It owns the halving: where the rows together are refused, each half is sent,
// down to single rows. It refuses to decide which errors are refusals of a row
// (package postgres) and what becomes of a row that is refused by itself (its
// caller).
package divide

import (
	"errors"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

// most is how many statements one call of All sends. The next pass goes on.
const most = 400

// Items says how to send items of one kind.
type Items[T any] struct {
	// Refused reports whether an error is a refusal of one of the items; nil:
	// postgres.Refused.
	Refused func(error) bool
	// Send sends some of the items in one statement.
	Send func([]T) error
	// Alone is told of an item that is refused by itself, and why.
	Alone func(T, error) error
}

// All sends the items. An error that is no refusal ends the half in which it
// came, and is in the answer.
func (i Items[T]) All(items []T) error {
	left := most
	return i.send(items, &left)
}

func (i Items[T]) send(items []T, left *int) error {
	if len(items) == 0 || *left == 0 {
		return nil
	}
	*left--
	err := i.Send(items)
	switch {
	case err == nil || !i.refused(err):
		return err
	case len(items) == 1:
		return i.Alone(items[0], err)
	}
	half := len(items) / 2
	return errors.Join(i.send(items[:half], left), i.send(items[half:], left))
}

func (i Items[T]) refused(err error) bool {
	if i.Refused == nil {
		return postgres.Refused(err)
	}
	return i.Refused(err)
}
