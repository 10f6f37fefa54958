package ratelimit

import "time"

const (
	// aheadOf is the part of a window that a process takes of a shared bucket at once,
	// where requests come closer together than that: one call to Redis then serves many
	// requests. Asking for each cost a list a tenth of all its processors' time. A bucket
	// of 1,000 requests a second gives 20 at once, and one of fewer than 50 gives none.
	aheadOf = 20 * time.Millisecond
	// aheadKept is how long a process may give out what it took ahead; then it is lost.
	// The bucket refills faster than that, so a tenant never misses it.
	aheadKept = 5 * aheadOf
)

// ahead is what this process took out of the shared bucket before requests asked for it.
// The shared bucket counts it as given: processes together give no more than it had.
type ahead struct {
	paid   time.Duration // how much of it is left
	until  time.Duration // when it is lost
	last   time.Duration // when a request came last
	asking bool          // a request is asking Redis for more
}

// left is what may still be given out.
func (a *ahead) left(now time.Duration) time.Duration {
	if now >= a.until {
		return 0
	}
	return a.paid
}

// idle says that nothing is left, and that no request came lately.
func (a *ahead) idle(now time.Duration) bool { return a.left(now) == 0 && now-a.last >= aheadOf }

// wanted is how much a request asks for beyond its own step; zero where it asks for none.
func (a *ahead) wanted(rate Rate, now time.Duration) time.Duration {
	busy := a.last > 0 && now-a.last < aheadOf
	a.last = now
	most := aheadOf.Truncate(rate.distance())
	if !busy || a.asking || most == 0 {
		return 0
	}
	a.asking = true
	return most
}

// spend takes a request out of what this process has ahead, and says whether it was there.
// Where it was not, the request is to ask the shared bucket, and for so much ahead.
func (b *Buckets) spend(bucket string, rate Rate) (v Verdict, more time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.since.Elapsed()
	found, ok := b.kind(bucket).own[bucket]
	if !ok {
		return v, 0
	}
	left := found.ahead.left(now)
	if left < rate.step() {
		return v, found.ahead.wanted(rate, now)
	}
	found.ahead.paid, found.ahead.last = left-rate.step(), now
	return verdict(rate, max(0, found.full-now-found.ahead.paid), true), 0
}

// answered ends a request's call for more.
func (b *Buckets) answered(bucket string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found, ok := b.kind(bucket).own[bucket]; ok {
		found.ahead.asking = false
	}
}
