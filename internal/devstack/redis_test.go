package devstack

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/devstack/child"
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

// needRedis is the path of a real Redis, which is installed if need be.
func needRedis(t *testing.T) string {
	t.Helper()
	path, _, err := findRedis(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startRedis starts a real one, unless the machine is a made-up one.
func startRedis(t *testing.T, o Options) *Redis {
	t.Helper()
	if o.on == nil {
		needRedis(t)
	}
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

func TestThrowawayRedis(t *testing.T) {
	t.Parallel()
	r := startRedis(t, Options{})
	c := client(t, r)
	for _, tc := range []struct{ setting, want string }{
		{"save", ""}, {"appendonly", "no"}, {"maxmemory-policy", "noeviction"}, {"port", "0"},
	} {
		got, err := c.ConfigGet(t.Context(), tc.setting).Result()
		if err != nil || got[tc.setting] != tc.want {
			t.Errorf("%s is %q, want %q (%v)", tc.setting, got[tc.setting], tc.want, err)
		}
	}
	dir := c.ConfigGet(t.Context(), "dir").Val()["dir"]
	for range 2 {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
	<-r.Done()
	if exists(dir) {
		t.Errorf("%s is still there", dir)
	}
}

// TestSurvivingRedisIsStopped has one on the socket that nothing told of its
// parent's end.
func TestSurvivingRedisIsStopped(t *testing.T) {
	t.Parallel()
	o := Options{Dir: openDir(t), Durable: true}
	path, kind, err := findRedis(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := &home{dir: o.Dir, name: "redis", durable: true}
	if err := h.openSocket(child.Self()); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(o.Dir, "redis")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	survivor := exec.CommandContext(t.Context(), path, redisArgs(true, data, filepath.Join(h.socket, redisSocket))...)
	survivor.Args[0] = kind
	if err := survivor.Start(); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(h.socket, redisSocket)
	eventually(t, "the survivor", func() bool { _, err := say(socket, "PING"); return err == nil })
	old := &Redis{URL: "redis-socket://" + socket, ClientURL: "unix://" + socket}
	if err := client(t, old).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r := startRedis(t, o)
	if err := survivor.Wait(); err != nil {
		t.Errorf("it was not stopped in order: %v", err)
	}
	if r.URL != old.URL {
		t.Errorf("the address changed from %s to %s", old.URL, r.URL)
	}
	if got := client(t, r).Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("got %q", got)
	}
}

func TestRedisIsInstalledOrReplaced(t *testing.T) {
	t.Parallel()
	dirs := openDir(t)
	path := needRedis(t)
	no := func(context.Context, string) bool { return false }
	// As Debian's redis-tools have it: the server under another name.
	link := "mkdir '" + dirs + "/bin' && cp '" + path + "' '" + dirs + "/bin/redis-check-rdb'"
	for _, tc := range []struct {
		name    string
		on      *machine
		confirm func(context.Context, string) bool
		want    string
	}{
		{"not allowed", withManager(dirs, "", link), no, KindMiniredis},
		{"it fails", withManager(dirs, "", "exit 7"), nil, KindMiniredis},
		{"it helps", withManager(dirs, "", link), nil, KindRedis},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := startRedis(t, Options{Confirm: tc.confirm, on: tc.on})
			if r.Kind != tc.want {
				t.Errorf("got %s, want %s", r.Kind, tc.want)
			}
			client(t, r)
		})
	}
}

// In a miniredis no time-out passes unless its clock is moved: asynq's unique
// locks and leases would stand for ever.
func TestMiniredisTimePasses(t *testing.T) {
	t.Parallel()
	r := startRedis(t, Options{on: bare()})
	c := client(t, r)
	const life = 3 * time.Second
	// The key was set between two ticks. On a busy machine the next tick may come after the key's
	// whole life, which then ends at once. That does not happen five times in a row.
	for try := 1; ; try++ {
		mark := clock.Start()
		if err := c.Set(t.Context(), "k", "v", life).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end of the key's life", func() bool { return c.Exists(t.Context(), "k").Val() == 0 })
		got := mark.Elapsed()
		if got >= life/2 {
			break
		}
		if try == 5 {
			t.Errorf("it ended after %v instead of %v", got, life)
			break
		}
	}
	for range 2 {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
	<-r.Done()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("it still answers")
	}
}

func TestMiniredisAsksForItsPassword(t *testing.T) {
	t.Parallel()
	r := startRedis(t, Options{on: bare()})
	opt, err := redis.ParseURL(r.ClientURL)
	if err != nil {
		t.Fatal(err)
	}
	opt.Password = ""
	c := redis.NewClient(opt)
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("it answers to anybody on this machine")
	}
}

func TestRedisRestart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		durable bool
		want    string
	}{{"durable keeps its data", true, "v"}, {"a throwaway comes back empty", false, ""}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := startRedis(t, Options{Dir: openDir(t), Durable: tc.durable})
			if err := client(t, r).Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			before := r.Done()
			if err := r.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-before
			if got := client(t, r).Get(t.Context(), "k").Val(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
			if err := r.Restart(t.Context()); err == nil {
				t.Error("a stopped server started again")
			}
		})
	}
}
