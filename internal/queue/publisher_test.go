package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/queue/redistest"
)

func TestConfigKeepsThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://user:hunter2@host:port/0",
		"http://user:hunter2@host",
		"redis://user:hunter2@host/notanumber",
		"redis://user:hunter2@host/0?nosuch=option",
		":hunter2@",
	} {
		_, err := NewPublisher(Config{URL: url}, discard())
		if err == nil {
			t.Errorf("%q is accepted", url)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is told: %v", err)
		}
		if _, err := NewConsumer(Config{URL: url}, newInbox().handle, discard()); err == nil {
			t.Errorf("%q is accepted by a consumer", url)
		}
	}
}

func TestWakeAt(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name string
		now  time.Time
		in   time.Duration
		want time.Time
	}{
		{"rounds up", noon, 300 * time.Millisecond, noon.Add(time.Second)},
		{"whole second minus the margin stays", noon, time.Second - skewMargin, noon.Add(time.Second)},
		{"whole second needs the margin", noon, time.Second, noon.Add(2 * time.Second)},
		{"a microsecond too far", noon.Add(time.Microsecond), time.Second - skewMargin, noon.Add(2 * time.Second)},
		{"an hour", noon.Add(400 * time.Millisecond), time.Hour, noon.Add(time.Hour + time.Second)},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := wakeAt(tc.now, tc.in); !got.Equal(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "now"))
		delay := time.Duration(rapid.Int64Range(1, 1e15).Draw(t, "delay"))
		got := wakeAt(now, delay)
		if got.Nanosecond() != 0 {
			t.Fatalf("%v is no whole second", got)
		}
		if late := got.Sub(now.Add(delay)); late < skewMargin || late >= time.Second+skewMargin {
			t.Fatalf("late by %v", late)
		}
	})
}

func TestTaskOptions(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	p := newPublisher(t, s.ClientURL, discard())
	ids := someIDs(2)
	if err := p.Publish(t.Context(), High, ids[:1]); err != nil {
		t.Fatal(err)
	}
	if err := p.PublishIn(t.Context(), Low, ids[1:], time.Hour); err != nil {
		t.Fatal(err)
	}
	rdb := client(t, s.ClientURL)
	defer rdb.Close()
	inspect := asynq.NewInspectorFromRedisClient(rdb)
	pending, err := inspect.ListPendingTasks(string(High))
	if err != nil {
		t.Fatal(err)
	}
	delayed, err := inspect.ListScheduledTasks(string(Low))
	if err != nil {
		t.Fatal(err)
	}
	for i, task := range append(pending, delayed...) {
		got := []any{task.Type, len(task.Payload), task.MaxRetry, task.Timeout, task.Retention, task.Deadline.IsZero()}
		want := []any{"hint", 17, 1, time.Minute, time.Duration(0), true}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("task %d: %s", i, diff)
		}
	}
	if len(pending) != 1 || len(delayed) != 1 {
		t.Errorf("%d pending, %d delayed", len(pending), len(delayed))
	}
}

func TestPublishChunksAndDepth(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, redistest.New(t).ClientURL, discard())
	for lane, n := range map[Lane]int{High: 1, Normal: 40, Low: 5000} {
		if err := p.Publish(t.Context(), lane, someIDs(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.PublishTogether(t.Context(), High, someIDs(10)); err != nil { // in 3 hints
		t.Fatal(err)
	}
	got, err := p.Depth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[Lane]int{High: 4, Normal: 14, Low: 79}, got); diff != "" {
		t.Error(diff)
	}
	if err := p.Publish(t.Context(), "urgent", someIDs(1)); err == nil {
		t.Error("an unknown lane is accepted")
	}
	if err := p.Publish(t.Context(), High, nil); err != nil {
		t.Errorf("nothing to send: %v", err)
	}
}

func TestLostContents(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	first, second := newPublisher(t, s.ClientURL, discard()), newPublisher(t, s.ClientURL, discard())
	rdb := client(t, s.ClientURL)
	defer rdb.Close()
	look := func(step string, p *Publisher, want bool) {
		t.Helper()
		lost, err := p.LostContents(t.Context())
		if err != nil || lost != want {
			t.Fatalf("%s: lost %v, %v; want %v", step, lost, err, want)
		}
	}
	look("an empty Redis holds nothing of ours", first, true)
	look("nothing happened", first, false)
	look("a second watcher begins", second, false)
	if err := first.Publish(t.Context(), High, someIDs(1)); err != nil {
		t.Fatal(err)
	}
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	look("wiped", first, true)
	look("wiped, for the second watcher too", second, true)
	look("seen once", first, false)
	if err := first.Publish(t.Context(), High, someIDs(1)); err != nil {
		t.Fatal(err)
	}
	names, err := asynq.NewInspectorFromRedisClient(rdb).Queues()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"high"}, names); diff != "" {
		t.Errorf("queues that inspecting tools know after the wipe: %s", diff)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	p := newPublisher(t, s.ClientURL, discard())
	if err := p.Publish(t.Context(), High, someIDs(500)); err != nil {
		t.Fatal(err)
	}
	got, err := p.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Latency <= 0 || got.Total < 1 || got.Total > got.Size || got.Idle < 1 || got.Hits < 1 || got.Misses < 1 ||
		got.Utilisation < 0 || got.Utilisation > 1 {
		t.Errorf("implausible: %+v", got)
	}
	s.Stop()
	got, err = p.Stats(t.Context())
	if fault.KindOf(err) != fault.Unavailable || got.Latency != 0 || got.Size == 0 {
		t.Errorf("without Redis: %+v, %v", got, err)
	}
}

