package maintenance_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/maintenance"
)

// Samples begin among the ids of the jobs of the last year, which begin with their time, and not
// always at the same.
func TestSamplesBeginAmongTheIDsOfJobs(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	earliest, latest := uuid.Max, uuid.Nil
	for range 1000 {
		id := maintenance.AnyID(now)
		if bytes.Compare(id[:], earliest[:]) < 0 {
			earliest = id
		}
		if bytes.Compare(id[:], latest[:]) > 0 {
			latest = id
		}
	}
	for _, test := range []struct {
		name     string
		id       uuid.UUID
		from, to string // ids of a year ago and a month later, and of a month ago and now
	}{
		{"earliest", earliest, "019acf0e-1d00-0000-0000-000000000000", "019b698c-e500-0000-0000-000000000000"},
		{"latest", latest, "01a18c40-8100-0000-0000-000000000000", "01a226bf-4900-ffff-ffff-ffffffffffff"},
	} {
		if s := test.id.String(); s < test.from || s > test.to {
			t.Errorf("the %s of 1000 is %s, want %s to %s", test.name, s, test.from, test.to)
		}
	}
}
