package chaos

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// kind is one sort of fault: how often it comes, how long it lasts, whom it
// strikes, what it takes, and what it does.
type kind struct {
	name     string
	weight   int // 0: only when asked for by its name
	min, max time.Duration
	role     string // of the process struck; empty: none; "any"
	store    string // whose servers it strikes, or promoterClocks: one fault at a time; empty: none
	needs    need
	strike   strike
}

// promoterClocks are borne by one fault at a time: the end of one sets clocks
// right that another has moved.
const promoterClocks = "promoter clocks"

// strike does a fault and undoes it. The member is nil where none is struck.
type strike func(ctx context.Context, s *stack, m *member, f *fault) error

func kinds() []kind {
	const sec = time.Second
	return slices.Concat([]kind{
		{"kill worker", 5, sec, 6 * sec, "worker", "", needNothing, kill(syscall.SIGKILL)},
		{"kill promoter", 4, sec, 6 * sec, "promoter", "", needNothing, kill(syscall.SIGKILL)},
		{"kill api", 2, sec, 4 * sec, "api", "", needNothing, kill(syscall.SIGKILL)},
		{"kill workers", 1, sec, 4 * sec, "", "", needNothing, killAll("worker")},
		{"kill promoters", 1, sec, 6 * sec, "", "", needNothing, killAll("promoter")},
		{"freeze worker", 3, 2 * sec, 14 * sec, "worker", "", needNothing, freeze},
		{"freeze promoter", 3, sec, 9 * sec, "promoter", "", needNothing, freeze},
		{"freeze api", 1, sec, 5 * sec, "api", "", needNothing, freeze},
		{"restart", 2, sec, 2 * sec, "any", "", needNothing, kill(syscall.SIGTERM)},
		{"skew promoter", 2, 4 * sec, 10 * sec, "promoter", promoterClocks, needSkew, skew},
		{"skew promoters", 1, 8 * sec, 12 * sec, "", promoterClocks, needSkew, skewAll("promoter")},
		{"skew worker", 2, 3 * sec, 10 * sec, "worker", "", needSkew, skew},
		{"skew api", 1, 3 * sec, 10 * sec, "api", "", needSkew, skew},
	}, redisKinds(), postgresKinds(), greedyKinds())
}

func redisKinds() []kind {
	const sec = time.Second
	return []kind{
		{"flush redis", 4, 0, 0, "", "", needRedis, func(_ context.Context, s *stack, _ *member, _ *fault) error { return s.redisCommand("FLUSHALL") }},
		{"restart redis", 2, 0, 0, "", "redis", needRedis, restartRedis},
		{"redis away", 2, 2 * sec, 10 * sec, "", "redis", needRedis, redisAway},
		{"cut redis", 2, sec, 8 * sec, "", "redis", needRedis, cutRedis},
		{"redis loses keys", 2, 0, 0, "", "", needRedis, loseKeys},
		{"full redis", 1, sec, 6 * sec, "", "redis", needRedis, fullRedis},
		{"slow redis", 1, 2 * sec, 6 * sec, "", "", needRedis, slowRedis},
	}
}

func postgresKinds() []kind {
	const sec = time.Second
	return []kind{
		{"crash postgres", 2, 0, 3 * sec, "", "postgres", needNothing, crash},
		{"failover", 3, 0, 0, "", "postgres", needStandby, failover},
		{"late failover", 2, 2 * sec, 8 * sec, "", "postgres", needStandby, lateFailover},
		{"silent standby", 1, sec, 7 * sec, "", "postgres", needStandby, silentStandby},
		{"disk full", 3, 2 * sec, 6 * sec, "", "postgres", needDisk, diskFull},
		{"slow disk", 2, 3 * sec, 9 * sec, "", "postgres", needLibrary, slowDisk},
		{"failing disk", 2, 200 * time.Millisecond, 3 * sec, "", "postgres", needLibrary, failingDisk},
		{"skew postgres", 0, 4 * sec, 8 * sec, "", "postgres", needLibrary, skewPostgres},
		{"cut postgres", 3, 0, sec, "", "", needNothing, cutPostgres},
		{"lose answers", 5, 200 * time.Millisecond, sec, "", "", needNothing, loseAnswers},
		{"silent postgres", 2, 3 * sec, 12 * sec, "any", "", needNothing, silent},
		{"deaf to postgres", 2, 2 * sec, 9 * sec, "any", "", needNothing, deaf},
		{"slow postgres", 1, 2 * sec, 5 * sec, "", "", needNothing, slowPostgres},
		{"exhaust postgres sessions", 1, 2 * sec, 5 * sec, "", "", needNothing, exhaustSessions},
		{"lock table", 2, 2 * sec, 5 * sec, "", "", needNothing, lockTable},
	}
}

