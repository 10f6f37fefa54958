package monitor

import (
	"math"
	"testing"
)

// Whatever a duration is, it is read back from its bucket within 3 %, and
// exactly where it is small.
func TestDurationsOfBuckets(t *testing.T) {
	t.Parallel()
	for ms := 1; ms < 100_000_000; ms += 1 + ms/37 {
		bucket := int32(math.Floor(math.Log(float64(ms))*steps)) + 1
		got := durationOf(bucket)
		if ms < 20 && got != float64(ms) || math.Abs(got-float64(ms)) > 0.03*float64(ms) {
			t.Fatalf("%d ms are read as %v", ms, got)
		}
	}
	if durationOf(-1) != 0 || durationOf(0) != 0 {
		t.Error("no duration, or less than 1 ms, is one")
	}
}
