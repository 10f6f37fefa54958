package ratelimit

import "time"

const (
	// aheadOf is the part of a window that a process takes out of a shared bucket ahead, at
	// most: one call to Redis then serves many requests. Asking for each cost a list a tenth of
	// all its processors' time. A bucket of 1,000 requests a second gives 20 ahead at most, and
	// one of fewer than 50 gives none.
	aheadOf = 20 * time.Millisecond
	// aheadKept is how long a process may give out what it took ahead; then it is lost. What
	// flows into the bucket meanwhile can be given out beside it: processes together may give
	// so much more than the limit in one burst.
	aheadKept = 2 * aheadOf
)

// ahead is what this process took out of the shared bucket before requests asked for it. The
// shared bucket counts it as given.
type ahead struct {
	paid  time.Duration // how much of it is left
	until time.Duration // when it is lost

	// A process takes no more ahead than came in it lately: where many processes each take a
	// little, and a burst then reaches one of them, it lacks no more than the others used.
	began        time.Duration // when a period of aheadOf began
	came, before time.Duration // the steps of the requests of this period, and of the one before

	asking bool // a request is asking Redis for more
}

// left is what may still be given out.
func (a *ahead) left(now time.Duration) time.Duration {
	if now >= a.until {
		return 0
	}
	return a.paid
}

// idle says that nothing is left, and that no request came lately.
func (a *ahead) idle(now time.Duration) bool {
	return a.left(now) == 0 && now-a.began >= 2*aheadOf
}

// count counts a request among those that came lately.
func (a *ahead) count(step, now time.Duration) {
	if passed := now - a.began; passed >= aheadOf {
		a.before = a.came
		if passed >= 2*aheadOf {
			a.before = 0
		}
		a.began, a.came = now, 0
	}
	a.came += step
}

// more is how much a request may ask for beyond itself: zero where another one asks already.
func (a *ahead) more(rate Rate) time.Duration {
	if a.asking {
		return 0
	}
	return min(max(a.came, a.before), aheadOf).Truncate(rate.distance())
}

// order is what a request asks of the shared bucket.
type order struct {
	held time.Duration // what it has of this process already
	step time.Duration // what it lacks
	more time.Duration // what this process wants ahead
}

// spend gives a request what this process has ahead. Where that is not all of its step, the
// request has to order the rest.
func (b *Buckets) spend(bucket string, rate Rate) (v Verdict, o order) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o.step = rate.step()
	now, k := b.since.Elapsed(), b.kind(bucket)
	k.find(bucket, now)
	found, ok := k.own[bucket]
	if !ok { // spare buckets are of several names
		return v, o
	}
	a := &found.ahead
	more := a.more(rate) // by what came before this request
	a.count(o.step, now)
	o.held = min(a.left(now), o.step)
	a.paid, o.step = a.left(now)-o.held, o.step-o.held
	if o.step == 0 {
		return verdict(rate, max(0, found.full-now-a.paid), true), order{}
	}
	o.more, a.asking = more, a.asking || more > 0
	return v, o
}

// keep takes what came ahead, and takes back what a request had that was not given the rest.
func (b *Buckets) keep(bucket string, o order, came answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, ok := b.kind(bucket).own[bucket]
	if !ok {
		return
	}
	now, a := b.since.Elapsed(), &found.ahead
	if o.more > 0 {
		a.asking = false
	}
	if !came.ok && now < a.until {
		a.paid += o.held
	}
	if came.ahead > 0 {
		a.paid, a.until = a.left(now)+came.ahead, now+aheadKept
	}
}
