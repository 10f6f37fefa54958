package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/queue/redistest"
)

func TestEveryLaneArrives(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	p := newPublisher(t, s.ClientURL, discard())
	box := newInbox()
	c, stop := consume(t, Config{URL: s.URL}, discard(), box.handle) // asynq's spelling of the address

	want, late := make(map[uuid.UUID][]Lane), make(map[uuid.UUID]bool)
	for _, lane := range lanes() {
		var ids []uuid.UUID
		eventually(t, "hints are sent", func() bool {
			for _, id := range ids { // on a busy machine Redis was too slow, and may have them all the same
				late[id] = true
			}
			ids = someIDs(700)
			return p.Publish(t.Context(), lane, ids) == nil
		})
		for _, id := range ids {
			want[id] = []Lane{lane}
		}
	}
	eventually(t, "all handled", func() bool { return box.has(slices.Collect(maps.Keys(want))...) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(box.got, func(id uuid.UUID, _ []Lane) bool { return late[id] })
	if diff := cmp.Diff(want, box.got); diff != "" {
		t.Error(diff)
	}
	if got, want := c.Tally(), (Tally{Handled: 48, IDs: 2100}); got != want && len(late) == 0 {
		t.Errorf("tally %+v, want %+v", got, want)
	}
}

// While all lanes are full their shares are 6:3:1, and none waits for another
// to be empty. The bounds are five standard deviations wide and more.
func TestLanesAreWeighted(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	p := newPublisher(t, s.ClientURL, discard())
	const each, look = 300, 300
	for _, lane := range lanes() {
		for _, id := range someIDs(each) {
			publish(t, p, lane, []uuid.UUID{id})
		}
	}
	var mu sync.Mutex
	var order []Lane
	c, _ := consume(t, Config{URL: s.ClientURL, Concurrency: 1}, discard(), func(_ context.Context, lane Lane, _ []uuid.UUID) error {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, lane)
		return nil
	})
	eventually(t, "all handled", func() bool { return c.Tally().Handled >= 3*each })
	mu.Lock()
	defer mu.Unlock()
	share := make(map[Lane]int)
	for _, lane := range order[:look] {
		share[lane]++
	}
	if share[High] < 135 || share[High] > 225 || share[Normal] < 50 || share[Normal] > 130 || share[Low] < 5 || share[Low] > 60 {
		t.Errorf("shares of the first %d: %v, want about 180, 90, 30", look, share)
	}
}

func TestDelayedHintsAreNeverEarly(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	p := newPublisher(t, s.ClientURL, discard())
	type arrival struct {
		id uuid.UUID
		at time.Time
	}
	arrivals := make(chan arrival, 100)
	consume(t, Config{URL: s.ClientURL}, discard(), func(_ context.Context, _ Lane, ids []uuid.UUID) error {
		for _, id := range ids {
			arrivals <- arrival{id, clock.Now()}
		}
		return nil
	})
	due, wanted := make(map[uuid.UUID]time.Time), make(map[uuid.UUID]bool)
	for i := range 20 {
		delay := time.Duration(i*97+1) * time.Millisecond
		eventually(t, "it is sent", func() bool {
			id := uuid.New()
			due[id] = clock.Now().Add(delay)
			sent := p.PublishIn(t.Context(), Normal, []uuid.UUID{id}, delay) == nil
			if sent { // others may come, too
				wanted[id] = true
			}
			return sent
		})
	}
	limit := time.After(patience)
	for len(wanted) > 0 {
		select {
		case a := <-arrivals:
			delete(wanted, a.id)
			late := a.at.Sub(due[a.id])
			if late < 0 {
				t.Errorf("early by %v", -late)
			}
			if late > patience {
				t.Errorf("late by %v", late)
			}
		case <-limit:
			t.Fatal("a delayed hint did not come")
		}
	}
}

func TestDelayThatIsOverSendsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, redistest.New(t).ClientURL, discard())
	for _, delay := range []time.Duration{0, -time.Hour} {
		if err := p.PublishIn(t.Context(), High, someIDs(1), delay); err != nil {
			t.Fatal(err)
		}
	}
	depth, err := p.Depth(t.Context())
	if err != nil || depth[High] != 2 {
		t.Errorf("waiting: %v, %v", depth, err)
	}
}

