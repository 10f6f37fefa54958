package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/output"
)

const (
	// followTick is how often a stream looks whether the process stops; beatTicks of them are
	// the distance between two heartbeats, and believeTicks that between two looks at whether
	// the caller is still believed.
	followTick   = time.Second
	beatTicks    = 15
	believeTicks = 10
	// followWrite is how long a client may take to read what is sent.
	followWrite = 10 * time.Second
	// followAgain is how soon a client connects again after the stream broke off.
	followAgain = 2 * time.Second
	eventStream = "text/event-stream"
)

// follows reports whether a request asks for a stream.
func (c *call) follows() bool {
	return c.operation.ID == "listExecutionLogs" && c.url.Query().Get("follow") == "true"
}

// follow serves streams of server-sent events; every other request goes on.
func (s *server) follow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		if !c.follows() {
			next.ServeHTTP(w, r)
			return
		}
		id, err := uuid.Parse(chi.URLParam(r, "id"))
		if err == nil {
			_, err = s.Executions.Get(r.Context(), c.who.Actor, id)
		}
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		query := r.URL.Query()
		at := positionOf(query.Get("cursor"))
		if last := positionOf(r.Header.Get("Last-Event-ID")); at.Before(last) {
			at = last
		}
		follower, err := s.Hub.Follow(c.who.Actor, id, at)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		defer follower.Close()
		f := &stream{server: s, call: c, header: r.Header, follower: follower, id: id, at: at, w: w, out: http.NewResponseController(w)}
		if attempt := query.Get("attempt"); attempt != "" {
			f.attempt = positionOf(attempt).Attempt
		}
		for _, name := range query["stream"] {
			f.streams = append(f.streams, executor.Stream(name))
		}
		f.run(context.WithoutCancel(r.Context())) // the request's own deadline is for answers that end
	})
}

// stream is a client that follows the output of an execution.
type stream struct {
	server   *server
	call     *call
	header   http.Header
	follower *output.Follower
	id       uuid.UUID
	attempt  int
	streams  []executor.Stream
	at       output.Position
	w        http.ResponseWriter
	out      *http.ResponseController
}

// run sends events until the execution has finished, the client is gone, its token is no
// longer good, or the process stops.
func (f *stream) run(ctx context.Context) {
	f.w.Header().Set("Content-Type", eventStream)
	f.w.Header().Set("X-Accel-Buffering", "no") // a proxy in front passes lines on as they come
	_ = f.out.SetReadDeadline(time.Time{})      // that the client hangs up ends the stream
	if !f.send(fmt.Appendf(nil, "retry: %d\n\n", followAgain.Milliseconds())) {
		return
	}
	ticker := time.NewTicker(followTick)
	defer ticker.Stop()
	for ticks := 1; ; {
		lines, to, ended, changed, err := f.next(ctx)
		switch {
		case err != nil:
			f.server.Log.WarnContext(ctx, "a stream of output ends", "error", err)
			return
		case len(lines) > 0:
			if f.at = to; !f.send(f.events(lines)) {
				return
			}
			continue
		case ended:
			f.end(ctx)
			return
		}
		select {
		case <-changed:
		case <-f.call.gone:
			return
		case <-ticker.C:
			if !f.tick(ctx, ticks) {
				return
			}
			ticks++
		}
	}
}

func (f *stream) next(ctx context.Context) (lines []output.Line, to output.Position, ended bool, changed <-chan struct{}, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return f.follower.Next(ctx, f.at)
}

// tick reports whether the stream goes on.
func (f *stream) tick(ctx context.Context, ticks int) bool {
	if draining(ctx) {
		return false
	}
	if ticks%believeTicks == 0 {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if _, err := f.server.Authenticate(ctx, f.header); err != nil {
			f.send(event("", "expired", map[string]string{"message": "the token is no longer good: connect again with another"}))
			return false
		}
	}
	return ticks%beatTicks != 0 || f.send([]byte(": beat\n\n"))
}

// events are the events of lines, without those that the client does not want.
func (f *stream) events(lines []output.Line) []byte {
	var out bytes.Buffer
	for _, l := range lines {
		if (f.attempt == 0 || l.Attempt == f.attempt) && (len(f.streams) == 0 || l.Dropped != nil || slices.Contains(f.streams, l.Stream)) {
			out.Write(event(placeOfLine(l.Position()), "line", viewLine(l)))
		}
	}
	return out.Bytes()
}

// end says how the execution ended.
func (f *stream) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := f.server.Executions.Get(ctx, f.call.who.Actor, f.id)
	if err != nil {
		f.server.Log.WarnContext(ctx, "a stream of output ends", "error", err)
		return // the client connects again
	}
	f.send(event("", "end", map[string]any{"status": api.ExecutionStatus(found.Status)}))
}

// event is an event as it is sent. Its data is JSON, in which no line ends.
func event(id, name string, data any) []byte {
	body, _ := json.Marshal(data) // of texts and numbers: it does not fail
	if id != "" {
		id = "id: " + id + "\n"
	}
	return fmt.Appendf(nil, "%sevent: %s\ndata: %s\n\n", id, name, body)
}

// send reports whether the client took it.
func (f *stream) send(part []byte) bool {
	if len(part) == 0 {
		return true
	}
	_ = f.out.SetWriteDeadline(clock.Now().Add(followWrite))
	if _, err := f.w.Write(part); err != nil {
		return false
	}
	return f.out.Flush() == nil
}
