package redistest_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/scheduler-service/scheduler/internal/queue/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func connect(t *testing.T, s *redistest.Server) *redis.Client {
	t.Helper()
	opt, err := redis.ParseURL(s.ClientURL)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestEachTestHasItsOwn(t *testing.T) {
	t.Parallel()
	a, b := connect(t, redistest.New(t)), connect(t, redistest.New(t))
	if err := a.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if got := a.Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("got %q: another server's FLUSHALL was felt", got)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	c := connect(t, s)
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("it still answers")
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	c := connect(t, s)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Halt(t)
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("it answers while it is halted")
	}
	s.Restart(t)
	if got, err := c.Exists(t.Context(), "k").Result(); err != nil || got != 0 {
		t.Errorf("%d keys, error %v: the same client should find an empty server", got, err)
	}
}
