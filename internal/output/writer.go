package output

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/divide"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

const (
	// Patience is how long the outcome of a run waits until its output is written. The rest
	// is lost then: the database takes no line of an attempt that has ended.
	Patience = 2 * time.Second
	// every is the distance between two writes of what runs say, and progressEvery that
	// between two writes of the progress of one run.
	every         = 500 * time.Millisecond
	progressEvery = time.Second
	// memoryBytes bounds the output that one worker holds: what waits to be written, and
	// the last lines of runs that write more than is kept. Beyond it output is dropped.
	memoryBytes = 32 << 20
	// batchChunks and batchBytes bound one statement.
	batchChunks = 256
	batchBytes  = 1 << 20
	// hurryBytes is how much may wait before it is written without waiting for more.
	hurryBytes = 4 << 20
	// askAgain is the pause before a statement that was not answered is repeated.
	askAgain = 250 * time.Millisecond
)

// Writer stores the output of all runs of one worker. Its methods may be called
// concurrently; Run is called once.
type Writer struct {
	store   store
	metrics *telemetry.Metrics
	log     *slog.Logger
	memory  atomic.Int64

	mu    sync.Mutex
	ready []*Run // that have something to write
	woken chan struct{}
	rush  chan struct{}
}

// NewWriter makes the writer of a worker. The database acts as postgres.Engine.
func NewWriter(db *postgres.DB, metrics *telemetry.Metrics, log *slog.Logger) *Writer {
	return &Writer{store: store{db}, metrics: metrics, log: log, woken: make(chan struct{}, 1), rush: make(chan struct{}, 1)}
}

// Begin makes the run of an attempt.
func (w *Writer) Begin(a Attempt) *Run { return &Run{writer: w, attempt: a} }

// Run writes until ctx is cancelled, and then what waits.
func (w *Writer) Run(ctx context.Context) {
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-w.woken:
		case <-ctx.Done():
		}
		timer.Reset(every)
		select {
		case <-timer.C:
		case <-w.rush:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), Patience)
			w.pass(last)
			cancel()
			return
		}
		w.pass(ctx)
	}
}

// chunk is a row of output.
type chunk struct {
	attempt Attempt
	last    int
	lines   string
}

// report is a progress to be stored.
type report struct {
	attempt Attempt
	percent int
	message string
}

// pass writes once what every run has.
func (w *Writer) pass(ctx context.Context) {
	w.mu.Lock()
	runs := w.ready
	w.ready = nil
	w.mu.Unlock()
	var chunks []chunk
	var reports []report
	for _, r := range runs {
		some, moved := r.take()
		chunks = append(chunks, some...)
		if moved != nil {
			reports = append(reports, *moved)
		}
	}
	for _, batch := range batches(chunks) {
		w.write(ctx, "output", func() error { return w.insert(ctx, batch) })
	}
	if len(reports) > 0 {
		w.write(ctx, "progress", func() error { return w.store.progress(ctx, reports) })
	}
	for _, r := range runs {
		r.written()
	}
}

// insert writes a batch; a chunk that the database refuses is lost alone.
func (w *Writer) insert(ctx context.Context, batch []chunk) error {
	return divide.Items[chunk]{
		Send: func(some []chunk) error { return w.store.insert(ctx, some) },
		Alone: func(c chunk, err error) error {
			w.log.ErrorContext(ctx, "output is lost: the database refuses it", "execution_id", c.attempt.ID, "attempt", c.attempt.Number, "error", err)
			return nil
		},
	}.All(batch)
}

// write tries until the database answers or ctx ends. While it waits, runs go on and their
// output is bounded by memoryBytes.
func (w *Writer) write(ctx context.Context, what string, send func() error) {
	for {
		err := send()
		if err == nil {
			return
		}
		w.log.WarnContext(ctx, "not written, trying again", "of", what, "error", err)
		if ctx.Err() != nil || postgres.Refused(err) {
			return
		}
		clock.Sleep(ctx, askAgain)
	}
}

// batches cuts chunks into pieces that one statement writes.
func batches(chunks []chunk) (all [][]chunk) {
	begin, size := 0, 0
	for i, c := range chunks {
		if i > begin && (i-begin >= batchChunks || size+len(c.lines) > batchBytes) {
			all = append(all, chunks[begin:i])
			begin, size = i, 0
		}
		size += len(c.lines)
	}
	if begin < len(chunks) {
		all = append(all, chunks[begin:])
	}
	return all
}

// enqueue has the next pass write a run.
func (w *Writer) enqueue(r *Run) {
	w.mu.Lock()
	w.ready = append(w.ready, r)
	w.mu.Unlock()
	signal(w.woken)
	if w.memory.Load() > hurryBytes {
		w.hurry()
	}
}

// hurry has the next pass begin without waiting for more.
func (w *Writer) hurry() { signal(w.rush) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reserve takes memory for so many bytes, if there is any.
func (w *Writer) reserve(bytes int) bool {
	if !w.fits(bytes) {
		return false
	}
	w.memory.Add(int64(bytes))
	return true
}

func (w *Writer) fits(bytes int) bool { return w.memory.Load()+int64(bytes) <= memoryBytes }

func (w *Writer) release(bytes int) { w.memory.Add(-int64(bytes)) }

func (w *Writer) dropped(lines int) { w.metrics.OutputDropped(lines) }

// take returns what is to be written of a run.
func (r *Run) take() (chunks []chunk, moved *report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queued, r.writing = false, true
	begin, size := 0, 0
	for i, l := range r.pending {
		size += len(l.Text) + lineCost
		if size >= chunkBytes || i == len(r.pending)-1 {
			chunks = append(chunks, chunk{r.attempt, l.Number, encode(r.pending[begin : i+1])})
			begin, size = i+1, 0
		}
	}
	r.pending = nil
	r.writer.release(r.taken - r.held)
	r.taken = r.held
	if r.moved && (r.ended || !r.reported || r.movedAt.Elapsed() >= progressEvery) {
		moved = &report{r.attempt, r.percent, r.message}
		r.moved, r.reported, r.movedAt = false, true, clock.Start()
	}
	return chunks, moved
}

// written notes that what was taken is written, or lost.
func (r *Run) written() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing = false
	if len(r.pending) > 0 || r.moved {
		r.queue()
		return
	}
	if r.ended && r.after != nil {
		go r.after() // it may wait for the outcome to be taken
		r.after = nil
	}
}
