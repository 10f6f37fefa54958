package devstack

import (
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// client opens the server at both of its addresses' readings, as asynq and as
// go-redis parse them, and returns the latter.
func client(t *testing.T, r *Redis) *redis.Client {
	t.Helper()
	opt, err := asynq.ParseRedisURI(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	queue := asynq.NewClient(opt)
	t.Cleanup(func() { _ = queue.Close() })
	if err := queue.Ping(); err != nil {
		t.Fatal(err)
	}
	parsed, err := redis.ParseURL(r.ClientURL)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(parsed)
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

func startRedis(t *testing.T, o Options) *Redis {
	t.Helper()
	r, err := StartRedis(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestRedisKeepsDurableData(t *testing.T) {
	t.Parallel()
	o := Options{Dir: t.TempDir(), Durable: true}
	first := startRedis(t, o)
	if err := client(t, first).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := startRedis(t, o)
	if got := client(t, second).Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("got %q", got)
	}
	if second.URL != first.URL {
		t.Errorf("the address changed from %s to %s", first.URL, second.URL)
	}
}
