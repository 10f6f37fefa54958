package schedule_test

import (
	"errors"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// FuzzCompile feeds arbitrary text to the parser. An expression that compiles has to go
// strictly on, agree with itself and answer within bounds.
func FuzzCompile(f *testing.F) {
	add := func(expr, zone string) { f.Add(expr, zone, "skip", "both", "key", int64(1_780_000_000), int64(60)) }
	for _, c := range readCorpus[cronCase](f, "testdata/cron_cases.json") {
		add(c.Expr, c.Zone)
	}
	for _, c := range readCorpus[invalidCase](f, "testdata/cron_invalid.json") {
		add(c.Expr, "UTC")
	}
	add("0 H(0-29)/10 H * H H", "America/New_York")
	add("0 0 0 29 2 1#5,2L 1970-2099/7", "Pacific/Apia")
	f.Fuzz(func(t *testing.T, expr, zone, gap, overlap, key string, after, jitter int64) {
		def := schedule.Definition{
			Cron: expr, Zone: zone, Key: key, DSTGap: schedule.Gap(gap), DSTOverlap: schedule.Overlap(overlap),
			Jitter: time.Duration(jitter) * time.Second,
		}
		s, err := schedule.Compile(def)
		if err != nil {
			var wrong *fault.Error
			if !errors.As(err, &wrong) || wrong.Kind != fault.Invalid || len(wrong.Fields) == 0 || len(err.Error()) > 2000 {
				t.Fatalf("Compile(%+v) = %v", def, err)
			}
			return
		}
		from := time.Unix(after%20_000_000_000, 0)
		for range 5 {
			next, ok := s.Next(from)
			if !ok {
				break
			}
			if !next.After(from) {
				t.Fatalf("Next(%v) = %v of %+v", from, next, def)
			}
			if found := s.Between(next.Add(-1), next, 1); found.Count != 1 || !found.Times[0].Equal(next) {
				t.Fatalf("Between around %v = %+v of %+v", next, found, def)
			}
			from = next
		}
	})
}
