package promoter_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// While Redis is away no repetition is noted, so that nothing is put off by
// hints that nobody could get: all that waits is hinted when it is back.
func TestNoHintIsRepeatedToARedisThatIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	due := *j.NextExecutionAt
	b.hints.err = errors.New("redis is away")
	b.pass(t, b.promoter, due)
	for _, after := range []time.Duration{5 * time.Second, time.Minute, time.Hour} {
		if r := b.sweep(t, due.Add(after)); r.Redispatched != 0 {
			t.Fatalf("after %v: %+v", after, r)
		}
	}
	b.hints.err = nil
	if r := b.sweep(t, due.Add(time.Hour)); r.Redispatched != 1 {
		t.Errorf("when it was back: %+v", r)
	}
}

// crowdedHints has full lanes.
type crowdedHints struct{ *hints }

func (crowdedHints) Depth(context.Context) (map[queue.Lane]int, error) {
	return map[queue.Lane]int{queue.Low: 600, queue.High: 400}, nil
}

// What nobody consumes is not sent again and again.
func TestNoHintIsRepeatedIntoFullLanes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	due := *j.NextExecutionAt
	b.pass(t, b.promoter, due)
	b.hints.take()
	crowded := promoter.New(promoter.Deps{
		DB: b.engine, Hints: crowdedHints{b.hints}, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	})
	r, err := crowded.Sweep(t.Context(), due.Add(time.Minute))
	if err != nil || r.Redispatched != 0 || len(b.hints.take()) != 0 {
		t.Errorf("into full lanes: %+v, %v", r, err)
	}
	if r := b.sweep(t, due.Add(time.Minute)); r.Redispatched != 1 {
		t.Errorf("into empty ones: %+v", r)
	}
}
