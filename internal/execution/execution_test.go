package execution_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/execution"
)

func TestScheduledIDIsAFunctionOfJobAndTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		job := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "job"))
		at := time.UnixMicro(rapid.Int64Range(0, 7_000_000_000_000_000).Draw(t, "at"))
		id := execution.ScheduledID(job, at)
		if again := execution.ScheduledID(job, at.In(time.FixedZone("x", 3600))); again != id {
			t.Fatalf("the same time in another zone gave %v, then %v", id, again)
		}
		if id.Version() != 8 || id.Variant() != uuid.RFC4122 {
			t.Fatalf("%v has version %v, variant %v", id, id.Version(), id.Variant())
		}
		if got, want := execution.ScheduledTimeOf(id), at.UTC().Truncate(time.Millisecond); !got.Equal(want) {
			t.Fatalf("ScheduledTimeOf = %v, want %v", got, want)
		}
		if other := execution.ScheduledID(job, at.Add(time.Microsecond)); other == id {
			t.Fatalf("the next microsecond has the same id %v", id)
		}
		if manual := execution.RequestedID(job, job, at, nil); manual == id {
			t.Fatalf("a requested run has the id of the scheduled one: %v", id)
		}
	})
}

// A backfilled run is another one than the scheduled run of its scheduled time, and
// than another backfill's, and its id still names its partition.
func TestBackfillIDIsItsOwn(t *testing.T) {
	t.Parallel()
	id, at := uuid.New(), time.Date(2026, 2, 3, 4, 5, 6, 789_000_000, time.UTC)
	got := execution.BackfillID(id, at)
	if got == execution.ScheduledID(id, at) || got == execution.BackfillID(uuid.New(), at) || got == execution.BackfillID(id, at.Add(time.Microsecond)) {
		t.Errorf("%s is not its own", got)
	}
	if got != execution.BackfillID(id, at.In(time.FixedZone("", 3600))) || got.Version() != 8 || !execution.ScheduledTimeOf(got).Equal(at) {
		t.Errorf("%s does not follow from backfill and time", got)
	}
}
