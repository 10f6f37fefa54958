package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// fault is one planned disturbance.
type fault struct {
	kind  string
	who   string        // the process; empty: a store, or everybody
	at    time.Duration // after the start of the load
	lasts time.Duration

	begun, healed time.Time // when it really was; zero: not
	err           error
}

func (f fault) String() string {
	text := fmt.Sprintf("%6.1fs %s", f.at.Seconds(), f.kind)
	if f.who != "" {
		text += " " + f.who
	}
	text += fmt.Sprintf(" for %.1fs", f.lasts.Seconds())
	if f.err != nil {
		text += " (not done: " + f.err.Error() + ")"
	}
	return text
}

// kind is one sort of fault: how often it comes, how long it lasts, whom it
// strikes, and what it does.
type kind struct {
	name     string
	weight   int
	min, max time.Duration
	role     string // of the process struck; empty: none; "any"
	strike   func(ctx context.Context, s *stack, m *member, lasts time.Duration) error
}

func kinds() []kind {
	const sec = time.Second
	return []kind{
		{"kill worker", 5, sec, 6 * sec, "worker", kill(syscall.SIGKILL)},
		{"kill promoter", 4, sec, 6 * sec, "promoter", kill(syscall.SIGKILL)},
		{"kill api", 2, sec, 4 * sec, "api", kill(syscall.SIGKILL)},
		{"freeze worker", 3, 2 * sec, 14 * sec, "worker", freeze},
		{"freeze promoter", 3, sec, 9 * sec, "promoter", freeze},
		{"freeze api", 1, sec, 5 * sec, "api", freeze},
		{"restart", 2, sec, 2 * sec, "any", kill(syscall.SIGTERM)},
		{"flush redis", 4, 0, 0, "", func(_ context.Context, s *stack, _ *member, _ time.Duration) error { return s.flush() }},
		{"restart redis", 2, 0, 0, "", restartRedis},
		{"redis away", 2, 2 * sec, 10 * sec, "", redisAway},
		{"cut redis", 2, sec, 8 * sec, "", cutRedis},
		{"slow redis", 1, 2 * sec, 6 * sec, "", slowRedis},
		{"crash postgres", 2, 0, 3 * sec, "", func(ctx context.Context, s *stack, _ *member, d time.Duration) error { return s.crash(ctx, d) }},
		{"cut postgres", 3, 0, sec, "", cutPostgres},
		{"lose answers", 5, 200 * time.Millisecond, sec, "", loseAnswers},
		{"silent postgres", 2, 3 * sec, 12 * sec, "any", silent},
		{"slow postgres", 1, 2 * sec, 5 * sec, "", slowPostgres},
		{"crowd postgres", 1, 2 * sec, 5 * sec, "", crowd},
		{"lock table", 2, 2 * sec, 5 * sec, "", lockTable},
	}
}

// plan draws the faults of a run from its seed: one begins every second or
// two, and all are over when the quiet end begins.
func plan(random *rand.Rand, c Config) []fault {
	table, total := slices.DeleteFunc(kinds(), func(k kind) bool { return c.Only != "" && k.name != c.Only }), 0
	for _, k := range table {
		total += k.weight
	}
	counts := map[string]int{"api": c.APIs, "promoter": c.Promoters, "worker": c.Workers}
	var out []fault
	for at := c.Quiet; ; at += 400*time.Millisecond + time.Duration(random.Int64N(int64(2200*time.Millisecond))) {
		if c.Only != "" {
			at += 6 * time.Second // alone means that its effect has passed
		}
		drawn := random.IntN(total)
		var k kind
		for _, k = range table {
			if drawn -= k.weight; drawn < 0 {
				break
			}
		}
		f := fault{kind: k.name, at: at, lasts: k.min}
		if k.max > k.min {
			f.lasts += time.Duration(random.Int64N(int64(k.max - k.min)))
		}
		if c.Short {
			f.lasts = min(f.lasts, 4*time.Second)
		}
		role := k.role
		if role == "any" {
			role = []string{"promoter", "worker", "api"}[random.IntN(3)]
		}
		if role != "" {
			f.who = fmt.Sprintf("%s-%d", role, 1+random.IntN(counts[role]))
		}
		if at+f.lasts > c.Duration-c.Calm {
			return out
		}
		out = append(out, f)
	}
}

