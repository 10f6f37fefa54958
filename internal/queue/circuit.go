package queue

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// When the circuit opens, and when it is tried again. A failure that took long
// opens it at once, since the next would take as long; quick ones (a refused
// or a closed connection) may be the last of a restart, so three in a row do.
const (
	quickFailures = 3
	slowFailure   = dialLimit / 2
	probeEvery    = 500 * time.Millisecond
)

// circuit lets callers fail at once while Redis is away. It is open or closed;
// while it is open one probe at a time runs in the background, started by a
// caller and at most every half second, so that no caller ever waits to find
// out that Redis is still away.
type circuit struct {
	probe func(context.Context) error
	log   *slog.Logger
	quiet *sparse

	mu       sync.Mutex
	failures int
	open     bool
	probing  bool
	opened   clock.Mark // when it opened
	tried    clock.Mark // when it opened or was last probed
	closed   bool       // no probes any more
	probes   sync.WaitGroup
}

// allow says whether to try. When it says no it may start a probe.
func (c *circuit) allow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return true
	}
	if !c.probing && !c.closed && c.tried.Elapsed() >= probeEvery {
		c.probing = true
		c.probes.Go(c.try)
	}
	return false
}

// isOpen says whether Redis counts as away.
func (c *circuit) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// record takes the outcome of one call that allow let through.
func (c *circuit) record(ctx context.Context, err error, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.failures = 0
		return
	}
	c.failures++
	if c.open || c.failures < quickFailures && took < slowFailure {
		return
	}
	c.open = true
	c.opened, c.tried = clock.Start(), clock.Start()
	if n, ok := c.quiet.allow("suspended"); ok {
		c.log.WarnContext(ctx, "redis does not answer, hints are not sent", "error", err, "repeated", n)
	}
}

// try probes once and closes the circuit when Redis answers.
func (c *circuit) try() {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	err := c.probe(ctx)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
	c.tried = clock.Start()
	if err != nil {
		return
	}
	c.open, c.failures = false, 0
	if n, ok := c.quiet.allow("resumed"); ok {
		c.log.InfoContext(ctx, "redis answers again, hints are sent", "away", c.opened.Elapsed(), "repeated", n)
	}
}

// shut waits for the probe that may run and allows no more.
func (c *circuit) shut() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.probes.Wait()
}
