package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor"
)

const (
	// maxTail is how much of the end of a stream the result keeps, in bytes; maxShown is
	// how many bytes of JSON it may become: control characters take six each.
	maxTail  = 64 << 10
	maxShown = 110 << 10
)

// output takes what a program writes: on to the reporter as it comes, and the end of it
// into the result.
type output struct {
	stdout, stderr   *stream
	outEnd, errEnd   *os.File // what the program writes to; closed here once it has them
	readOut, readErr *os.File
	done             sync.WaitGroup
}

func newOutput(report executor.Reporter) (*output, error) {
	o := &output{
		stdout: &stream{name: executor.Stdout, report: report, lines: true},
		stderr: &stream{name: executor.Stderr, report: report},
	}
	var err error
	if o.readOut, o.outEnd, err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("make a pipe for the output: %w", err)
	}
	if o.readErr, o.errEnd, err = os.Pipe(); err != nil {
		_, _ = o.readOut.Close(), o.outEnd.Close()
		return nil, fmt.Errorf("make a pipe for the output: %w", err)
	}
	return o, nil
}

// drop closes everything: no program was started.
func (o *output) drop() {
	for _, file := range []*os.File{o.readOut, o.outEnd, o.readErr, o.errEnd} {
		_ = file.Close()
	}
}

// read begins to read; the program has its own ends.
func (o *output) read() {
	_, _ = o.outEnd.Close(), o.errEnd.Close()
	o.done.Add(2)
	go drain(o.readOut, o.stdout, &o.done)
	go drain(o.readErr, o.stderr, &o.done)
}

// finish waits for what is still in the pipes. The tree is gone, so they end. Where its keeper
// was lost something of it may be left and hold them: then it waits for as long as haste.
func (o *output) finish(lost bool) {
	if lost {
		until := clock.Now().Add(haste)
		_, _ = o.readOut.SetReadDeadline(until), o.readErr.SetReadDeadline(until) // a pipe takes one
	}
	o.done.Wait()
	o.stdout.flush()
}

// result is {exitCode, signal, stdout, stderr, stdoutBytes, stderrBytes}.
func (o *output) result(end ending) json.RawMessage {
	var shown struct {
		ExitCode    *int   `json:"exitCode"`
		Signal      string `json:"signal,omitempty"`
		Stdout      string `json:"stdout"`
		Stderr      string `json:"stderr"`
		StdoutBytes int64  `json:"stdoutBytes"`
		StderrBytes int64  `json:"stderrBytes"`
	}
	if end.Signal == "" {
		shown.ExitCode = &end.ExitCode
	}
	shown.Signal = end.Signal
	shown.Stdout, shown.StdoutBytes = o.stdout.text(), o.stdout.total
	shown.Stderr, shown.StderrBytes = o.stderr.text(), o.stderr.total
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(shown) != nil {
		return nil // texts and numbers can always be written
	}
	return text.Bytes()
}

// progressMark begins a line of standard output that says how far the program is:
// "::progress 40 message".
const progressMark = "::progress "

// maxProgress bounds such a line; what goes beyond it is dropped.
const maxProgress = 300

// stream is one of the two. Write is called by one goroutine, the rest after it.
type stream struct {
	name   executor.Stream
	report executor.Reporter
	lines  bool // progress is read from it

	tail  []byte // at most twice maxTail
	total int64
	held  []byte // the beginning of a line that may be one of progress
	after bool   // not at the beginning of a line
}

// Write takes what was read. It never fails.
func (s *stream) Write(chunk []byte) (int, error) {
	n := len(chunk)
	if !s.lines {
		s.keep(chunk)
		return n, nil
	}
	for len(chunk) > 0 {
		line, rest, whole := bytes.Cut(chunk, []byte("\n"))
		if whole {
			line = chunk[:len(line)+1]
		}
		s.piece(line, whole)
		chunk = rest
	}
	return n, nil
}

// piece takes a part of one line; whole says that the line ends with it.
func (s *stream) piece(part []byte, whole bool) {
	if s.after {
		s.keep(part)
		s.after = !whole
		return
	}
	s.held = append(s.held, part...)
	begin := min(len(s.held), len(progressMark))
	switch {
	case string(s.held[:begin]) != progressMark[:begin]:
		s.keep(s.held)
		s.held, s.after = s.held[:0], !whole
	case whole:
		s.flush()
	case len(s.held) > maxProgress:
		s.held = s.held[:maxProgress]
	}
}

// flush reads the line that is held. One that is no progress after all is output.
func (s *stream) flush() {
	line := string(s.held)
	if line == "" {
		return
	}
	rest, found := strings.CutPrefix(strings.TrimRight(line, "\r\n"), progressMark)
	number, message, _ := strings.Cut(rest, " ")
	percent, err := strconv.Atoi(number)
	if found && err == nil {
		s.report.Progress(percent, message)
	} else {
		s.keep(s.held)
	}
	s.held = s.held[:0]
}

func (s *stream) keep(text []byte) {
	if len(text) == 0 {
		return
	}
	s.report.Output(s.name, text)
	s.total += int64(len(text))
	if s.tail = append(s.tail, text...); len(s.tail) > 2*maxTail {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-maxTail:]...)
	}
}

// text is the end of the stream as it can be stored: valid UTF-8 without NUL, and not
// too much of it.
func (s *stream) text() string {
	tail := s.tail[max(0, len(s.tail)-maxTail):]
	for {
		text := strings.ReplaceAll(strings.ToValidUTF8(string(tail), "\uFFFD"), "\x00", "\uFFFD")
		if written, err := json.Marshal(text); err != nil || len(written) <= maxShown {
			return text
		}
		tail = tail[len(tail)/4:]
	}
}

// lastLine is the last line that is not empty, shortened.
func (s *stream) lastLine() string {
	text := strings.TrimSpace(s.text())
	last := text[strings.LastIndexByte(text, '\n')+1:]
	if len(last) > 300 {
		last = strings.ToValidUTF8(last[:300], "") + "…"
	}
	return last
}