// rage brings the faults about, each in its time, and returns when all are
// over.
func rage(ctx context.Context, s *stack, faults []fault, began clock.Mark) {
	strikes := map[string]kind{}
	for _, k := range kinds() {
		strikes[k.name] = k
	}
	busy := map[string]*sync.Mutex{} // a process bears one fault at a time
	for _, m := range s.members {
		busy[m.name] = &sync.Mutex{}
	}
	var all sync.WaitGroup
	for i := range faults {
		f := &faults[i]
		if !rest(ctx, f.at-began.Elapsed()) {
			break
		}
		all.Go(func() {
			m := s.member(f.who)
			if m != nil {
				if !busy[f.who].TryLock() {
					f.err = errBusy
					return
				}
				defer busy[f.who].Unlock()
			}
			f.begun = clock.Now()
			f.err = strikes[f.kind].strike(ctx, s, m, f.lasts)
			f.healed = clock.Now()
		})
	}
	all.Wait()
}

// errBusy is why a fault was left out.
var errBusy = errors.New("it bore another one")

// heal makes everything whole again.
func heal(ctx context.Context, s *stack) error {
	for _, m := range s.members {
		m.freeze(false)
		m.db.Up()
		m.redis.Up()
		if err := m.start(ctx); err != nil {
			return err
		}
	}
	return s.everybodyWorks(ctx, 30*time.Second)
}

func (s *stack) member(name string) *member {
	for _, m := range s.members {
		if m.name == name {
			return m
		}
	}
	return nil
}

func kill(sig syscall.Signal) func(context.Context, *stack, *member, time.Duration) error {
	return func(ctx context.Context, _ *stack, m *member, lasts time.Duration) error {
		m.end(sig)
		rest(ctx, lasts)
		return m.start(ctx)
	}
}

func freeze(ctx context.Context, _ *stack, m *member, lasts time.Duration) error {
	m.freeze(true)
	rest(ctx, lasts)
	m.freeze(false)
	return nil
}

func restartRedis(ctx context.Context, s *stack, _ *member, _ time.Duration) error {
	s.restarts.Lock()
	defer s.restarts.Unlock()
	return s.redis.Restart(context.WithoutCancel(ctx))
}

// redisAway takes Redis from everybody; when it is back it is empty.
func redisAway(ctx context.Context, s *stack, _ *member, lasts time.Duration) error {
	for _, m := range s.members {
		m.redis.Down()
	}
	rest(ctx, lasts)
	err := restartRedis(ctx, s, nil, 0)
	for _, m := range s.members {
		m.redis.Up()
	}
	return err
}

// cutRedis takes Redis from everybody, and gives it back as it was.
func cutRedis(ctx context.Context, s *stack, _ *member, lasts time.Duration) error {
	for _, m := range s.members {
		m.redis.Down()
	}
	rest(ctx, lasts)
	for _, m := range s.members {
		m.redis.Up()
	}
	return nil
}

func slowRedis(ctx context.Context, s *stack, _ *member, lasts time.Duration) error {
	for _, m := range s.members {
		m.redis.Latency(150 * time.Millisecond)
	}
	rest(ctx, lasts)
	for _, m := range s.members {
		m.redis.Latency(0)
	}
	return nil
}

func slowPostgres(ctx context.Context, s *stack, _ *member, lasts time.Duration) error {
	for _, m := range s.members {
		m.db.Latency(40 * time.Millisecond)
	}
	rest(ctx, lasts)
	for _, m := range s.members {
		m.db.Latency(0)
	}
	return nil
}

func cutPostgres(ctx context.Context, s *stack, _ *member, lasts time.Duration) error {
	for _, m := range s.members {
		m.db.Down()
	}
	rest(ctx, lasts)
	for _, m := range s.members {
		m.db.Up()
	}
	return nil
}

// loseAnswers cuts every connection to PostgreSQL at its next answer, twice.
func loseAnswers(ctx context.Context, s *stack, _ *member, lasts time.Duration) error {
	for range 2 {
		for _, m := range s.members {
			m.db.LoseAnswers()
		}
		rest(ctx, lasts)
	}
	return nil
}

// silent is a partition: packets vanish, nobody is told.
func silent(ctx context.Context, _ *stack, m *member, lasts time.Duration) error {
	m.db.Hold()
	rest(ctx, lasts)
	m.db.Down() // what was on its way is lost
	m.db.Up()
	return nil
}

func crowd(ctx context.Context, s *stack, _ *member, lasts time.Duration) error {
	s.store.crowd(ctx, s.postgres.URL(database, login), lasts)
	return nil
}

func lockTable(ctx context.Context, s *stack, _ *member, lasts time.Duration) error {
	tables := strings.Fields("scheduled_jobs active_executions job_executions workers")
	return s.store.lock(ctx, tables[int(lasts.Microseconds())%len(tables)], lasts)
}
