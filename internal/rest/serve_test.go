package rest_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/rest"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
)

// pipes is a listener inside the process, so that a bubble of synctest can
// drive the server's time-outs.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects, and reports whether anybody accepted.
func (p *pipes) dial() (net.Conn, bool) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, true
	case <-p.closed:
		return nil, false
	}
}

// running is a server in a bubble.
type running struct {
	listener *pipes
	stop     context.CancelFunc
	ended    chan error
}

func serve(t *testing.T, handler http.Handler, change func(*parts.Server)) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{listener: newPipes(), stop: stop, ended: make(chan error, 1)}
	s := parts.Server{Listener: r.listener, Handler: handler, Log: discard(), Drain: 10 * time.Second}
	if change != nil {
		change(&s)
	}
	go func() { r.ended <- rest.Serve(ctx, s) }()
	return r
}

// finish stops the server and demands that it ends well.
func (r *running) finish(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
}

// get sends one request on a connection of its own and reads the answer.
func (r *running) get(t *testing.T, path string) (status int, closes bool, body string) {
	t.Helper()
	conn, ok := r.listener.dial()
	if !ok {
		return 0, false, ""
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Close, string(text)
}

// sends writes text again and again with a pause before each, until the other
// side closes, and gives how long that took by the bubble's clock. A count of
// pauses would give one too few where the last one and the time-out end together.
func (r *running) sends(t *testing.T, first, again string, pause time.Duration) time.Duration {
	t.Helper()
	conn, ok := r.listener.dial()
	if !ok {
		t.Fatal("nobody accepts")
	}
	defer func() { _ = conn.Close() }()
	began, gone := clock.Start(), make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, conn) // until the server closes
		close(gone)
	}()
	if _, err := io.WriteString(conn, first); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case <-gone:
			return began.Elapsed()
		case <-time.After(pause):
			_, _ = io.WriteString(conn, again)
		}
	}
}

// A client that sends slowly on purpose is cut off.
func TestSlowSendersAreCutOff(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, first, again string
		least, most        time.Duration
	}{
		{"a header byte by byte", "GET /health/live HTTP/1.1\r\nHost: x\r\nX-A: ", "a", 5 * time.Second, 7 * time.Second},
		{"nothing at all", "", "", 5 * time.Second, 7 * time.Second},
		{"a body byte by byte", "POST /health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", "a", 0, 17 * time.Second},
		{"an idle connection", "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n", "", 60 * time.Second, 62 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := serve(t, withVitals(t, &vitals{}).handler, nil)
				if took := r.sends(t, test.first, test.again, time.Second); took < test.least || took > test.most {
					t.Errorf("cut off after %s, want %s to %s", took, test.least, test.most)
				}
				r.finish(t)
			})
		})
	}
}

// A client that sends at once is answered at once, however many send slowly, and the
// slow ones are gone when their time has passed.
func TestSlowSendersHoldUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, withVitals(t, &vitals{}).handler, nil)
		began := clock.Start()
		var slow sync.WaitGroup
		for range 1000 {
			conn, ok := r.listener.dial()
			if !ok {
				t.Fatal("nobody accepts")
			}
			slow.Go(func() {
				defer func() { _ = conn.Close() }()
				if _, err := io.WriteString(conn, "GET /health/live HTTP/1.1\r\nHost: x\r\nX-A: a"); err != nil {
					t.Error(err)
				}
				_, _ = io.Copy(io.Discard, conn) // until the server closes
			})
		}
		synctest.Wait()
		for range 100 {
			if status, _, _ := r.get(t, "/health/live"); status != http.StatusOK {
				t.Fatalf("answered %d", status)
			}
		}
		if took := began.Elapsed(); took != 0 { // of the bubble's time, which passes while everybody waits
			t.Errorf("requests waited %s for slow ones", took)
		}
		slow.Wait()
		if took := began.Elapsed(); took > 7*time.Second {
			t.Errorf("slow ones were cut off after %s", took)
		}
		r.finish(t)
	})
}

func TestLongHeadersAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, withVitals(t, &vitals{}).handler, nil)
		conn, _ := r.listener.dial()
		go func() {
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+strings.Repeat(".", 1<<20)+"\r\n\r\n")
		}()
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("answered %v, %v", answer, err)
		}
		_ = conn.Close()
		r.finish(t)
	})
}

