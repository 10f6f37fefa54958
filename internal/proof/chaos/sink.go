package chaos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// call is one request that a target of ours received. These, and not the
// product's tables, are the truth about what ran.
type call struct {
	tenant         int // for whom the job was made, as its URL says
	execution, job uuid.UUID
	attempt        int
	key            string // Idempotency-Key
	scheduledAt    time.Time
	start, end     time.Time // end is zero while it goes on
	status         int       // answered; 0: none
	aborted        bool      // the caller went away, or the report of a callback was refused
	reported       bool      // it was answered 202, and status is the answer to its report
	outside        bool      // a worker of the tenant's own made it
	again          int       // the answer to the same report again; 0: none was sent
}

// sink is the target of all jobs. The query says how a call goes: ms (how long
// it takes), fail (so many first attempts answer 500), drop (so many first
// attempts get their connection cut instead of an answer), callback (the call is answered
// 202, and how its end is reported).
type sink struct {
	url    string
	unwell string // the same target by another host, for calls that fail on purpose
	server *http.Server
	client *http.Client // of reports
	done   chan struct{}

	mu      sync.Mutex
	calls   []*call
	apis    []string       // addresses of the API processes
	reports sync.WaitGroup // that are to come
}

// outsideHeader marks calls of tenants' own workers.
const outsideHeader = "X-Outside"

func newSink() (*sink, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a loopback listener does not wait
	if err != nil {
		return nil, err
	}
	other, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	s := &sink{url: "http://" + listener.Addr().String(), unwell: "http://" + other.Addr().String(), done: make(chan struct{}), client: &http.Client{Timeout: patience}}
	s.server = &http.Server{Addr: listener.Addr().String(), Handler: s, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(s.done)
		var both sync.WaitGroup
		both.Go(func() { _ = s.server.Serve(listener) }) // they end by close alone
		both.Go(func() { _ = s.server.Serve(other) })
		both.Wait()
	}()
	return s, nil
}

// target is the address for a call that goes as a query says. Calls that fail on purpose
// have a host of their own, as targets have: the circuit breaker of that host holds back
// nobody else.
func (s *sink) target(query string) string {
	for _, failure := range []string{"&fail=", "&drop=", "&callback=" + reportLate} {
		if strings.Contains(query, failure) {
			return s.unwell + "/" + query
		}
	}
	return s.url + "/" + query
}

// port is where it listens.
func (s *sink) port() string { return s.server.Addr[strings.LastIndex(s.server.Addr, ":")+1:] }

// ServeHTTP takes down a call, from its first moment to its last.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{start: clock.Now(), key: r.Header.Get("Idempotency-Key")}
	c.execution, _ = uuid.Parse(r.Header.Get("X-Execution-Id"))
	c.job, _ = uuid.Parse(r.Header.Get("X-Job-Id"))
	c.tenant, _ = strconv.Atoi(r.URL.Query().Get("tenant"))
	c.attempt, _ = strconv.Atoi(r.Header.Get("X-Attempt"))
	// A script may not send this header.
	c.scheduledAt, _ = time.Parse(time.RFC3339Nano, cmp.Or(r.Header.Get("X-Scheduled-At"), r.URL.Query().Get("scheduled")))
	c.outside = r.Header.Get(outsideHeader) != ""
	c.reported = r.URL.Query().Get("callback") != "" && r.Header.Get("X-Callback-Url") != ""
	s.mu.Lock()
	s.calls = append(s.calls, c)
	s.mu.Unlock()

	number := func(name string) int { n, _ := strconv.Atoi(r.URL.Query().Get(name)); return n }
	if c.reported && c.attempt > number("fail") {
		s.reports.Add(1)
		go s.report(c, r.Header.Get("X-Callback-Url"), r.URL.Query().Get("callback"), time.Duration(number("ms"))*time.Millisecond)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	aborted := !sleep(r.Context(), time.Duration(number("ms"))*time.Millisecond)
	status := http.StatusOK
	switch {
	case aborted || c.attempt <= number("drop"):
		status = 0
	case c.attempt <= number("fail"):
		status = http.StatusInternalServerError
	}
	s.mu.Lock()
	c.end, c.status, c.aborted = clock.Now(), status, aborted
	s.mu.Unlock()
	switch status {
	case 0:
		panic(http.ErrAbortHandler)
	case http.StatusInternalServerError:
		fail(w)
	}
}

// fail answers as a target that is broken.
func fail(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = conn.Write([]byte("HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
	_ = conn.Close()
}

// log is what was received so far, in the order of its arrival, once all reports that are
// to come were answered.
func (s *sink) log() []call {
	s.reports.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]call, len(s.calls))
	for i, c := range s.calls {
		out[i] = *c
	}
	return out
}

// running is an execution of the job that calls its target just now; zero: none.
func (s *sink) running(job uuid.UUID) uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.calls) - 1; i >= max(0, len(s.calls)-500); i-- {
		if c := s.calls[i]; c.job == job && c.end.IsZero() {
			return c.execution
		}
	}
	return uuid.Nil
}

func (s *sink) close() {
	s.reports.Wait()
	_ = s.server.Close()
	<-s.done
}

// sleep waits, and reports whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// publicURL is the PUBLIC_URL of every process. The sink reports to any of the API
// processes and ignores the host in the address of a callback.
const publicURL = "http://callbacks.invalid"

// secretsKeys seals the tokens of callbacks.
func secretsKeys() string { return "chaos:" + base64.StdEncoding.EncodeToString([]byte(key[:32])) }

// How a target reports that took a call with 202.
const (
	reportOnce  = "once"
	reportTwice = "twice"
	reportLate  = "late" // of the first attempt, once its wait has ended
)

// silence is the heartbeatTimeout of jobs that complete by callback, in seconds, and
// tooLate how long a late report takes.
const (
	silence = 2
	tooLate = (silence + 4) * time.Second
)

// report takes down the end of a call that was answered 202, as the API answers the
// report of it: 200 decides that the attempt succeeded.
func (s *sink) report(c *call, address, how string, takes time.Duration) {
	defer s.reports.Done()
	if how == reportLate && c.attempt == 1 {
		takes = tooLate
	}
	ctx, cancel := context.WithTimeout(context.Background(), takes+patience)
	defer cancel()
	sleep(ctx, takes)
	s.mu.Lock()
	c.end = clock.Now()
	s.mu.Unlock()
	first := s.post(ctx, address)
	again := 0
	if how == reportTwice {
		again = s.post(ctx, address)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.status, c.again, c.aborted = first, again, first != http.StatusOK
}

// post reports until the answer is final; 0: none was.
func (s *sink) post(ctx context.Context, address string) int {
	token := path.Base(address)
	for n := 0; ; n++ {
		s.mu.Lock()
		apis := s.apis
		s.mu.Unlock()
		code := 0
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, apis[n%len(apis)]+"/callbacks/"+token+"/complete", bytes.NewReader([]byte(`{"result":1}`)))
		if err == nil {
			request.Header.Set("Content-Type", "application/json")
			if answer, err := s.client.Do(request); err == nil {
				_ = answer.Body.Close()
				code = answer.StatusCode
			}
		}
		if final(code) {
			return code
		}
		if !sleep(ctx, 150*time.Millisecond) {
			return 0
		}
	}
}
