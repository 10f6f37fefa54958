package promoter_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// run runs a promoter's passes.
func run(ctx context.Context, p *promoter.Promoter) error {
	return loop.Runner{Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler)}.Run(ctx, p.Passes())
}

// The loops start, stop at any moment, and leave nothing behind: goleak looks
// at the end of the package.
func TestRunStartsAndStopsAtAnyMoment(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(t, nil)
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*5*time.Millisecond)
		if err := run(ctx, b.another()); err != nil {
			t.Errorf("run %d: %v", i, err)
		}
		cancel()
	}
}

// By the real clocks, the loop promotes at the scheduled time and not at a
// distance of its own: it sleeps until the next job is due.
func TestRunPromotesWhenDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.Overlap = job.OverlapAllow })
	p := b.another()
	if p.Ready() == nil {
		t.Error("ready before its first pass")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- run(ctx, p) }()
	deadline := time.After(time.Minute)
	for len(b.rows(t, j)) < 3 {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatal("three scheduled times were not promoted within a minute")
		}
	}
	if err := p.Ready(); err != nil {
		t.Errorf("not ready while it promotes: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, row := range b.rows(t, j) {
		if row.Status != execution.Pending || row.CreatedAt.Before(row.ScheduledAt) {
			t.Errorf("promoted at %v for %v", row.CreatedAt, row.ScheduledAt)
		}
	}
}

// While nothing is due a promoter asks one question again and again, and a job that is
// created meanwhile is promoted when it is due.
func TestQuietPromoterOnlyLooks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, taken := b.counted(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- run(ctx, p) }()
	defer func() { cancel(); <-done }()
	looks := 0
	seen := func() bool {
		for _, trip := range taken() {
			if trip == "PollDue" {
				looks++
			}
		}
		return looks >= 5
	}
	await(t, "five looks", seen)
	j := b.create(t, func(s *job.Spec) { s.Overlap = job.OverlapAllow })
	await(t, "its first execution", func() bool { return len(b.rows(t, j)) > 0 })
}

// A promoter that follows asks by one statement whether the other took what was due, and
// takes it itself where it is late.
func TestPromoterThatFollowsAsksFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, taken := b.counted(t)
	turn := func() []string {
		t.Helper()
		if err := p.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		return taken()
	}
	turn() // sets up its connection
	p.Follows()
	if trips := turn(); !slices.Equal(trips, []string{"PollDue"}) {
		t.Errorf("round trips where the other took it: %v", trips)
	}
	j := b.create(t, nil)
	exec(t, b.database.AdminURL, "UPDATE scheduled_jobs SET next_execution_at = now() - interval '1 second'")
	p.Follows()
	turn()
	if turn(); len(b.rows(t, j)) == 0 {
		t.Error("what the other did not take was not promoted")
	}
}

// A promoter that follows leaves to the other what is due just now.
func TestPromoterThatFollowsLeavesWhatIsDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.counted(t)
	j := b.create(t, nil)
	left := false
	for try := 0; try < 100 && !left; try++ { // on a busy machine the job is late when it looks
		exec(t, b.database.AdminURL, "UPDATE scheduled_jobs SET next_execution_at = now()")
		p.Follows()
		if err := p.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		left = p.Polls()
	}
	if !left || len(b.rows(t, j)) > 0 {
		t.Errorf("it left the job: %t; %d executions", left, len(b.rows(t, j)))
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatalf("after a minute still not: %s", what)
		}
	}
}

// A job that becomes active with a scheduled time long past is promoted although nothing
// was due just before.
func TestQuietPromoterFindsWhatIsOverdue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.Overlap = job.OverlapAllow })
	exec(t, b.database.AdminURL, "UPDATE scheduled_jobs SET status = 'paused', next_execution_at = now() - interval '1 hour'")
	p, taken := b.counted(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- run(ctx, p) }()
	defer func() { cancel(); <-done }()
	await(t, "a look", func() bool { return slices.Contains(taken(), "PollDue") })
	exec(t, b.database.AdminURL, "UPDATE scheduled_jobs SET status = 'active'")
	await(t, "its execution", func() bool { return len(b.rows(t, j)) > 0 })
}

// A promoter that is called sends a tenth of the polls while nothing is due, backfills
// included, and polls at once when it is called.
func TestCalledPromoterPollsSeldom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, taken := b.countedWith(t, func(c *promoter.Config) { c.Called = func() bool { return true } })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- run(ctx, p) }()
	defer func() { cancel(); <-done }()
	var all []string
	polls := func() (n int) {
		all = append(all, taken()...)
		for _, trip := range all {
			if trip == "PollDue" {
				n++
			}
		}
		return n
	}
	await(t, "a poll", func() bool { return polls() > 0 })
	taken()
	all = nil
	mark, before := clock.Start(), polls()
	await(t, "two more", func() bool { return polls() >= before+2 })
	if took := mark.Elapsed(); took < 2*time.Second {
		t.Errorf("two polls within %v, want one each two seconds", took)
	}
	if n := len(slices.DeleteFunc(slices.Clone(all), func(trip string) bool { return trip != "ClaimBackfills" })); n > 1 { // one may have begun before
		t.Errorf("%d polls for backfills while there are none", n)
	}
	mark, before = clock.Start(), polls()
	await(t, "25 polls", func() bool { p.Wake(); return polls() >= before+25 })
	if took := mark.Elapsed(); took >= 45*time.Second { // by themselves they take 50 s
		t.Errorf("25 polls that were called for took %v", took)
	}
	j := b.create(t, func(s *job.Spec) { s.Overlap = job.OverlapAllow })
	await(t, "the execution of a job for which nobody called", func() bool { return len(b.rows(t, j)) > 0 })
}
