package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
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

// The time that a tenant's killed worker cost is not ours; that of our own workers is. A report said
// "start 12.0 s late", where the first attempt had gone with a worker of the tenant.
func TestAKilledWorkerOfATenantIsNoLateness(t *testing.T) {
	t.Parallel()
	remote, http := &work{id: uuid.New(), jobType: string(api.JobTypeRemote)}, &work{id: uuid.New(), jobType: string(api.JobTypeHTTP)}
	e := &evidence{jobs: []*work{remote, http}}
	due := time.Unix(1000, 0)
	called := func(of *work, attempts ...int) uuid.UUID {
		id := uuid.New()
		e.rows = append(e.rows, row{id: id, job: of.id, trigger: "scheduled", scheduledAt: due})
		for i, attempt := range attempts {
			e.calls = append(e.calls, call{execution: id, job: of.id, attempt: attempt, scheduledAt: due, start: due.Add(time.Duration(i) * time.Second)})
		}
		return id
	}
	called(remote, 2, 3)
	want := []uuid.UUID{called(remote, 1, 2), called(http, 2), called(http, 1)}
	e.index()
	var got []uuid.UUID
	for _, c := range e.promptCalls() {
		got = append(got, c.execution)
	}
	byText := func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }
	slices.SortFunc(got, byText)
	if slices.SortFunc(want, byText); !slices.Equal(got, want) {
		t.Errorf("prompt are %v, want %v", got, want)
	}
}
