package output

import (
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/secret"
)

// Attempt names the attempt that writes. The token is that of its lease: the database
// refuses lines of an attempt that is no longer the execution's.
type Attempt struct {
	ID     uuid.UUID
	Number int
	Token  uuid.UUID
}

// Run takes the output of one attempt. It is an executor.Reporter.
type Run struct {
	writer  *Writer
	attempt Attempt

	mu      sync.Mutex
	mask    secret.Mask
	streams map[executor.Stream]*stream
	ended   bool
	after   func() // is called once everything is written

	number  int    // of the last line
	head    int    // bytes that the beginning takes
	pending []Line // to be written
	tail    []Line // of the end, while it is not known which lines are the last
	held    int    // bytes in tail
	gap     Dropped
	taken   int // bytes of pending and tail that count in the writer's memory

	percent  int
	message  string
	moved    bool       // progress to be written
	movedAt  clock.Mark // when progress was last taken
	reported bool       // progress was taken before
	queued   bool       // the writer knows that there is something to write
	writing  bool       // something of it is being written
}

var _ executor.Reporter = (*Run)(nil)

// stream is one of the streams of a run, up to its last line.
type stream struct {
	mask    *secret.Stream
	partial strings.Builder // the line that has not ended
}

// Hide masks what follows.
func (r *Run) Hide(mask secret.Mask) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mask = mask
}

// Output implements executor.Reporter. A text of Log is a message of its own and ends a
// line, whether it ends with one or not.
func (r *Run) Output(name executor.Stream, text []byte) {
	if len(text) == 0 {
		return
	}
	at := clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	s := r.streams[name]
	if s == nil {
		if r.streams == nil {
			r.streams = map[executor.Stream]*stream{}
		}
		s = &stream{mask: r.mask.Stream()}
		r.streams[name] = s
	}
	whole := name != executor.Log || text[len(text)-1] == '\n'
	for len(text) > 0 { // in pieces, so that no large text is copied whole
		piece := text[:min(len(text), chunkBytes)]
		text = text[len(piece):]
		r.split(name, s, at, s.mask.Write(string(piece)))
	}
	if !whole {
		r.split(name, s, at, s.mask.Write("\n"))
	}
	r.queue()
}

// split takes the lines that end in a text.
func (r *Run) split(name executor.Stream, s *stream, at time.Time, text string) {
	for text != "" {
		line, rest, ended := strings.Cut(text, "\n")
		if room := lineBytes - s.partial.Len(); len(line) > room {
			piece := cutText(line, room)
			if piece == "" && s.partial.Len() == 0 {
				piece = line[:room] // no characters at all
			}
			s.partial.WriteString(piece)
			r.add(Line{At: at, Stream: name, Text: s.partial.String(), Continues: true})
			s.partial.Reset()
			text = text[len(piece):]
			continue
		}
		s.partial.WriteString(line)
		if text = rest; ended {
			r.add(Line{At: at, Stream: name, Text: strings.TrimSuffix(s.partial.String(), "\r")})
			s.partial.Reset()
		}
	}
}

// add keeps a line at the beginning, or as one of the last, or drops it.
func (r *Run) add(l Line) {
	r.number++
	l.Attempt, l.Number, l.Text = r.attempt.Number, r.number, storable(l.Text)
	cost := len(l.Text) + lineCost
	if len(r.tail) == 0 && r.gap.Lines == 0 && r.head+cost <= headBytes && r.writer.reserve(cost) {
		r.head, r.taken = r.head+cost, r.taken+cost
		r.pending = append(r.pending, l)
		return
	}
	for len(r.tail) > 0 && (r.held+cost > tailBytes || !r.writer.fits(cost)) {
		r.dropOldest()
	}
	if !r.writer.reserve(cost) {
		r.gap.Lines, r.gap.Bytes = r.gap.Lines+1, r.gap.Bytes+int64(len(l.Text))
		r.writer.dropped(1)
		return
	}
	r.held, r.taken = r.held+cost, r.taken+cost
	r.tail = append(r.tail, l)
}

func (r *Run) dropOldest() {
	oldest := r.tail[0]
	r.tail[0] = Line{}
	r.tail = r.tail[1:]
	cost := len(oldest.Text) + lineCost
	r.held, r.taken = r.held-cost, r.taken-cost
	r.gap.Lines, r.gap.Bytes = r.gap.Lines+1, r.gap.Bytes+int64(len(oldest.Text))
	r.writer.release(cost)
	r.writer.dropped(1)
}

// Progress implements executor.Reporter.
func (r *Run) Progress(percent int, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.percent, r.message, r.moved = min(max(percent, 0), 100), cutText(storable(r.mask.Text(message)), messageBytes), true
	r.queue()
}

// queue tells the writer that there is something to write.
func (r *Run) queue() {
	if !r.queued && (len(r.pending) > 0 || r.moved) {
		r.queued = true
		r.writer.enqueue(r)
	}
}

// End takes no more output and calls after once everything is written: at once, in this
// goroutine, where nothing waits to be written, and after Patience at the latest.
func (r *Run) End(after func()) {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		after()
		return
	}
	r.finish()
	r.ended = true
	if len(r.pending) == 0 && !r.moved && !r.writing {
		r.mu.Unlock()
		after()
		return
	}
	r.after = sync.OnceFunc(after)
	time.AfterFunc(Patience, r.after)
	r.queue()
	r.mu.Unlock()
	r.writer.hurry()
}

// finish ends all lines and brings the last ones to what is written.
func (r *Run) finish() {
	now := clock.Now()
	for _, name := range []executor.Stream{executor.Stdout, executor.Stderr, executor.Log} {
		s := r.streams[name]
		if s == nil {
			continue
		}
		r.split(name, s, now, s.mask.End())
		if s.partial.Len() > 0 {
			r.add(Line{At: now, Stream: name, Text: s.partial.String()})
		}
	}
	r.streams = nil
	if r.gap.Lines > 0 {
		last := Line{Attempt: r.attempt.Number, Number: r.number, At: now, Dropped: &r.gap}
		if len(r.tail) > 0 {
			last.Number, last.At = r.tail[0].Number-1, r.tail[0].At
		}
		r.pending = append(r.pending, last)
	}
	r.pending, r.tail, r.held = append(r.pending, r.tail...), nil, 0
}
