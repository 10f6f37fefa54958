package queue

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// quietFor is how long a line is not repeated.
const quietFor = 10 * time.Second

// sparse lets a line through once in a while. An outage of Redis makes asynq
// say the same thing many times a second, in every worker; one line in ten
// seconds, with the count of those left out, says as much.
type sparse struct {
	mu   sync.Mutex
	seen map[string]*lastSeen
}

type lastSeen struct {
	at      clock.Mark
	leftOut int
}

func newSparse() *sparse { return &sparse{seen: make(map[string]*lastSeen)} }

// allow says whether the line may be written, and how many like it were left
// out since the last one. Callers have a small, fixed set of keys.
func (s *sparse) allow(key string) (leftOut int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.seen[key]
	if last == nil {
		s.seen[key] = &lastSeen{at: clock.Start()}
		return 0, true
	}
	if last.at.Elapsed() < quietFor {
		last.leftOut++
		return 0, false
	}
	leftOut, last.leftOut, last.at = last.leftOut, 0, clock.Start()
	return leftOut, true
}

// asynqLog is what asynq logs to. Its lines are at most warnings: whatever
// asynq fails at, no execution is lost by it.
type asynqLog struct {
	log   *slog.Logger
	quiet *sparse
}

// Debug drops the line; asynq is told not to make it.
func (l asynqLog) Debug(...any) {}

// Info drops the line; asynq is told not to make it.
func (l asynqLog) Info(...any) {}

// Warn writes the line, unless its like was written just now.
func (l asynqLog) Warn(args ...any) { l.line(args) }

// Error is Warn.
func (l asynqLog) Error(args ...any) { l.line(args) }

// Fatal is Warn: asynq's own logger ends the process here, which is not a
// library's to decide. Version 0.26 never calls it.
func (l asynqLog) Fatal(args ...any) { l.line(args) }

// line tells lines apart by their first 20 bytes, where asynq writes what it
// did and not yet to which task, so that the keys stay few. It cuts the rest,
// where asynq may list every task that it holds.
func (l asynqLog) line(args []any) {
	text := fmt.Sprint(args...)
	if n, ok := l.quiet.allow(text[:min(len(text), 20)]); ok {
		text = strings.ToValidUTF8(text[:min(len(text), 300)], "")
		l.log.WarnContext(context.Background(), "asynq reports", "text", text, "repeated", n)
	}
}
