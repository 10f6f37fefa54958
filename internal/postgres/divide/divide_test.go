package divide_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/postgres/divide"
)

func TestRefusedItemsAreAlone(t *testing.T) {
	t.Parallel()
	refusal, away := errors.New("refused"), errors.New("away")
	for _, test := range []struct {
		name               string
		items, bad, broken []int
		sent, alone        []int
		statements         int
		fails              bool
	}{
		{"nothing", nil, nil, nil, nil, nil, 0, false},
		{"no item is refused", []int{1, 2, 3, 4}, nil, nil, []int{1, 2, 3, 4}, nil, 1, false},
		{"one is refused", []int{1, 2, 3, 4}, []int{3}, nil, []int{1, 2, 4}, []int{3}, 5, false},
		{"all are refused", []int{1, 2}, []int{1, 2}, nil, nil, []int{1, 2}, 3, false},
		{"the database is away in one half", []int{1, 2, 3, 4}, []int{1}, []int{2}, []int{3, 4}, []int{1}, 5, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var sent, alone []int
			statements := 0
			err := divide.Items[int]{
				Refused: func(err error) bool { return errors.Is(err, refusal) },
				Send: func(items []int) error {
					statements++
					for _, n := range items {
						if slices.Contains(test.bad, n) {
							return refusal
						}
					}
					for _, n := range items {
						if slices.Contains(test.broken, n) {
							return away
						}
					}
					sent = append(sent, items...)
					return nil
				},
				Alone: func(n int, _ error) error { alone = append(alone, n); return nil },
			}.All(test.items)
			if diff := cmp.Diff([][]int{test.sent, test.alone}, [][]int{sent, alone}); diff != "" {
				t.Errorf("sent and alone (-want +got):\n%s", diff)
			}
			if errors.Is(err, away) != test.fails || statements != test.statements {
				t.Errorf("%d statements, error %v", statements, err)
			}
		})
	}
}

// A call is bounded: of very many refused items the next pass sees the rest.
func TestACallIsBounded(t *testing.T) {
	t.Parallel()
	statements := 0
	err := divide.Items[int]{
		Refused: func(error) bool { return true },
		Send:    func([]int) error { statements++; return errors.New("refused") },
		Alone:   func(int, error) error { return nil },
	}.All(make([]int, 10_000))
	if err != nil || statements != 400 {
		t.Errorf("%d statements, %v", statements, err)
	}
}
