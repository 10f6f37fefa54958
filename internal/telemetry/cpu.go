package telemetry

import (
	"sync"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// shortest is the shortest time that a share of a processor is taken of: two who ask
// at the same time get the same answer.
const shortest = time.Second

// cpu is what the process took of its processors up to when it was asked last.
type cpu struct {
	mu    sync.Mutex
	at    clock.Mark
	asked bool
	used  time.Duration
	last  float64
}

// percent is the share of one core since it was asked last; at first zero.
func (c *cpu) percent() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.at.Elapsed()
	if c.asked && took < shortest {
		return c.last
	}
	used := processorTime()
	if c.asked {
		c.last = 100 * (used - c.used).Seconds() / took.Seconds()
	}
	c.asked, c.used, c.at = true, used, clock.Start()
	return c.last
}

// processorTime is what the process has taken since its start.
func processorTime() time.Duration {
	var taken syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &taken); err != nil {
		return 0
	}
	return time.Duration(taken.Utime.Nano() + taken.Stime.Nano())
}
