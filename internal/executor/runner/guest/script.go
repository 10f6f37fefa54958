package guest

import (
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
)

var errNoMemory = errors.New("out of memory")

// The bounds of what one script may ask for at once, and of a line of its log.
const (
	maxLine   = 16 << 10
	maxTimers = 1000
)

// script is one run of a script, or its check.
type script struct {
	module api.Module
	ctx    context.Context // of the calls into the machine
	meter  *meter
	hooks  hooks
	parent *parent
	began  clock.Mark
	limit  time.Duration // 0 is none

	end     *wire.End // nil until it has ended
	late    bool      // its time was up
	broken  error     // the machine cannot go on
	fetches int       // under way
	asked   int       // calls so far
	timers  timers
	timerID int
}

// timers are the functions that wait, the next one first.
type timers []timer

type timer struct {
	at time.Duration // since the run began
	id int
}

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }

// Push and Pop are heap.Interface.
func (t *timers) Push(one any) { *t = append(*t, one.(timer)) }

// Pop takes the last one.
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// execute runs a task in a new machine.
func (e *engine) execute(ctx context.Context, p *parent, task wire.Task) wire.End {
	s, err := e.restore(ctx, &script{parent: p, began: clock.Start(), limit: time.Duration(task.Timeout) * time.Millisecond})
	if err != nil {
		return wire.End{Failure: &wire.Failure{Reason: wire.Memory, Message: err.Error()}}
	}
	defer s.close(ctx)
	s.work(task)
	if s.end == nil {
		s.end = &wire.End{Failure: s.failure()}
	}
	s.end.Memory = s.meter.peak
	return *s.end
}

func (s *script) close(ctx context.Context) { _ = s.module.Close(ctx) } // frees its memory

// failure says why a machine cannot go on.
func (s *script) failure() *wire.Failure {
	switch {
	case s.late:
		return &wire.Failure{Reason: wire.Deadline}
	case s.meter.refused:
		return &wire.Failure{Reason: wire.Memory}
	case s.broken != nil:
		message, stack, _ := strings.Cut(s.broken.Error(), "\n")
		return &wire.Failure{Reason: wire.Trap, Message: message, Stack: stack}
	default:
		return &wire.Failure{Reason: wire.Thrown, Message: "the script waits for something that never happens"}
	}
}

// work evaluates the script and serves it until it has ended.
func (s *script) work(task wire.Task) {
	source, size := s.text(task.Source)
	name, _ := s.text(scriptName)
	flags := uint32(asModule)
	if task.Check {
		flags |= compileOnly
	}
	loaded := s.must("qjs_eval", source, size, name, flags)
	if s.failed(loaded, true) {
		return
	}
	if task.Check {
		s.end = &wire.End{}
		return
	}
	if s.failed(s.call(s.hooks.start, loaded, s.value(string(task.Input))), false) {
		return
	}
	for s.end == nil && s.broken == nil {
		if s.must("qjs_is_job_pending") != 0 {
			if int32(s.must("qjs_execute_pending_job")) < 0 {
				s.thrown(false)
			}
			continue
		}
		if !s.wait() {
			return
		}
	}
}

// wait waits for an answer or a timer, and hands it to the script. It answers false if
// there is nothing to wait for.
func (s *script) wait() bool {
	next := s.limit
	if len(s.timers) > 0 && s.timers[0].at < next {
		next = s.timers[0].at
	} else if s.fetches == 0 && len(s.timers) == 0 {
		return false
	}
	due := time.NewTimer(next - s.began.Elapsed())
	defer due.Stop()
	var answers <-chan []byte
	if s.fetches > 0 {
		answers = s.parent.answers
	}
	select {
	case answer, open := <-answers:
		if !open {
			return false
		}
		s.fetches--
		s.failed(s.call(s.hooks.answered, s.value(string(answer))), false)
	case <-due.C:
		if s.interrupted() {
			return false
		}
		one := heap.Pop(&s.timers).(timer)
		s.failed(s.call(s.hooks.fired, s.number(float64(one.id))), false)
	}
	return true
}

// failed ends the run where a value is an exception.
func (s *script) failed(value uint32, reading bool) bool {
	if s.broken != nil || s.must("qjs_is_exception", value) != 0 {
		s.thrown(reading)
		return true
	}
	return false
}

// thrown ends the run with the exception that the machine holds.
func (s *script) thrown(reading bool) {
	if s.late || s.broken != nil {
		s.end = &wire.End{Failure: s.failure()}
		return
	}
	failure := s.exception()
	if s.meter.refused && (failure.Message == "null" || strings.Contains(failure.Message, "out of memory")) {
		failure = &wire.Failure{Reason: wire.Memory}
	}
	if reading && failure.Reason == wire.Thrown && strings.HasPrefix(failure.Message, "SyntaxError") {
		failure.Reason = wire.Syntax
		failure.Line, failure.Column = place(failure.Stack)
	}
	s.end = &wire.End{Failure: failure}
}

// exception takes the exception that the machine holds.
func (s *script) exception() *wire.Failure {
	value := s.must("qjs_get_exception")
	failure := &wire.Failure{Reason: wire.Thrown, Message: string(s.read(value, 4<<10))}
	if s.must("qjs_is_error", value) != 0 {
		failure.Stack = s.property(value, "stack")
	}
	return failure
}