// possible are the kinds of a run, and those that it must do without, with the
// reason.
func possible(c Config, lacks map[need]string) (can []kind, cannot map[string]string) {
	cannot = map[string]string{}
	for _, k := range kinds() {
		switch {
		case len(c.Only) > 0 && !slices.Contains(c.Only, k.name), len(c.Only) == 0 && k.weight == 0:
		case lacks[k.needs] != "":
			cannot[k.name] = lacks[k.needs]
		default:
			k.weight = max(k.weight, 1)
			can = append(can, k)
		}
	}
	return can, cannot
}

func kill(sig syscall.Signal) strike {
	return func(ctx context.Context, _ *stack, m *member, f *fault) error {
		m.end(sig)
		sleep(ctx, f.lasts)
		return m.start(ctx)
	}
}

// killAll takes all processes of a role down at once.
func killAll(role string) strike {
	return func(ctx context.Context, s *stack, _ *member, f *fault) (err error) {
		for _, m := range s.role(role) {
			m.end(syscall.SIGKILL)
		}
		sleep(ctx, f.lasts)
		for _, m := range s.role(role) {
			err = errors.Join(err, m.start(ctx))
		}
		return err
	}
}

func freeze(ctx context.Context, _ *stack, m *member, f *fault) error {
	m.freeze(true)
	sleep(ctx, f.lasts)
	m.freeze(false)
	return nil
}

func restartRedis(ctx context.Context, s *stack, _ *member, _ *fault) error {
	return s.redis.Restart(context.WithoutCancel(ctx))
}

// redisAway takes Redis from everybody; when it is back it is empty.
func redisAway(ctx context.Context, s *stack, _ *member, f *fault) error {
	for _, m := range s.members {
		m.redis.Down()
	}
	sleep(ctx, f.lasts)
	err := restartRedis(ctx, s, nil, nil)
	for _, m := range s.members {
		m.redis.Up()
	}
	return err
}

// cutRedis takes Redis from everybody, and gives it back as it was.
func cutRedis(ctx context.Context, s *stack, _ *member, f *fault) error {
	for _, m := range s.members {
		m.redis.Down()
	}
	sleep(ctx, f.lasts)
	for _, m := range s.members {
		m.redis.Up()
	}
	return nil
}

// loseKeys makes Redis forget some of what it holds, and so break what belongs
// together.
func loseKeys(_ context.Context, s *stack, _ *member, f *fault) error {
	const script = "local n = 0 for i, key in ipairs(redis.call('KEYS', '*')) do if (i + ARGV[1]) % 3 == 0 then n = n + redis.call('DEL', key) end end return n"
	return s.redisCommand("EVAL", script, "0", strconv.FormatUint(f.draw%3, 10))
}

// fullRedis makes Redis refuse whatever needs memory.
func fullRedis(ctx context.Context, s *stack, _ *member, f *fault) error {
	err := s.redisCommand("CONFIG", "SET", "maxmemory", "1")
	sleep(ctx, f.lasts)
	return errors.Join(err, s.redisCommand("CONFIG", "SET", "maxmemory", "0"))
}

func slowRedis(ctx context.Context, s *stack, _ *member, f *fault) error {
	for _, m := range s.members {
		m.redis.Latency(150 * time.Millisecond)
	}
	sleep(ctx, f.lasts)
	for _, m := range s.members {
		m.redis.Latency(0)
	}
	return nil
}

func slowPostgres(ctx context.Context, s *stack, _ *member, f *fault) error {
	for _, m := range s.members {
		m.db.Latency(40 * time.Millisecond)
	}
	sleep(ctx, f.lasts)
	for _, m := range s.members {
		m.db.Latency(0)
	}
	return nil
}

func cutPostgres(ctx context.Context, s *stack, _ *member, f *fault) error {
	for _, m := range s.members {
		m.db.Down()
	}
	sleep(ctx, f.lasts)
	for _, m := range s.members {
		m.db.Up()
	}
	return nil
}

// loseAnswers cuts every connection to PostgreSQL at its next answer, twice.
func loseAnswers(ctx context.Context, s *stack, _ *member, f *fault) error {
	for range 2 {
		for _, m := range s.members {
			m.db.LoseAnswers()
		}
		sleep(ctx, f.lasts)
	}
	return nil
}

// silent is a partition: packets vanish, nobody is told.
func silent(ctx context.Context, _ *stack, m *member, f *fault) error {
	m.db.Hold()
	sleep(ctx, f.lasts)
	m.db.Down() // what was on its way is lost
	m.db.Up()
	return nil
}

// deaf is a partition in one direction: what is asked is done, and no answer
// comes.
func deaf(ctx context.Context, _ *stack, m *member, f *fault) error {
	m.db.HoldAnswers()
	sleep(ctx, f.lasts)
	m.db.Down()
	m.db.Up()
	return nil
}

func exhaustSessions(ctx context.Context, s *stack, _ *member, f *fault) error {
	s.store.exhaustSessions(ctx, s.servers.url(database, login), f.lasts)
	return nil
}

func lockTable(ctx context.Context, s *stack, _ *member, f *fault) error {
	tables := strings.Fields("job_definitions job_schedule active_executions job_executions workers")
	return s.store.lock(ctx, tables[int(f.lasts.Microseconds())%len(tables)], f.lasts)
}
