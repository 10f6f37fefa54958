package devstack

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
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

	home     *home    // nil for a miniredis, as the next three
	program  string   // the server's path
	settings []string // see Options
	process  *child.Process
	mini     *miniredisClock

	mu      sync.Mutex // guards process and stopped
	stopped bool
}

// Done is closed when the server has ended, by Stop or by itself. A restart
// ends it too, and the new one has another Done.
func (r *Redis) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mini != nil {
		return r.mini.done
	}
	return r.process.Done()
}

// Stop shuts the server down and waits until it is gone. A throwaway is given
// no time to say goodbye, as in a crash. Further calls do nothing.
func (r *Redis) Stop() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil
	}
	r.stopped = true
	if r.mini != nil {
		r.mini.stop()
		return nil
	}
	defer r.home.close()
	return r.process.Stop(redisStopSteps(r.home.durable)...)
}

// Halt stops the server until Restart, for tests of what its clients make of
// that. A miniredis cannot do it.
func (r *Redis) Halt() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mini != nil:
		return errors.New("a miniredis does not halt")
	case r.stopped:
		return errStopped
	}
	return r.process.Stop(redisStopSteps(r.home.durable)...)
}

// Freeze has the server stand still, which takes connections and answers
// nothing, until Thaw, Halt or Restart. A miniredis cannot do it.
func (r *Redis) Freeze() error { return r.signal(syscall.SIGSTOP) }

// Thaw has a frozen server go on.
func (r *Redis) Thaw() error { return r.signal(syscall.SIGCONT) }

func (r *Redis) signal(sig syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mini != nil || r.stopped {
		return errStopped
	}
	return syscall.Kill(r.process.PID(), sig)
}

// Restart stops the server and starts it again on the same address, for tests
// of what its clients make of that. A throwaway comes back empty. A miniredis
// cannot do it.
func (r *Redis) Restart(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mini != nil {
		return errors.New("a miniredis does not restart")
	}
	if r.stopped {
		return errStopped
	}
	if err := r.process.Stop(redisStopSteps(r.home.durable)...); err != nil {
		return err
	}
	return r.run(ctx)
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
	r := &Redis{Kind: kind, home: h, program: path, settings: o.Settings}
	if err = endRedis(ctx, filepath.Join(h.socketDir(child.Self()), redisSocket)); err == nil {
		err = h.openSocket(child.Self())
	}
	if err == nil {
		err = r.run(ctx)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	socket := filepath.Join(h.socket, redisSocket)
	r.URL = (&url.URL{Scheme: "redis-socket", Path: socket}).String()
	r.ClientURL = (&url.URL{Scheme: "unix", Path: socket}).String()
	return r, nil
}

// redisSocket is the socket's name in its directory.
const redisSocket = "redis.sock"

// redisStopSteps ask it to write everything out. It looks ten times a second
// whether it was asked, for which a throwaway is not worth waiting.
func redisStopSteps(durable bool) []child.Step {
	if !durable {
		return []child.Step{{Signal: syscall.SIGKILL, Within: time.Minute}}
	}
	return []child.Step{{Signal: syscall.SIGTERM, Within: 30 * time.Second}}
}

// endRedis ends the server that a killed process left behind on the socket, and
// waits until it has written everything and gone.
func endRedis(ctx context.Context, socket string) error {
	err := until(ctx, 30*time.Second, func() (bool, error) {
		_, err := say(socket, "SHUTDOWN")
		return errors.Is(err, errNoServer), nil
	})
	if err != nil {
		return fmt.Errorf("another Redis answers on %s and does not stop: %w", socket, err)
	}
	return nil
}

// run starts the server in its home and waits until it answers.
func (r *Redis) run(ctx context.Context) error {
	data := filepath.Join(r.home.dir, "redis")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	logPath := filepath.Join(r.home.dir, "redis.log")
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	socket := filepath.Join(r.home.socket, redisSocket)
	args := append(redisArgs(r.home.durable, data, socket), settingArgs(r.settings)...)
	cmd := child.Self().Command(context.Background(), serverEnv(), r.program, args...)
	cmd.Args[0] = r.Kind
	cmd.Stdout, cmd.Stderr = out, out
	if r.process, err = child.Start(cmd); err != nil {
		return err
	}
	err = until(ctx, startWithin, func() (bool, error) {
		select {
		case <-r.process.Done():
			return false, errEnded
		default:
			answer, err := say(socket, "PING")
			return err == nil && (answer == "+PONG\r\n" || strings.HasPrefix(answer, "-NOAUTH")), nil
		}
	})
	if err != nil {
		_ = r.process.Stop(redisStopSteps(r.home.durable)...)
		said, _ := os.ReadFile(logPath)
		return fmt.Errorf("%w: %s", err, lastLines(said))
	}
	return nil
}

func redisArgs(durable bool, data, socket string) []string {
	args := []string{
		"--port", "0", "--unixsocket", socket, "--unixsocketperm", "700",
		"--dir", data, "--save", "", "--daemonize", "no",
		// A full Redis must refuse hints and not forget some in silence.
		"--maxmemory-policy", "noeviction",
	}
	if durable {
		return append(args, "--appendonly", "yes", "--appendfsync", "everysec")
	}
	return append(args, "--appendonly", "no")
}

// settingArgs are settings as arguments, their values word by word.
func settingArgs(settings []string) []string {
	var args []string
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		args = append(append(args, "--"+name), strings.Fields(value)...)
	}
	return args
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

// miniredisClock is a miniredis and what moves its clock on.
type miniredisClock struct {
	server     *miniredis.Miniredis
	quit, done chan struct{}
}

func startMiniredis() (*Redis, error) {
	server, password := miniredis.NewMiniRedis(), rand.Text()
	server.RequireAuth(password) // any user of this machine reaches a loopback port
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start a Redis inside this process: %w", err)
	}
	m := &miniredisClock{server: server, quit: make(chan struct{}), done: make(chan struct{})}
	go m.run()
	address := (&url.URL{Scheme: "redis", User: url.UserPassword("", password), Host: server.Addr()}).String()
	return &Redis{URL: address, ClientURL: address, Kind: KindMiniredis, mini: m}, nil
}

// run lets as much time pass for the server as really did, until stop.
func (m *miniredisClock) run() {
	defer close(m.done)
	defer m.server.Close()
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	mark, moved := clock.Start(), time.Duration(0)
	for {
		select {
		case <-m.quit:
			return
		case <-tick.C:
			passed := mark.Elapsed()
			m.server.FastForward(passed - moved)
			moved = passed
		}
	}
}

func (m *miniredisClock) stop() {
	close(m.quit)
	<-m.done
}
