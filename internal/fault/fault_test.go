package fault_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/fault"
)

func TestKindOf(t *testing.T) {
	t.Parallel()
	cause := errors.New("connection refused")
	for _, test := range []struct {
		name string
		err  error
		want fault.Kind
	}{
		{"plain error", cause, fault.Internal},
		{"nil", nil, fault.Internal},
		{"direct", fault.New(fault.NotFound, "JOB_NOT_FOUND", "no such job"), fault.NotFound},
		{"wrapped by an operation", fmt.Errorf("get job: %w", fault.New(fault.Conflict, "CONFLICT", "changed")), fault.Conflict},
		{"outermost wins", fault.Wrap(fault.Unavailable, "", "later", fault.New(fault.Invalid, "", "x")), fault.Unavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := fault.KindOf(test.err); got != test.want {
				t.Errorf("KindOf = %v, want %v", got, test.want)
			}
		})
	}
}

func TestErrorKeepsItsCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("secret detail")
	err := fault.Wrap(fault.Unavailable, "", "try later", cause)
	if !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
	if err.Message != "try later" {
		t.Errorf("the client's message = %q", err.Message)
	}
	wrong := fault.Wrong("VALIDATION_FAILED", fault.Field{Path: "name", Message: "is empty"}, fault.Field{Path: "cronExpression", Message: "minute: 61 is too much"})
	if got, want := wrong.Error(), "name is empty; cronExpression: minute: 61 is too much"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if want := "name is empty (and 1 more, see details)"; wrong.Message != want {
		t.Errorf("the client's message = %q, want %q", wrong.Message, want)
	}
}

// A reset is put off to a whole second, and what is to be waited reaches it.
func TestExceededInWholeSeconds(t *testing.T) {
	t.Parallel()
	second := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	for _, test := range []struct{ now, reset, want time.Duration }{
		{0, time.Second, time.Second},
		{0, time.Nanosecond, time.Second},
		{900 * time.Millisecond, 950 * time.Millisecond, time.Second},
		{900 * time.Millisecond, 1050 * time.Millisecond, 2 * time.Second},
	} {
		now := second.Add(test.now)
		err := fault.Exceeded(fault.Limit{Name: "n", Reset: second.Add(test.reset)}, "no", now)
		if got := err.Limit.Reset; !got.Equal(second.Add(test.want)) || now.Add(err.RetryAfter).Before(got) || err.Kind != fault.TooMany {
			t.Errorf("%+v: reset %v, wait %v", test, got, err.RetryAfter)
		}
	}
	if err := fault.Exceeded(fault.Limit{Name: "n"}, "no", second); err.Kind != fault.Forbidden || err.RetryAfter != 0 {
		t.Errorf("without a reset: %+v", err)
	}
}
