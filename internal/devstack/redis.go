package devstack

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// The kinds of server that StartRedis may have started.
const (
	KindRedis     = "redis-server"
	KindValkey    = "valkey-server"
	KindMiniredis = "miniredis" // in this process, forgets everything at its end
)

// Redis is a running Redis of our own.
type Redis struct {
	// URL is its address as asynq.ParseRedisURI reads it:
	// redis-socket:///path, or redis://:password@host:port for miniredis.
	URL string
	// ClientURL is the same as redis.ParseURL of go-redis reads it:
	// unix:///path, or as URL.
	ClientURL string
	// Kind is one of the constants above.
	Kind string

	done    <-chan struct{}
	stop    sync.Once
	stopFn  func() error
	stopErr error
}

// Done is closed when the server has ended, by Stop or by itself.
func (r *Redis) Done() <-chan struct{} { return r.done }

// Stop shuts the server down and waits until it is gone. Further calls return
// the first one's answer.
func (r *Redis) Stop() error {
	r.stop.Do(func() { r.stopErr = r.stopFn() })
	return r.stopErr
}

// StartRedis starts a Redis that serves only us: redis-server or valkey-server
// as a child process, and where neither is to be had, a small one inside this
// process, which forgets everything when it ends. That is enough to run on:
// Redis carries hints and PostgreSQL owns the facts.
func StartRedis(ctx context.Context, o Options) (*Redis, error) {
	path, kind, err := findRedis(ctx, o)
	if err != nil {
		o.log().WarnContext(ctx, "using a small Redis inside this process", "reason", err)
		return startMiniredis()
	}
	r, err := startRedisServer(ctx, o, path, kind)
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	o.log().InfoContext(ctx, "Redis started", "kind", kind, "url", r.URL)
	return r, nil
}

func startRedisServer(ctx context.Context, o Options, path, kind string) (*Redis, error) {
	h, err := openHome(ctx, o, "redis")
	if err != nil {
		return nil, err
	}
	var process *child.Process
	socket := filepath.Join(h.socketDir(child.Self()), "redis.sock")
	if err = endRedis(ctx, socket); err == nil {
		process, err = runRedis(ctx, h, path, kind)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	socket = h.redisSocket()
	return &Redis{
		URL: "redis-socket://" + socket, ClientURL: "unix://" + socket, Kind: kind,
		done: process.Done(),
		stopFn: func() error {
			defer h.close()
			return process.Stop(redisStopSteps(h.durable)...)
		},
	}, nil
}

// redisStopSteps ask it to write everything out. It looks ten times a second
// whether it was asked, for which a throwaway is not worth waiting.
func redisStopSteps(durable bool) []child.Step {
	if !durable {
		return []child.Step{{Signal: syscall.SIGKILL, Within: 10 * time.Second}}
	}
	return []child.Step{{Signal: syscall.SIGTERM, Within: 10 * time.Second}}
}

// endRedis ends the server that a killed process left behind on the socket, and
// waits until it has written everything and gone.
func endRedis(ctx context.Context, socket string) error {
	err := until(ctx, 10*time.Second, func() (bool, error) {
		_, err := say(socket, "SHUTDOWN")
		return errors.Is(err, errNoServer), nil
	})
	if err != nil {
		return fmt.Errorf("another Redis answers on %s and does not stop: %w", socket, err)
	}
	return nil
}

func runRedis(ctx context.Context, h *home, path, kind string) (*child.Process, error) {
	if err := h.openSocket(child.Self()); err != nil {
		return nil, err
	}
	data := filepath.Join(h.dir, "redis")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	logPath := filepath.Join(h.dir, "redis.log")
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := child.Self().Command(context.Background(), serverEnv(), path, redisArgs(h, data)...)
	cmd.Args[0] = kind
	cmd.Stdout, cmd.Stderr = out, out
	process, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	err = until(ctx, startWithin, func() (bool, error) {
		select {
		case <-process.Done():
			return false, errEnded
		default:
			answer, err := say(h.redisSocket(), "PING")
			return err == nil && answer == "+PONG\r\n", nil
		}
	})
	if err != nil {
		_ = process.Stop(redisStopSteps(h.durable)...)
		said, _ := os.ReadFile(logPath)
		return nil, fmt.Errorf("%w: %s", err, lastLines(said))
	}
	return process, nil
}

func (h *home) redisSocket() string { return filepath.Join(h.socket, "redis.sock") }

func redisArgs(h *home, data string) []string {
	args := []string{
		"--port", "0", "--unixsocket", h.redisSocket(), "--unixsocketperm", "700",
		"--dir", data, "--save", "", "--daemonize", "no",
		// A full Redis must refuse hints and not forget some in silence.
		"--maxmemory-policy", "noeviction",
	}
	if h.durable {
		return append(args, "--appendonly", "yes", "--appendfsync", "everysec")
	}
	return append(args, "--appendonly", "no")
}

// errNoServer means that nobody listens on a socket.
var errNoServer = errors.New("no server")

// say sends a command to a Redis and returns the first line of its answer.
func say(socket, command string) (string, error) {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return "", errNoServer
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(clock.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

// clockEvery is how often the clock of a miniredis is moved on. Its time-outs
// do not pass by themselves, and asynq's leases and unique locks are time-outs.
const clockEvery = 100 * time.Millisecond

func startMiniredis() (*Redis, error) {
	server, password := miniredis.NewMiniRedis(), rand.Text()
	server.RequireAuth(password) // any user of this machine reaches a loopback port
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, err
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		moveClock(server, quit)
		server.Close()
	}()
	address := "redis://:" + password + "@" + server.Addr()
	return &Redis{URL: address, ClientURL: address, Kind: KindMiniredis, done: done, stopFn: func() error {
		close(quit)
		<-done
		return nil
	}}, nil
}

// moveClock lets as much time pass for the server as really did, until quit.
func moveClock(server *miniredis.Miniredis, quit <-chan struct{}) {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	mark, moved := clock.Start(), time.Duration(0)
	for {
		select {
		case <-quit:
			return
		case <-tick.C:
			passed := mark.Elapsed()
			server.FastForward(passed - moved)
			moved = passed
		}
	}
}
