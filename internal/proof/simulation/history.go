package simulation

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/job"
)

// replay lives through a seed again and writes down every step.
func (s setup) replay() string {
	var b strings.Builder
	s.history = &b
	violation, _ := s.run()
	return shorten(b.String() + "violation: " + violation + "\n")
}

// shorten leaves of each id its beginning and its end: the ids of executions
// begin with their time.
func shorten(text string) string {
	return regexp.MustCompile(`([0-9a-f]{8})-[0-9a-f-]{19}[0-9a-f]{4}([0-9a-f]{4})`).ReplaceAllString(text, "$1~$2")
}

// shown is an operation or an answer for people: only the fields that say
// something.
type shown struct{ of any }

func (s shown) String() string {
	v := reflect.ValueOf(s.of)
	name := strings.TrimPrefix(v.Type().Name(), "answer")
	return name + fields(v)
}

func fields(v reflect.Value) string {
	var parts []string
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			parts = append(parts, v.Type().Field(i).Name+": "+text(f))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func text(v reflect.Value) string {
	if !v.CanInterface() {
		return inside(v)
	}
	switch one := v.Interface().(type) {
	case time.Time:
		return fmt.Sprintf("%.3f", one.Sub(epoch).Seconds())
	case uuid.UUID, time.Duration:
		return fmt.Sprint(one)
	case job.Spec:
		return fmt.Sprintf("%v every %v, at most %d at once, %d retries, %d runs in all, %d s each, misfire %+v", one.Overlap, time.Duration(one.Interval),
			one.MaxConcurrent, one.Retry.MaxRetries, one.MaxExecutions, one.Timeout, one.Misfire)
	}
	switch v.Kind() {
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = text(v.Index(i))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case reflect.Struct:
		return fields(v)
	default:
		return fmt.Sprint(v.Interface())
	}
}

// inside shows the two fields that are no part of a message in PostgreSQL: the
// jobs that are due, and the plan that is made of them.
func inside(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Slice:
		return fmt.Sprintf("%d jobs", v.Len())
	case v.Kind() == reflect.Pointer:
		return fmt.Sprintf("%d runs, %d that do not run", v.Elem().FieldByName("runs").Len(), v.Elem().FieldByName("unruns").Len())
	default:
		return v.Kind().String()
	}
}
