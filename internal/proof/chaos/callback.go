package chaos

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"path"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// publicURL is the PUBLIC_URL of every process. The sink reports to any of the API
// processes, whatever host the address of a callback names.
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

// checkReport checks that a report that was accepted decided, and that its repeat was
// answered alike (I8).
func (e *evidence) checkReport(f *findings, r row, c call) {
	if !c.reported || c.status != http.StatusOK {
		return
	}
	decided := r.attempt == c.attempt && (r.status == "completed" || r.status == "cancelled")
	f.check("I8", decided, r.job, r.id, "the report of attempt %d was accepted, and execution %s is %s by attempt %d", c.attempt, r.id, r.status, r.attempt)
	f.check("I8", c.again != http.StatusConflict || r.status == "cancelled", r.job, r.id, "the same report of execution %s was answered 200 and then %d", r.id, c.again)
}
