// Package output is what executions write while they run: their lines of output and the
// message of their progress.
//
// It owns how lines are numbered, bounded, masked and kept in chunks, the one writer of a
// worker that stores them, and how they are read and followed. It refuses to hold up a run:
// beyond its bounds output is dropped and counted, and a run that writes nothing costs no
// round trip.
package output

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor"
)

const (
	// headBytes is how much of an attempt's output is kept from its beginning, and
	// tailBytes how much from its end. Between them lines are dropped and counted. A line
	// counts with lineCost bytes beside its text.
	headBytes = 192 << 10
	tailBytes = 64 << 10
	lineCost  = 64
	// lineBytes bounds a line: a longer one goes on in the next.
	lineBytes = 8 << 10
	// chunkBytes is how much of an attempt stands in one row.
	chunkBytes = 32 << 10
	// messageBytes bounds the message of a progress.
	messageBytes = 200
)

// Line is a line of output.
type Line struct {
	Attempt int
	Number  int // of the attempt, from 1; dropped lines count
	At      time.Time
	// Stream is empty for a line that stands for dropped ones.
	Stream executor.Stream
	Text   string // without its end
	// Continues says that the line was longer than it may be and goes on in the next.
	Continues bool
	// Dropped is how many lines and bytes this one stands for, up to Number; nil: it is a
	// line itself.
	Dropped *Dropped
}

// Dropped is how much of an output was not kept.
type Dropped struct {
	Lines int   `json:"lines"`
	Bytes int64 `json:"bytes"`
}

// Position is a line of an execution; the zero one is before the first.
type Position struct{ Attempt, Line int }

// Before reports whether a position is before another.
func (p Position) Before(o Position) bool {
	return p.Attempt < o.Attempt || p.Attempt == o.Attempt && p.Line < o.Line
}

// Position is where the line stands.
func (l Line) Position() Position { return Position{l.Attempt, l.Number} }

// stored is a line as a chunk holds it.
type stored struct {
	Number    int             `json:"n"`
	At        int64           `json:"at"` // microseconds since 1970
	Stream    executor.Stream `json:"s,omitempty"`
	Text      string          `json:"t,omitempty"`
	Continues bool            `json:"c,omitempty"`
	Dropped   *Dropped        `json:"d,omitempty"`
}

// encode is the JSON of a chunk.
func encode(lines []Line) string {
	all := make([]stored, len(lines))
	for i, l := range lines {
		all[i] = stored{l.Number, l.At.UnixMicro(), l.Stream, l.Text, l.Continues, l.Dropped}
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(all) // of texts and numbers: it does not fail
	return strings.TrimSuffix(out.String(), "\n")
}

// decode reads a chunk of an attempt.
func decode(attempt int, chunk string) ([]Line, error) {
	var all []stored
	if err := json.Unmarshal([]byte(chunk), &all); err != nil {
		return nil, fmt.Errorf("read a chunk of output: %w", err)
	}
	lines := make([]Line, len(all))
	for i, s := range all {
		lines[i] = Line{attempt, s.Number, time.UnixMicro(s.At).UTC(), s.Stream, s.Text, s.Continues, s.Dropped}
	}
	return lines, nil
}

// storable is a text that PostgreSQL and JSON take: valid UTF-8 without NUL.
func storable(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	}
	return text
}

// cutText is a text of at most so many bytes that ends with a whole character.
func cutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && text[most]&0xC0 == 0x80 {
		most--
	}
	return text[:most]
}