// A task that is no hint is dropped, once, and hints still arrive.
func TestForgedTasksAreDropped(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	rdb := client(t, s.ClientURL)
	defer rdb.Close()
	forge := asynq.NewClientFromRedisClient(rdb)
	id := uuid.New()
	good, err := Hint{Lane: High, IDs: []uuid.UUID{id}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	forged := []*asynq.Task{
		asynq.NewTask(taskType, nil),
		asynq.NewTask(taskType, []byte(`{"id":1}`)),
		asynq.NewTask(taskType, append([]byte{9}, good[1:]...)),
		asynq.NewTask(taskType, append(good, good[1:]...)),
		asynq.NewTask(taskType, make([]byte, 1<<20)),
		asynq.NewTask("other", good),
	}
	for _, task := range forged {
		for _, retries := range []int{0, 1} {
			if _, err := forge.Enqueue(task, asynq.Queue(string(High)), asynq.MaxRetry(retries)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Not even a task: a record that asynq cannot read, and an id without one.
	rdb.HSet(t.Context(), asynqKey(High, "t:")+"garbage", "msg", "\xff\xff\xff", "state", "pending")
	rdb.LPush(t.Context(), asynqKey(High, "pending"), "garbage", "ghost")

	box := newInbox()
	c, stop := consume(t, Config{URL: s.ClientURL}, discard(), box.handle)
	p := newPublisher(t, s.ClientURL, discard())
	tries := uint64(0)
	eventually(t, "the real hint is sent", func() bool { tries++; return p.Publish(t.Context(), High, []uuid.UUID{id}) == nil })
	eventually(t, "the real hint arrives", func() bool { return box.has(id) })
	eventually(t, "all forged are seen", func() bool { return c.Tally().Refused == uint64(2*len(forged)) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	left := rdb.ZCard(t.Context(), asynqKey(High, "retry")).Val() + rdb.ZCard(t.Context(), asynqKey(High, "archived")).Val()
	if left != 0 {
		t.Errorf("%d are kept for another time", left)
	}
	if got := c.Tally().Handled; got < 1 || got > tries {
		t.Errorf("%d handled", got)
	}

	// The two that asynq itself could not read are stuck until they are tidied.
	now := clock.Now()
	for step, want := range []int{0, 2, 0} {
		at := now
		if step > 0 {
			at = now.Add(tidyAfter + time.Minute)
		}
		if got, err := tidy(t.Context(), rdb, at); err != nil || got != want {
			t.Errorf("pass %d removed %d, %v; want %d", step, got, err, want)
		}
	}
	if n := rdb.LLen(t.Context(), asynqKey(High, "active")).Val(); n != 0 {
		t.Errorf("%d are still active", n)
	}
	keys := rdb.Keys(t.Context(), asynqKey(High, "t:*")).Val()
	if len(keys) != 0 {
		t.Errorf("records left: %v", keys)
	}
}

func TestTidyEmptiesOldArchives(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	rdb := client(t, s.ClientURL)
	defer rdb.Close()
	forge, inspect := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	for i := range 150 {
		id := fmt.Sprint("archived-", i)
		if _, err := forge.Enqueue(asynq.NewTask("x", nil), asynq.Queue(string(Low)), asynq.TaskID(id)); err != nil {
			t.Fatal(err)
		}
		if err := inspect.ArchiveTask(string(Low), id); err != nil {
			t.Fatal(err)
		}
	}
	var total int
	for range 2 {
		n, err := tidy(t.Context(), rdb, clock.Now().Add(tidyAfter+time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if left := rdb.ZCard(t.Context(), asynqKey(Low, "archived")).Val(); total != 150 || left != 0 {
		t.Errorf("removed %d, %d are left", total, left)
	}
}

// A handler's failure is nobody's business but PostgreSQL's: no hint comes
// back, none is archived, and the consumer goes on.
func TestFailingHandlers(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	p := newPublisher(t, s.ClientURL, discard())
	var calls atomic.Int64
	told, lasted := &lines{}, clock.Start()
	c, stop := consume(t, Config{URL: s.ClientURL}, told.logger(), func(_ context.Context, lane Lane, _ []uuid.UUID) error {
		calls.Add(1)
		switch lane {
		case High:
			panic("a defect")
		case Normal:
			return errors.New("the database is away")
		}
		return asynq.SkipRetry
	})
	tries := int64(0)
	for _, lane := range lanes() {
		for range 20 {
			eventually(t, "a hint is sent", func() bool { tries++; return p.Publish(t.Context(), lane, someIDs(1)) == nil })
		}
	}
	eventually(t, "all called", func() bool { n := c.Tally(); return n.Failed >= 40 && n.Panicked >= 20 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := calls.Load(); n < 60 || n > tries {
		t.Errorf("%d calls of %d hints, want 60", n, tries)
	}
	most := int64(2)
	if lasted.Elapsed() > commandLimit { // then a busy machine may have been too slow for Redis, too
		most = int64(20 + 10*lasted.Elapsed()/quietFor)
	}
	if n := told.n.Load(); n < 2 || n > most {
		t.Errorf("%d lines of log, want one for each kind, and at most %d", n, most)
	}
	rdb := client(t, s.ClientURL)
	defer rdb.Close()
	for _, lane := range lanes() {
		if keys := rdb.Keys(t.Context(), asynqKey(lane, "[rtla]*")).Val(); len(keys) != 0 {
			t.Errorf("left in Redis: %v", keys)
		}
	}
}

// Handlers that outlive their time keep their slots, whatever asynq believes.
func TestHintsBeyondTheHandlersAreDropped(t *testing.T) {
	t.Parallel()
	c, err := NewConsumer(Config{URL: "redis://localhost", Concurrency: 1}, newInbox().handle, discard())
	if err != nil {
		t.Fatal(err)
	}
	wire, err := Hint{Lane: High, IDs: someIDs(1)}.encode()
	if err != nil {
		t.Fatal(err)
	}
	c.handlers <- struct{}{}
	c.receive(t.Context(), High, asynq.NewTask(taskType, wire))
	<-c.handlers
	c.receive(t.Context(), High, asynq.NewTask(taskType, wire))
	if got, want := c.Tally(), (Tally{Handled: 1, IDs: 1, Dropped: 1}); got != want {
		t.Errorf("tally %+v, want %+v", got, want)
	}
}

func TestStopDrains(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	p := newPublisher(t, s.ClientURL, discard())
	entered, release := make(chan context.Context), make(chan struct{})
	c, err := NewConsumer(Config{URL: s.ClientURL, Concurrency: 1, Drain: patience}, func(ctx context.Context, _ Lane, _ []uuid.UUID) error {
		entered <- ctx
		<-release
		return ctx.Err()
	}, discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	tries := 0
	for range 3 {
		eventually(t, "a hint is sent", func() bool { tries++; return p.Publish(t.Context(), High, someIDs(1)) == nil })
	}
	work := <-entered
	cancel()
	select {
	case err := <-ended:
		t.Fatalf("Run did not wait for its handler: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if work.Err() != nil {
		t.Error("the handler was cancelled although there is time")
	}
	close(release)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var depth map[Lane]int
	eventually(t, "what waits is known", func() bool { depth, err = p.Depth(t.Context()); return err == nil })
	if depth[High] < 2 || depth[High] >= tries {
		t.Errorf("after the stop %v wait of %d; want 2: no intake after it", depth, tries)
	}
	if got := c.Tally(); got.Handled != 1 || got.Failed != 0 {
		t.Errorf("tally %+v", got)
	}
	if err := c.Run(t.Context()); err == nil {
		t.Error("a consumer ran twice")
	}
}

func TestStopHasAnEnd(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		waits func(context.Context, <-chan struct{}) // what the handler waits for
		fails bool
	}{
		{"handler that heeds its context", func(ctx context.Context, _ <-chan struct{}) { <-ctx.Done() }, false},
		{"handler that does not", func(_ context.Context, release <-chan struct{}) { <-release }, true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			err := stopBeside(t, tc.waits)
			// A handler has two seconds to heed it, which a busy machine may take.
			for try := 1; try < 5 && (err != nil) != tc.fails; try++ {
				err = stopBeside(t, tc.waits)
			}
			if (err != nil) != tc.fails {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// stopBeside stops a consumer whose handler waits, and says what Run returned.
func stopBeside(t *testing.T, waits func(context.Context, <-chan struct{})) error {
	t.Helper()
	s := redistest.New(t)
	entered, release, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once // a hint may come twice
	_, stop := consume(t, Config{URL: s.ClientURL, Drain: 50 * time.Millisecond}, discard(),
		func(ctx context.Context, _ Lane, _ []uuid.UUID) error {
			once.Do(func() {
				defer close(left)
				close(entered)
				waits(ctx, release)
			})
			return nil
		})
	publish(t, newPublisher(t, s.ClientURL, discard()), High, someIDs(1))
	<-entered
	begun := clock.Start()
	err := stop()
	if took := begun.Elapsed(); took > patience/2 {
		t.Errorf("stopping took %v", took)
	}
	close(release)
	<-left
	return err
}

func TestStartStopStress(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	p := newPublisher(t, s.ClientURL, discard())
	box := newInbox()
	ids := someIDs(640)
	var sent, running sync.WaitGroup
	sent.Go(func() {
		for _, id := range ids {
			publish(t, p, Normal, []uuid.UUID{id})
		}
	})
	for range 4 {
		running.Go(func() {
			for range 4 {
				_, stop := consume(t, Config{URL: s.ClientURL, Concurrency: 4, Drain: patience}, discard(), box.handle)
				if err := stop(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sent.Wait()
	running.Wait()
	consume(t, Config{URL: s.ClientURL}, discard(), box.handle)
	eventually(t, "every hint survived the stops", func() bool { return box.has(ids...) })
}
