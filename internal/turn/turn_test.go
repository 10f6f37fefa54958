package turn_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/turn"
)

// taken is what became of somebody who asked for a permit.
type taken struct {
	give func()
	err  error
}

// ask asks for a permit in the background, and returns once it is given, waits or
// was refused.
func ask(ctx context.Context, p *turn.Limiter, who string) <-chan taken {
	done := make(chan taken, 1)
	go func() {
		give, err := p.Acquire(ctx, who)
		done <- taken{give, err}
	}()
	synctest.Wait()
	return done
}

// has says whether somebody has a permit by now.
func has(done <-chan taken) (func(), bool) {
	synctest.Wait()
	select {
	case got := <-done:
		return got.give, got.err == nil
	default:
		return nil, false
	}
}

func must(t *testing.T, done <-chan taken) func() {
	t.Helper()
	give, ok := has(done)
	if !ok {
		t.Fatal("somebody has no permit")
	}
	return give
}

func refused(t *testing.T, done <-chan taken, kind fault.Kind, name string, value int64) {
	t.Helper()
	got := <-done
	var f *fault.Error
	if !errors.As(got.err, &f) || f.Kind != kind {
		t.Fatalf("answered %v, want %v", got.err, kind)
	}
	if kind == fault.TooMany && (f.Limit == nil || f.Limit.Name != name || f.Limit.Value != value || f.RetryAfter != time.Second) {
		t.Errorf("the limit is %+v, again after %v", f.Limit, f.RetryAfter)
	}
}

// However many requests of one tenant wait, another's has a permit at once.
func TestOneTenantLeavesPermitsToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := turn.New(turn.Config{Limit: "permitsAtOnce", Message: "a tenant may have %d", All: 18, Each: 6})
		var greedy []<-chan taken
		for range 100 {
			greedy = append(greedy, ask(t.Context(), p, "greedy"))
		}
		for i := range 6 {
			must(t, greedy[i])
		}
		if _, ok := has(greedy[6]); ok {
			t.Error("a tenant has more permits than it may")
		}
		must(t, ask(t.Context(), p, "other"))()
		for _, one := range greedy[6:] {
			refused(t, one, fault.TooMany, "permitsAtOnce", 6)
		}
	})
}

// Where all permits are held, the next goes to the tenant that holds fewest, and
// then to each in turn, however many of another came first.
func TestPermitsGoRoundTheTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := turn.New(turn.Config{Limit: "permitsAtOnce", Message: "a tenant may have %d", All: 4, Each: 2})
		var gives []func()
		for _, who := range []string{"a", "a", "b", "b"} {
			gives = append(gives, must(t, ask(t.Context(), p, who)))
		}
		var ofA, ofB []<-chan taken
		for range 20 {
			ofA, ofB = append(ofA, ask(t.Context(), p, "a")), append(ofB, ask(t.Context(), p, "b"))
		}
		last := ask(t.Context(), p, "c")
		gives[0]()
		must(t, last)()
		must(t, ofA[0])
		gives[2]()
		must(t, ofB[0])
		if _, ok := has(ofA[1]); ok {
			t.Error("a tenant has more permits than it may")
		}
	})
}

// A request that held a permit gets another, however many wait; and waits
// as long as the request may take.
func TestWhatBeganIsNotRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := turn.New(turn.Config{Limit: "permitsAtOnce", Message: "a tenant may have %d", All: 4, Each: 2})
		bulk, admitted := turn.Begin(t.Context(), false), turn.Begin(t.Context(), true)
		must(t, ask(bulk, p, "a"))()
		one, two := must(t, ask(t.Context(), p, "a")), must(t, ask(t.Context(), p, "a"))
		var queue []<-chan taken
		for range 32 {
			queue = append(queue, ask(t.Context(), p, "a"))
		}
		refused(t, ask(t.Context(), p, "a"), fault.TooMany, "permitsAtOnce", 2)
		second, third := ask(bulk, p, "a"), ask(admitted, p, "a")
		for _, waits := range queue {
			refused(t, waits, fault.TooMany, "permitsAtOnce", 2)
		}
		<-time.After(10 * time.Second)
		one()
		must(t, second)
		two()
		must(t, third)
	})
}

// A caller that finds the permits of all tenants taken reads that it is not to blame,
// after a second.
func TestPermitsOfAllAreTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := turn.New(turn.Config{Limit: "permitsAtOnce", Message: "a tenant may have %d", All: 2, Each: 1})
		must(t, ask(t.Context(), p, "a"))
		must(t, ask(t.Context(), p, "b"))
		began := clock.Start()
		refused(t, ask(t.Context(), p, "c"), fault.Unavailable, "", 0)
		if began.Elapsed() != time.Second {
			t.Errorf("refused after %v", began.Elapsed())
		}
	})
}

// A caller that has gone holds nothing and keeps nobody waiting, and an unknown one
// waits in a line of its own.
func TestWhoHasGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := turn.New(turn.Config{Limit: "permitsAtOnce", Message: "a tenant may have %d", All: 3, Each: 1})
		give := must(t, ask(t.Context(), p, "a"))
		ctx, cancel := context.WithCancel(t.Context())
		gone, next := ask(ctx, p, "a"), ask(t.Context(), p, "a")
		cancel()
		if got := <-gone; !errors.Is(got.err, context.Canceled) {
			t.Errorf("answered %v", got.err)
		}
		must(t, ask(turn.Login(t.Context()), p, "a"))()
		give()
		must(t, next)()
		must(t, ask(t.Context(), p, "a"))()
	})
}

// Three tenants that take all that they may leave permits to others, who get one each
// at once.
func TestSpareIsForTenantsThatHoldNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := turn.New(turn.Config{All: 12, Each: 4, Spare: 4, Limit: "x", Message: "%d"})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel() // of those that wait
		var gives []func()
		held := map[string]int{}
		for _, who := range []string{"a", "b", "c"} {
			for range 4 {
				if give, ok := has(ask(ctx, p, who)); ok {
					held[who]++
					gives = append(gives, give)
				}
			}
		}
		if held["a"] != 4 || held["b"] != 4 || held["c"] != 1 {
			t.Errorf("they hold %v", held)
		}
		for _, who := range []string{"d", "e", "f"} {
			gives = append(gives, must(t, ask(t.Context(), p, who)))
		}
		for _, give := range gives {
			give()
		}
	})
}

// Where there are fewer permits than one tenant may hold, one stays free for another tenant.
func TestFewerPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := turn.New(turn.Config{Limit: "permitsAtOnce", Message: "a tenant may have %d", All: 18, Each: 6})
		p.Resize(3)
		must(t, ask(t.Context(), p, "a"))
		must(t, ask(t.Context(), p, "a"))
		third := ask(t.Context(), p, "a")
		if _, ok := has(third); ok {
			t.Error("a tenant has all permits")
		}
		must(t, ask(t.Context(), p, "b"))
		fourth := ask(t.Context(), p, "c")
		if _, ok := has(fourth); ok {
			t.Error("there are more permits than there should be")
		}
		p.Resize(18)
		must(t, third)
		must(t, fourth)
		p.Resize(0)
		refused(t, ask(t.Context(), p, "d"), fault.Unavailable, "", 0)
	})
}

// A Limiter that has so few permits from the start keeps one free, too.
func TestFewPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := turn.New(turn.Config{Limit: "permitsAtOnce", Message: "a tenant may have %d", All: 2, Each: 2})
		must(t, ask(t.Context(), p, "a"))
		refused(t, ask(t.Context(), p, "a"), fault.Unavailable, "", 0)
		must(t, ask(t.Context(), p, "b"))
	})
}