// Two lengths, or a length and chunks, are how requests are smuggled.
func TestAmbiguousLengthsAreRefused(t *testing.T) {
	t.Parallel()
	for _, lengths := range []string{
		"Content-Length: 1\r\nContent-Length: 2\r\n", "Content-Length: 1\r\nTransfer-Encoding: xchunked\r\n", "Transfer-Encoding: chunked, identity\r\n", "Content-Length: +1\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			r := serve(t, withVitals(t, &vitals{}).handler, nil)
			conn, _ := r.listener.dial()
			go func() { _, _ = io.WriteString(conn, "POST /health/live HTTP/1.1\r\nHost: x\r\n"+lengths+"\r\na") }()
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || answer.StatusCode != http.StatusBadRequest && answer.StatusCode != http.StatusNotImplemented {
				t.Errorf("%q: answered %v, %v", lengths, answer, err)
			}
			_ = conn.Close()
			r.finish(t)
		})
	}
}

// TestNothingIsSmuggledBehindChunks sends a length and chunks, and behind their end
// what a proxy that believes the length takes for the body.
func TestNothingIsSmuggledBehindChunks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, withVitals(t, &vitals{}).handler, nil)
		conn, _ := r.listener.dial()
		go func() {
			_, _ = io.WriteString(conn, "GET /health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 54\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
				"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Smuggled: y\r\n\r\n")
		}()
		answers, err := io.ReadAll(conn)
		if n := strings.Count(string(answers), "HTTP/1.1 "); n != 1 || !strings.Contains(string(answers), "Connection: close") {
			t.Errorf("%d answers, %v:\n%s", n, err, answers)
		}
		_ = conn.Close()
		r.finish(t)
	})
}

// Stopping turns readiness off first, then the listener, and lets what is being
// answered finish.
func TestServeStopsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inside, release := make(chan struct{}), make(chan struct{})
		api := withVitals(t, &vitals{}).handler
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				close(inside)
				<-release
				if r.Context().Err() != nil {
					t.Error("the request's context ended with the server's")
				}
			}
			api.ServeHTTP(w, r)
		})
		r := serve(t, handler, func(s *parts.Server) { s.Notice = 3 * time.Second })
		if status, _, _ := r.get(t, "/health/ready"); status != http.StatusOK {
			t.Fatalf("ready answered %d", status)
		}
		answered := make(chan int)
		go func() {
			status, _, _ := r.get(t, "/slow")
			answered <- status
		}()
		<-inside
		r.stop()
		synctest.Wait()
		status, closes, body := r.get(t, "/health/ready")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "stopping") || !closes {
			t.Errorf("while stopping, ready answers %d %s, closing: %v", status, body, closes)
		}
		if status, _, _ := r.get(t, "/health/live"); status != http.StatusOK {
			t.Errorf("while stopping, live answers %d", status)
		}
		<-time.After(4 * time.Second)
		if _, open := r.listener.dial(); open {
			t.Error("after the notice the listener is still open")
		}
		select {
		case err := <-r.ended:
			t.Fatalf("Serve returned %v while a request was being answered", err)
		default:
		}
		close(release)
		if status := <-answered; status != http.StatusNotFound {
			t.Errorf("the request that was under way got %d", status)
		}
		if err := <-r.ended; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
}

// A request that does not end is cut off after the drain.
func TestTheDrainIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inside, release := make(chan struct{}), make(chan struct{})
		r := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(inside)
			<-release
		}), nil)
		conn, _ := r.listener.dial()
		go func() { _, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") }()
		<-inside
		r.stop()
		<-time.After(9 * time.Second)
		select {
		case err := <-r.ended:
			t.Fatalf("Serve returned %v before the drain had ended", err)
		default:
		}
		<-time.After(2 * time.Second)
		if err := <-r.ended; err != nil {
			t.Errorf("Serve = %v", err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is still open")
		}
		close(release)
	})
}

func TestServeReportsABrokenListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, notice := range []time.Duration{0, time.Second} {
			r := serve(t, http.NotFoundHandler(), func(s *parts.Server) { s.Notice = notice })
			if notice > 0 {
				r.stop()
				synctest.Wait()
			}
			_ = r.listener.Close()
			if err := <-r.ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("Serve = %v, want the listener's error", err)
			}
			r.stop()
		}
	})
}

// Starting and stopping leaves nothing behind, whenever the stop comes; goleak
// looks at the end.
func TestServeStartsAndStops(t *testing.T) {
	t.Parallel()
	handler := withVitals(t, &vitals{}).handler
	for range 50 {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- rest.Serve(ctx, parts.Server{Listener: listener, Handler: handler, Log: discard(), Drain: time.Second})
		}()
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			if answer, err := client.Get("http://" + listener.Addr().String() + "/health/live"); err == nil {
				_ = answer.Body.Close()
			}
		}()
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		<-asked
	}
}
