// Package wire is what a worker and its runner processes say to one another.
//
// It owns the frames (one byte of kind, four of length, the payload) and the values in
// them. Both sides are the same program, so there are no versions. It refuses frames
// that are longer than the reader allows: the process at the other end runs a tenant's
// code, and the worker believes nothing that it says but the form.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Kind says what a frame is.
type Kind byte

// The frames. A worker sends Setup once, then Tasks one after the other, and Fetched
// while a task runs; a runner sends Ready once, and for a task any number of Output,
// Progress and Fetch before its End.
const (
	Setup    Kind = 's' // a Program; for WebAssembly the module follows as a frame of its own
	Module   Kind = 'm' // bytes
	Ready    Kind = 'r' // an End: the error says why the program cannot be run
	Run      Kind = 't' // a Task
	Output   Kind = 'o' // one byte of stream, then text
	Progress Kind = 'p' // a Step
	Fetch    Kind = 'f' // a Request
	Fetched  Kind = 'F' // a Response
	Ended    Kind = 'e' // an End
)

// MaxFrame bounds a frame that a worker takes from a runner.
const MaxFrame = 4 << 20

// Program is what a runner runs for as long as it lives.
type Program struct {
	// Script says that it runs JavaScript. Otherwise it runs the module that follows.
	Script bool
	// Compile says that it compiles the module into CacheDir and ends.
	Compile bool
	// CacheDir holds what was compiled before; empty is none.
	CacheDir string
	// Memory bounds the linear memory of a run, in bytes.
	Memory uint64
}

// Task is one run.
type Task struct {
	Source  string          // of a script
	Check   bool            // read the script and do not run it
	Input   json.RawMessage // what the code is told
	Timeout int64           // milliseconds
}

// Step is how far a run is.
type Step struct {
	Percent int
	Message string
}

// Request is an HTTP call that a script asks for.
type Request struct {
	ID      int               `json:"id"`
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    *string           `json:"body"`
}

// Response is its answer. Error is empty where the target answered.
type Response struct {
	ID      int         `json:"id"`
	Error   string      `json:"error,omitempty"`
	URL     string      `json:"url,omitempty"`
	Status  int         `json:"status,omitempty"`
	Headers [][2]string `json:"headers,omitempty"`
	// Body is text, or base64 where Binary says so.
	Body   string `json:"body,omitempty"`
	Binary bool   `json:"binary,omitempty"`
}

// Reason says why a run failed.
type Reason string

// The reasons.
const (
	Thrown   Reason = "thrown"   // the code says so itself
	Syntax   Reason = "syntax"   // the code cannot be read
	Memory   Reason = "memory"   // it wanted more than it may have
	Deadline Reason = "deadline" // its time was up
	Trap     Reason = "trap"     // WebAssembly stopped it
	Exit     Reason = "exit"     // it ended with a code other than 0
)

// Failure is why a run failed.
type Failure struct {
	Reason         Reason
	Message, Stack string
	Line, Column   int // of a syntax error; 0 is unknown
	Code           int // of an exit
}

// End is how a run ended.
type End struct {
	Result  json.RawMessage `json:",omitempty"`
	Failure *Failure        `json:",omitempty"`
	Memory  uint64          // the most linear memory that it had, in bytes
	CPU     int64           // nanoseconds of processor time
}

// Write sends a frame.
func Write(w io.Writer, kind Kind, payload []byte) error {
	frame := make([]byte, 5, 5+len(payload))
	frame[0] = byte(kind)
	binary.BigEndian.PutUint32(frame[1:], uint32(len(payload)))
	_, err := w.Write(append(frame, payload...))
	return err
}

// WriteJSON sends a value as a frame.
func WriteJSON(w io.Writer, kind Kind, value any) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write a frame: %w", err)
	}
	return Write(w, kind, payload)
}

// Read takes a frame of at most limit bytes.
func Read(r io.Reader, limit int) (Kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if int64(size) > int64(limit) {
		return 0, nil, fmt.Errorf("a frame has %d bytes, more than %d", size, limit)
	}
	payload := make([]byte, size)
	_, err := io.ReadFull(r, payload)
	return Kind(head[0]), payload, err
}
