package queue

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/queue/redistest"
)

func TestConsumerSurvivesAWipe(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	rdb := client(t, s.ClientURL)
	defer rdb.Close()
	p := newPublisher(t, s.ClientURL, discard())
	box := newInbox()
	consume(t, Config{URL: s.ClientURL}, discard(), box.handle)
	for round := range 5 {
		ids := someIDs(100)
		publish(t, p, Low, ids)
		eventually(t, fmt.Sprint("round ", round), func() bool { return box.has(ids...) })
		publish(t, p, Low, someIDs(1000))
		if err := rdb.FlushAll(t.Context()).Err(); err != nil { // some are in a handler's hands
			t.Fatal(err)
		}
	}
}

// The consumer starts before its Redis, goes on after each of its deaths, says
// little meanwhile, and stops quickly while it is away.
func TestConsumerSurvivesOutages(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	s.Halt(t)
	told, lasted := &lines{}, clock.Start()
	box := newInbox()
	c, stop := consume(t, Config{URL: s.ClientURL}, told.logger(), box.handle)
	p := newPublisher(t, s.ClientURL, discard())
	for range 3 {
		eventually(t, "the consumer knows that Redis is away", c.Away)
		// Long enough for go-redis to stop dialling too (16 failed dials).
		<-time.After(1500 * time.Millisecond)
		s.Restart(t)
		ids := someIDs(200)
		eventually(t, "hints are sent", func() bool { return p.Publish(t.Context(), High, ids) == nil })
		eventually(t, "hints are handled", func() bool { return box.has(ids...) })
		eventually(t, "the consumer knows that Redis is back", func() bool { return !c.Away() })
		s.Halt(t)
		eventually(t, "the loss is noticed", func() bool { return p.Publish(t.Context(), High, someIDs(1)) != nil })
	}
	begun := clock.Start()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := begun.Elapsed(); took > patience {
		t.Errorf("stopping without Redis took %v", took)
	}
	// Some of each kind for each outage and again after each while of quiet.
	if n, most := told.n.Load(), int64(20+10*lasted.Elapsed()/quietFor); n > most {
		t.Errorf("%d lines of log for three outages, want at most %d", n, most)
	}
}

// A Redis that takes connections and answers nothing is away too, and known to
// be within the time that one command may take.
func TestConsumerNoticesSilence(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	box := newInbox()
	c, _ := consume(t, Config{URL: s.ClientURL}, discard(), box.handle)
	p := newPublisher(t, s.ClientURL, discard())
	ids := someIDs(2)
	publish(t, p, High, ids)
	eventually(t, "hints are handled", func() bool { return box.has(ids...) })
	s.Freeze(t)
	frozen := clock.Start()
	eventually(t, "the silence is noticed", c.Away)
	if took := frozen.Elapsed(); took > generous*commandLimit {
		t.Errorf("noticed after %v, want at most %v", took, generous*commandLimit)
	}
	s.Thaw(t)
	eventually(t, "the end of it is noticed", func() bool { return !c.Away() })
}

// Without a Redis nothing is sent, nothing fails for it, and nobody is told
// that Redis lost or holds something.
func TestSilentPublisher(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, "", discard())
	if err := p.Publish(t.Context(), High, someIDs(100)); err != nil || !p.Silent() {
		t.Errorf("publish: %v, silent %v", err, p.Silent())
	}
	if err := p.PublishIn(t.Context(), High, someIDs(100), time.Hour); err != nil {
		t.Error(err)
	}
	lost, watch := p.LostContents(t.Context())
	_, depth := p.Depth(t.Context())
	_, stats := p.Stats(t.Context())
	for op, err := range map[string]error{"watch": watch, "depth": depth, "stats": stats} {
		if fault.KindOf(err) != fault.Unavailable || lost {
			t.Errorf("%s: %v, lost %v", op, err, lost)
		}
	}
	if _, err := NewConsumer(Config{}, newInbox().handle, discard()); err == nil {
		t.Error("a consumer of nothing was made")
	}
}

// A lane that cannot be read stops neither the others, nor does it make the
// consumer ask without rest.
func TestLaneOfTheWrongKind(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	rdb := client(t, s.ClientURL)
	defer rdb.Close()
	if err := rdb.Set(t.Context(), asynqKey(High, "pending"), "a text, no list", 0).Err(); err != nil {
		t.Fatal(err)
	}
	p := newPublisher(t, s.ClientURL, discard())
	box := newInbox()
	consume(t, Config{URL: s.ClientURL}, discard(), box.handle)
	ids := someIDs(3)
	publish(t, p, Low, ids)
	eventually(t, "the other lanes go on", func() bool { return box.has(ids...) })

	commands := func() int {
		text := rdb.InfoMap(t.Context(), "stats").Item("Stats", "total_commands_processed")
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	mark, before := clock.Start(), commands()
	<-time.After(500 * time.Millisecond)
	if n := float64(commands()-before) / mark.Elapsed().Seconds(); n > 2000 {
		t.Errorf("%.0f commands a second", n)
	}
}