var position = regexp.MustCompile(regexp.QuoteMeta(scriptName) + `:(\d+)(?::(\d+))?`)

// place is the line and column that a stack begins at.
func place(stack string) (line, column int) {
	if found := position.FindStringSubmatch(stack); found != nil {
		line, _ = strconv.Atoi(found[1])
		column, _ = strconv.Atoi(found[2])
	}
	return line, column
}

// interrupted answers whether the machine has to stop.
func (s *script) interrupted() bool {
	s.late = s.late || s.limit > 0 && s.began.Elapsed() >= s.limit
	return s.late
}

// hostFunctions are what the prelude can call. Each answers a value of the machine; 0
// says that it threw one.
var hostFunctions = map[string]func(s *script, args []uint32) uint32{
	"log":        (*script).log,
	"fetchStart": (*script).fetchStart,
	"timerStart": (*script).timerStart,
	"timerStop":  (*script).timerStop,
	"report":     (*script).report,
	"random":     (*script).random,
	"done":       (*script).done,
	"failed":     (*script).hasFailed,
}

func (s *script) undefined() uint32 { return s.must("qjs_dup_value", s.must("qjs_get_undefined")) }

func (s *script) throw(message string) uint32 {
	failure := s.must("qjs_new_error")
	at, _ := s.text("message")
	s.must("qjs_set_prop_string", failure, at, s.value(message))
	s.must("qjs_throw", failure)
	return 0
}

func (s *script) number(value float64) uint32 {
	results, err := s.module.ExportedFunction("qjs_new_number").Call(s.ctx, api.EncodeF64(value))
	if err != nil {
		s.broken = err
		return 0
	}
	return uint32(results[0])
}

func (s *script) float(value uint32) float64 {
	results, err := s.module.ExportedFunction("qjs_get_float64").Call(s.ctx, uint64(value))
	if err != nil {
		s.broken = err
		return 0
	}
	return api.DecodeF64(results[0])
}

// log is (level, text).
func (s *script) log(args []uint32) uint32 {
	line := s.read(args[1], maxLine)
	switch level := string(s.read(args[0], 16)); level {
	case "log", "info":
	default:
		line = append([]byte(level+": "), line...)
	}
	s.parent.output(executor.Log, append(line, '\n'))
	return s.undefined()
}

// fetchStart is (request) and answers the number of the call.
func (s *script) fetchStart(args []uint32) uint32 {
	if s.asked >= MaxFetches {
		return s.throw(fmt.Sprintf("a run may make %d calls", MaxFetches))
	}
	var request wire.Request
	raw := s.read(args[0], maxRequest+1)
	if len(raw) > maxRequest {
		return s.throw(fmt.Sprintf("a call may have %d bytes", maxRequest))
	}
	if err := json.Unmarshal(raw, &request); err != nil {
		return s.throw("the call cannot be read")
	}
	s.asked++
	s.fetches++
	request.ID = s.asked
	s.parent.send(wire.Fetch, request)
	return s.number(float64(s.asked))
}

// timerStart is (milliseconds) and answers the number of the timer.
func (s *script) timerStart(args []uint32) uint32 {
	if len(s.timers) >= maxTimers {
		return s.throw(fmt.Sprintf("a run may have %d timers at once", maxTimers))
	}
	s.timerID++
	wait := min(max(s.float(args[0]), 0), 86_400_000)
	heap.Push(&s.timers, timer{at: s.began.Elapsed() + time.Duration(wait*float64(time.Millisecond)), id: s.timerID})
	return s.number(float64(s.timerID))
}

// timerStop is (number).
func (s *script) timerStop(args []uint32) uint32 {
	id := int(s.float(args[0]))
	for i, one := range s.timers {
		if one.id == id {
			heap.Remove(&s.timers, i)
			break
		}
	}
	return s.undefined()
}

// report is (percent, message).
func (s *script) report(args []uint32) uint32 {
	s.parent.send(wire.Progress, wire.Step{Percent: int(min(max(s.float(args[0]), 0), 100)), Message: string(s.read(args[1], 200))})
	return s.undefined()
}

func (s *script) random([]uint32) uint32 { return s.number(rand.Float64()) }

// done is (result as JSON, or nothing).
func (s *script) done(args []uint32) uint32 {
	result := s.read(args[0], executor.MaxResult+1)
	if s.broken != nil {
		return 0
	}
	s.end = &wire.End{Result: result}
	if len(result) > executor.MaxResult {
		s.end.Result = executor.TooLarge()
	}
	if len(result) == 0 {
		s.end.Result = nil
	}
	return s.undefined()
}

// hasFailed is (name, message, stack).
func (s *script) hasFailed(args []uint32) uint32 {
	name, message, stack := string(s.read(args[0], 100)), string(s.read(args[1], 4<<10)), string(s.read(args[2], 16<<10))
	if s.meter.refused && (message == "null" || strings.Contains(message, "out of memory")) {
		s.end = &wire.End{Failure: &wire.Failure{Reason: wire.Memory}}
		return s.undefined()
	}
	if name != "" {
		message = strings.TrimSuffix(name+": "+message, ": ")
	}
	s.end = &wire.End{Failure: &wire.Failure{Reason: wire.Thrown, Message: message, Stack: stack}}
	return s.undefined()
}
