package rest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/output"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/rest"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// events is a stream of events as a client reads it.
type events struct {
	t      *testing.T
	answer *http.Response
	lines  *bufio.Scanner
}

// serve serves the API with time-outs that every stream outlives.
func (b *bundle) serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(b.handler)
	server.Config.ReadTimeout, server.Config.WriteTimeout = 200*time.Millisecond, 200*time.Millisecond
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func (b *bundle) follow(t *testing.T, url string, id uuid.UUID, query string, header ...string) *events {
	t.Helper()
	sent, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+base+"/executions/"+id.String()+"/logs?follow=true"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	sent.Header.Set("Authorization", "Bearer "+b.token(t, b.ours, identity.Viewer))
	sent.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(header); i += 2 {
		sent.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(sent)
	for try := 1; err != nil && try < 100; try++ { // a busy machine may send it after the server's time-out
		answer, err = http.DefaultClient.Do(sent)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("answered %d %s", answer.StatusCode, kind)
	}
	return &events{t, answer, bufio.NewScanner(answer.Body)}
}

// next reads so many events: their ids, or their names with their data.
func (e *events) next(n int) (all []string) {
	e.t.Helper()
	var id, name string
	for len(all) < n && e.lines.Scan() {
		field, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			if name == "line" {
				all = append(all, id)
			} else {
				all = append(all, name+" "+value)
			}
		}
	}
	if len(all) < n {
		e.t.Fatalf("the stream ended after %v: %v", all, e.lines.Err())
	}
	return all
}

// polling polls what is followed until the test ends.
func (b *bundle) polling(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var polls sync.WaitGroup
	polls.Go(func() {
		for ctx.Err() == nil {
			// A transaction that stands still for five seconds is ended. The next poll goes on.
			if _, err := b.deps.Hub.Poll(ctx); err != nil && fault.KindOf(err) != fault.Unavailable && ctx.Err() == nil {
				t.Error(err)
			}
			clock.Sleep(ctx, 50*time.Millisecond)
		}
	})
	t.Cleanup(func() { stop(); polls.Wait() })
}

func idsOfLines(attempt, from, to int) (all []string) {
	for n := from; n <= to; n++ {
		all = append(all, fmt.Sprintf("%d.%d", attempt, n))
	}
	return all
}

// A stream has each line once and in order, those from before and those that come, goes on
// where another broke off, outlives the server's time-outs and ends with the execution.
func TestOutputIsFollowed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.makeExecution(t, b.ours, b.makeJob(t, b.ours).ID)
	b.says(t, e.ID, 1, 1, 20)
	url := b.serve(t)
	b.polling(t)
	first := b.follow(t, url, e.ID, "")
	got := first.next(20)
	late := b.follow(t, url, e.ID, "&stream=stderr&cursor=1.10", "Last-Event-ID", "1.17")
	for attempt := range 3 {
		b.says(t, e.ID, 2+attempt, 1, 5)
		got = append(got, first.next(5)...)
	}
	<-time.After(500 * time.Millisecond) // longer than the time-outs of the server
	b.says(t, e.ID, 5, 1, 1)
	got = append(got, first.next(1)...)
	want := append(append(append(append(idsOfLines(1, 1, 20), idsOfLines(2, 1, 5)...), idsOfLines(3, 1, 5)...), idsOfLines(4, 1, 5)...), "5.1")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the stream differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"1.18", "1.20", "2.2", "2.4", "3.2", "3.4", "4.2", "4.4"}, late.next(8)); diff != "" {
		t.Errorf("the later stream differs (-want +got):\n%s", diff)
	}
	if _, _, err := b.executions.Cancel(t.Context(), b.ours, e.ID, ""); err != nil {
		t.Fatal(err)
	}
	for _, stream := range []*events{first, late, b.follow(t, url, e.ID, "&cursor=5.1")} {
		if got := stream.next(1)[0]; got != `end {"status":"cancelled"}` {
			t.Errorf("the stream ended with %s", got)
		}
		stream.lines.Scan() // the empty line that ends the event
		if stream.lines.Scan() {
			t.Errorf("after its end came %q", stream.lines.Text())
		}
	}
}

// A stream ends when the caller is no longer believed.
func TestAStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	var expired atomic.Bool
	b := setup(t, func(d *parts.Deps) {
		believes := d.Authenticate
		d.Authenticate = func(ctx context.Context, h http.Header) (identity.Principal, error) {
			if expired.Load() {
				return identity.Principal{}, fault.New(fault.Unauthenticated, fault.CodeUnauthorized, "expired")
			}
			return believes(ctx, h)
		}
	})
	e := b.makeExecution(t, b.ours, b.makeJob(t, b.ours).ID)
	stream := b.follow(t, b.serve(t), e.ID, "")
	expired.Store(true)
	if got := stream.next(1)[0]; !strings.HasPrefix(got, "expired ") {
		t.Errorf("got %s", got)
	}
}

// A server that stops does not wait for streams.
func TestAStreamEndsWithItsServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.makeExecution(t, b.ours, b.makeJob(t, b.ours).ID)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := rest.Serve(ctx, parts.Server{Listener: listener, Handler: b.handler, Log: b.deps.Log, Drain: 2 * time.Minute}); err != nil {
			t.Error(err)
		}
	})
	stream := b.follow(t, "http://"+listener.Addr().String(), e.ID, "")
	began := clock.Start()
	stop()
	for stream.lines.Scan() {
	}
	if err := stream.lines.Err(); err != nil {
		t.Errorf("the stream was cut off: %v", err)
	}
	serving.Wait()
	if took := began.Elapsed(); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

