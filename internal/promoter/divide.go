package promoter

import (
	"errors"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

// divideMost is how many statements one pass sends at most to find the rows that
// the database refuses. The next pass goes on.
const divideMost = 400

// divided does items together, and where the database refuses one of them the
// halves, down to single items. alone is told of those that are refused by
// themselves. An error that passes ends the half in which it came.
type divided[T any] struct {
	is    func(error) bool // a refusal; nil: postgres.Refused
	do    func([]T) error
	alone func(T, error) error
	sent  int
}

func (d *divided[T]) all(items []T) error {
	if len(items) == 0 || d.sent >= divideMost {
		return nil
	}
	d.sent++
	refused := d.is
	if refused == nil {
		refused = postgres.Refused
	}
	err := d.do(items)
	switch {
	case err == nil || !refused(err):
		return err
	case len(items) == 1:
		return d.alone(items[0], err)
	}
	half := len(items) / 2
	return errors.Join(d.all(items[:half]), d.all(items[half:]))
}