func TestCancelledPublishBlamesNobody(t *testing.T) {
	t.Parallel()
	url := redistest.New(t).ClientURL
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for try := 1; ; try++ {
		p := newPublisher(t, url, discard())
		for range 2 * quickFailures {
			if err := p.Publish(ctx, High, someIDs(1)); !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v", err)
			}
		}
		begun := clock.Start()
		err := p.Publish(t.Context(), High, someIDs(1))
		if err == nil {
			return
		}
		if begun.Elapsed() < dialLimit || try == 5 { // else it was tried, and a busy machine was too slow
			t.Fatalf("the circuit opened: %v", err)
		}
	}
}

// An outage costs one caller a second at most, and everybody after it nothing.
func TestPublishFailsFast(t *testing.T) {
	t.Parallel()
	outages := []struct {
		name       string
		begin, end func(*redistest.Server, testing.TB)
	}{
		{"frozen", (*redistest.Server).Freeze, (*redistest.Server).Thaw},
		{"killed", (*redistest.Server).Halt, (*redistest.Server).Restart},
	}
	for _, tc := range outages {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.New(t)
			told, lasted := &lines{}, clock.Start()
			p := newPublisher(t, s.ClientURL, told.logger())
			failed := int64(-1)
			eventually(t, "hints are sent", func() bool { failed++; return p.Publish(t.Context(), High, someIDs(100)) == nil })
			tc.begin(s, t)
			begun := clock.Start()
			for range quickFailures {
				if err := p.Publish(t.Context(), High, someIDs(2000)); fault.KindOf(err) != fault.Unavailable {
					t.Fatalf("got %v", err)
				}
			}
			if took := begun.Elapsed(); took > generous*commandLimit {
				t.Errorf("the first calls took %v", took)
			}
			begun = clock.Start()
			for range 1000 {
				if err := p.Publish(t.Context(), High, someIDs(1)); err == nil {
					t.Fatal("sent to nobody")
				}
				if _, err := p.LostContents(t.Context()); err == nil {
					t.Fatal("looked at nothing")
				}
			}
			// Each for as long as a command may take would be half an hour.
			if took := begun.Elapsed(); took > patience {
				t.Errorf("2,000 calls while it is away took %v", took)
			}
			tc.end(s, t)
			eventually(t, "hints are sent again", func() bool { return p.Publish(t.Context(), High, someIDs(1)) == nil })
			// One when it goes, one when it is back, and one after each while of quiet; and the first two
			// where a busy machine was too slow before.
			if n, most := told.n.Load(), 2*failed+int64(3+lasted.Elapsed()/quietFor); n < 1 || n > most {
				t.Errorf("%d lines of log, want at most %d", n, most)
			}
		})
	}
}

func BenchmarkEnqueue(b *testing.B) {
	for _, burst := range []int{1, 16, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("burst=%d", burst), func(b *testing.B) {
			p := newPublisher(b, redistest.New(b).ClientURL, discard())
			ids := someIDs(burst)
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Publish(b.Context(), Normal, ids); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(burst)/b.Elapsed().Seconds(), "ids/s")
			b.ReportMetric(float64(b.N)*float64(len(split(Normal, ids, 1)))/b.Elapsed().Seconds(), "hints/s")
		})
	}
}