// A tenant has as many streams as it may, and leaves them to others.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.makeExecution(t, b.ours, b.makeJob(t, b.ours).ID)
	theirs := b.makeExecution(t, b.theirs, b.makeJob(t, b.theirs).ID)
	for range 200 {
		if _, err := b.deps.Hub.Follow(b.ours, e.ID, output.Position{}); err != nil {
			t.Fatal(err)
		}
	}
	r := request{method: "GET", path: base + "/executions/" + e.ID.String() + "/logs?follow=true", token: b.token(t, b.ours, identity.Viewer)}
	met(t, b.do(t, r), http.StatusTooManyRequests, "RATE_LIMITED", "logFollowersAtOnce", 200)
	f, err := b.deps.Hub.Follow(b.theirs, theirs.ID, output.Position{})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	refused(t, b.do(t, request{method: "GET", path: base + "/executions/" + theirs.ID.String() + "/logs?follow=true", token: r.token}), http.StatusNotFound, "EXECUTION_NOT_FOUND")
	r.header = map[string]string{"Accept": "text/html"}
	refused(t, b.do(t, r), http.StatusNotAcceptable, "NOT_ACCEPTABLE")
}

// A tenant whose requests hold all its connections does not keep others from the output of
// theirs, and is not asked again at once.
func TestAFullTenantDelaysNobodysOutput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	full := b.makeExecution(t, b.theirs, b.makeJob(t, b.theirs).ID)
	ours := b.makeExecution(t, b.ours, b.makeJob(t, b.ours).ID)
	b.says(t, ours.ID, 1, 1, 3)
	if _, err := b.deps.Hub.Follow(b.theirs, full.ID, output.Position{}); err != nil {
		t.Fatal(err)
	}
	follower, err := b.deps.Hub.Follow(b.ours, ours.ID, output.Position{})
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	var held, ended sync.WaitGroup
	for range 6 {
		held.Add(1)
		ended.Go(func() {
			holds := false
			err := b.db.InTenant(context.WithoutCancel(t.Context()), b.theirs.TenantID, func(*postgres.Tx) error {
				holds = true
				held.Done()
				<-release
				return nil
			})
			if !holds { // else the server may have ended it: it stood for more than five seconds
				t.Error(err)
				held.Done()
			}
		})
	}
	held.Wait()
	mark := clock.Start()
	if _, err := b.deps.Hub.Poll(t.Context()); fault.KindOf(err) != fault.TooMany {
		t.Errorf("the poll of a full tenant ended with %v", err)
	}
	if lines, _, _, _, err := follower.Next(t.Context(), output.Position{}); err != nil || len(lines) != 3 {
		t.Errorf("the other tenant got %d lines, %v", len(lines), err)
	}
	if _, err := b.deps.Hub.Poll(t.Context()); err != nil && mark.Elapsed() < 5*time.Second { // it is asked again after those
		t.Errorf("the full tenant was asked again at once: %v", err)
	}
	close(release)
	ended.Wait()
}

// A thousand followers of a hundred executions: their memory, in this process that has both
// sides of each connection, and how soon they get their first byte and a line.
func TestAThousandFollowers(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand connections")
	}
	t.Parallel()
	b := setup(t)
	url := strings.TrimPrefix(b.serve(t), "http://")
	var mine []execution.Execution
	var paths []string
	for range 5 {
		who := tenant.Actor{TenantID: uuid.New(), Subject: "ada"}
		made := b.makeJob(t, who)
		token := b.token(t, who, identity.Viewer)
		for range 20 {
			e := b.makeExecution(t, who, made.ID)
			mine = append(mine, e)
			paths = append(paths, fmt.Sprintf("GET %s/executions/%s/logs?follow=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", base, e.ID, token))
		}
	}
	used := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc+m.StackInuse) / (1 << 20)
	}
	before, slowest := used(), time.Duration(0)
	var followers []net.Conn
	for i := range 1000 {
		began := clock.Start()
		conn := begin(t, url, paths[i%len(paths)])
		slowest = max(slowest, began.Elapsed())
		followers = append(followers, conn)
	}
	after := used()
	b.polling(t)
	for _, e := range mine {
		_, err := b.engine.Pool().Exec(t.Context(), `INSERT INTO execution_output (execution_id, attempt, last_line, tenant_id, lines, written_at)
			VALUES ($1, 1, 1, $2, '[{"n":1,"at":1,"s":"stdout","t":"hello"}]', now())`, e.ID, e.TenantID)
		if err != nil {
			t.Fatal(err)
		}
	}
	began := clock.Start()
	for _, conn := range followers {
		if err := readUntil(conn, "hello"); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("1,000 followers: %.1f MB beside %.1f MB; the slowest first byte after %v; a line reached all %v after it was stored", after-before, before, slowest, began.Elapsed())
	if after-before > 150 {
		t.Errorf("1,000 followers take %.1f MB", after-before)
	}
}

// begin sends a request until its stream begins: a busy machine may send it after the server's
// time-out.
func begin(t *testing.T, address, request string) net.Conn {
	t.Helper()
	for try := 1; ; try++ {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err = io.WriteString(conn, request); err == nil {
			err = readUntil(conn, "retry: 2000")
		}
		if err == nil {
			return conn
		}
		if try == 100 {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
}

func readUntil(conn net.Conn, text string) error {
	var got []byte
	part := make([]byte, 4096)
	for !strings.Contains(string(got), text) {
		n, err := conn.Read(part)
		if got = append(got, part[:n]...); err != nil && !errors.Is(err, io.EOF) || n == 0 {
			return fmt.Errorf("read %q: %w", got, err)
		}
		if strings.HasPrefix(string(got), "HTTP/1.1 4") {
			return fmt.Errorf("refused: %s", got)
		}
	}
	return nil
}
