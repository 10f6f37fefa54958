package job

import (
	"fmt"
	"math"
	"time"
)

// Limit is for how many seconds an execution may go on from the start of its first
// attempt; 0: for any time.
type Limit int

// Left is what is left of the limit so long after the start.
func (l Limit) Left(elapsed time.Duration) time.Duration {
	if l == 0 {
		return math.MaxInt64
	}
	return time.Duration(l)*time.Second - elapsed
}

// Exceeded reports whether an attempt that failed is the last one because of the limit, and
// then why the execution ends, with the error of the attempt. The next attempt would start
// after the delay; where it is negative, none would follow.
func (l Limit) Exceeded(elapsed, delay time.Duration, errorType, message string) (why string, exceeded bool) {
	left := l.Left(elapsed)
	if delay < 0 && (left > 0 || errorType != "TIMEOUT") || left > max(delay, 0) {
		return "", false
	}
	how := "the executionTimeout of %d s has passed"
	if left > 0 {
		how = "the executionTimeout of %d s leaves no time for another"
	}
	return fmt.Sprintf(how+"; the last attempt: %s: %s", l, errorType, message), true
}
