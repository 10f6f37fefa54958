package chaos

import (
	"testing"

	"github.com/google/uuid"
)

// The execution that a report shows is the one that decided the verdict: the slowest with no
// other fault near, if any was alone.
func TestALimitKnowsItsSlowestExecution(t *testing.T) {
	t.Parallel()
	quick, slow, beside := uuid.New(), uuid.New(), uuid.New()
	for _, test := range []struct {
		name string
		all  []recovery
		want uuid.UUID
		held bool
	}{
		{"alone", []recovery{{1, true, quick}, {4, true, slow}, {9, false, beside}}, slow, false},
		{"alone, in the other order", []recovery{{9, false, beside}, {4, true, slow}, {1, true, quick}}, slow, false},
		{"alone and in time", []recovery{{9, false, beside}, {1, true, quick}}, quick, true},
		{"never alone", []recovery{{1, false, quick}, {9, false, beside}}, beside, false},
	} {
		if b, _ := newRecoveryLimit("x", 3, test.all); b.slowest.run != test.want || b.Held != test.held {
			t.Errorf("%s: shows %v, held %t, want %v, %t", test.name, b.slowest.run, b.Held, test.want, test.held)
		}
	}
}
