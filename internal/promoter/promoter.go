// Package promoter turns what is due into executions.
//
// It owns bounded passes: Pass claims due jobs, inserts their executions and
// advances them in one transaction, then sends hints; PromoteLocked waits for the
// locks that keep due jobs back; Backfill makes the executions of past ranges that
// somebody asked for. A job that cannot be promoted is parked alone. Any number of
// promoters run side by side without a leader. It refuses to run anything (package worker), to know when scheduled
// times fall (package schedule), and to look after executions once they are made
// (package maintenance).
package promoter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/hint"
	"github.com/scheduler-service/scheduler/internal/job/schedules"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

const (
	// batchSize is how many due jobs one transaction takes, and fewer where the database
	// is slow (see size). Larger ones are hardly faster (measured: 23,500 lifecycles a
	// second at 500, 24,200 at 1,000) and hold their locks longer.
	batchSize = 500
	// passRows is how many rows one transaction writes of executions and of scheduled
	// times that do not run, at least batchSize, and fewer where the database is slow: what
	// a job catches up beyond that stays for the next pass.
	passRows = 5000
	// decideFor is how long one transaction decides, with its jobs locked: the jobs
	// left then stay due for the next pass.
	decideFor = 200 * time.Millisecond
	// maxSleep bounds the sleep until the next scheduled time, because a job
	// created meanwhile may be due earlier. maxCalledSleep does where the
	// API calls when it makes a job that is due sooner: calls may be lost.
	maxSleep       = 200 * time.Millisecond
	maxCalledSleep = 2 * time.Second
	// Where jobs are due at every millisecond, what gathers between two passes
	// shares their round trips: paceJobs of them if that takes from minPace to
	// maxPace. With 500 a second, passes at the latter's distance take 100 of the
	// 250 round trips that those may cost; with 4,000, at the former's, passes of
	// one or two jobs do not fall behind.
	paceJobs = 12
	minPace  = 8 * time.Millisecond
	maxPace  = 20 * time.Millisecond
	// lockedRetry is when to look again for a due job that somebody else held
	// locked.
	lockedRetry = 20 * time.Millisecond
	// maxSkew is how far this process's clock may be from the database's.
	// Beyond it one of them is wrong, and promoting could fire everything at
	// once or nothing at all.
	maxSkew = 30 * time.Second
	// fullScanEvery is how often a pass looks for due jobs without a lower
	// bound, see ClaimDueJobs: how late a job may be whose row another promoter
	// held locked and let go without advancing it, because it died.
	fullScanEvery = time.Second
	// After a scan without the bound the promoter makes no other for fullScanRest times as
	// long as the scan took, and for no longer than fullScanMost. Such a scan reads past the
	// index entries of all jobs that were advanced since the oldest snapshot began, and due
	// jobs wait for it.
	fullScanRest = 5
	fullScanMost = 10 * time.Second
	// pauseAfterError is how long a promoter rests after a pass that failed. What
	// is due waits for it once the database is back.
	pauseAfterError = 500 * time.Millisecond
)

// hints is what a promoter needs of the queue. The database holds every fact,
// so a hint that is not sent costs time and nothing else.
type hints interface {
	Publish(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error
	PublishTogether(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error
	Depth(ctx context.Context) (map[queue.Lane]int, error)
}

// Config is what a promoter is made of.
type Config struct {
	DB      *postgres.DB // acting as postgres.Engine
	Hints   hints
	Metrics *telemetry.Metrics
	Log     *slog.Logger
	// CatchupPerSecond is how many late executions of a tenant this promoter lets
	// start in a second, 1 and more.
	CatchupPerSecond func() int
	// Backlog is how many executions may wait where a tenant has no limits of its
	// own; nil: any number.
	Backlog func() tenant.Backlog
	Spans   partition.Spans // of the partitions that are made
	// Called says whether those who make a job that is due within maxCalledSleep reach
	// Wake; nil: they do not.
	Called func() bool
	// CallWorkers tells workers that something is in the pool without a hint; nil: it is
	// found by their polls alone.
	CallWorkers func(ctx context.Context)
}

// Promoter is one promoter. Its passes are called by one goroutine each.
type Promoter struct {
	c          Config
	store      *store
	hints      *hint.Sender
	schedules  *schedules.Cache // of Pass
	backfilled *schedules.Cache // of Backfill, which another goroutine calls
	pacer      pacer            // of Pass
	since      time.Time        // lower bound of the next scan; zero scans all
	fullScan   clock.Mark
	fullRest   time.Duration          // from one scan without a lower bound to the next
	quiet      quiet                  // of promoteDue
	woken      chan struct{}          // calls for a poll
	backfills  chan struct{}          // calls for a pass over the backfills
	idle       atomic.Bool            // nothing is due, backfills neither: polls ask for both
	state      atomic.Pointer[string] // why it is not ready; nil: it is
	late       *lateStarts
	suspects   suspects
	locked     *locked
	turns      turns
	size       size
	batch      int                                                   // batchSize but in tests
	rows       int                                                   // passRows but in tests
	decideJob  func(*dueJob, *schedule.Schedule, time.Time) dueTimes // dueTimesOf but in tests
	watch      func() (elapsed func() time.Duration)                 // of deciding and of trials; a fake in tests
}

// New makes a promoter.
func New(c Config) *Promoter {
	if c.Backlog == nil {
		c.Backlog = func() tenant.Backlog { return tenant.Backlog{} }
	}
	p := &Promoter{
		c: c, store: &store{db: c.DB, backlog: c.Backlog}, hints: hint.New(hint.Config{DB: c.DB, Queue: c.Hints, Log: c.Log}),
		schedules: schedules.NewCache(), backfilled: schedules.NewCache(), fullScan: clock.Start(), fullRest: fullScanEvery,
		late: &lateStarts{rate: c.CatchupPerSecond}, locked: &locked{called: make(chan struct{}, 1)}, batch: batchSize, rows: passRows, size: wholeSize(), decideJob: dueTimesOf,
		watch: func() func() time.Duration { return clock.Start().Elapsed },
		woken: make(chan struct{}, 1), backfills: make(chan struct{}, 1),
	}
	if p.c.CallWorkers == nil {
		p.c.CallWorkers = func(context.Context) {}
	}
	if p.c.Called == nil {
		p.c.Called = func() bool { return false }
	}
	starting := "the first promotion is not done yet"
	p.state.Store(&starting)
	return p
}

// Report is what a pass did.
type Report struct {
	At       time.Time // the database's clock
	Claimed  int       // due jobs taken
	Promoted int       // executions made
	Missed   int       // scheduled times recorded as missed
	Parked   int       // jobs made inactive, because they cannot be promoted
	Mended   int       // due schedules that were not those of their jobs
	Next     time.Time // when the next job is due; zero while there may be more due now
}

// add takes in what a batch became.
func (r *Report) add(made plan) {
	r.At = made.at
	r.Claimed, r.Promoted, r.Missed = r.Claimed+made.claimed, r.Promoted+len(made.runs), r.Missed+made.missedCount()
}

// Pass promotes one batch of what is due at now; a zero now means the
// database's clock. It sends the hints after the commit; where that fails, the
// executions go to the pool. A batch that fails because of something in it is
// divided by the next passes, beside the batches of the others.
func (p *Promoter) Pass(ctx context.Context, now time.Time) (Report, error) {
	seen := p.seeLanes(ctx)
	report, err := p.tryParts(ctx, now, seen)
	if err != nil {
		return Report{}, err
	}
	d := due{now: now, since: p.lowerBound(), backlogs: !seen.none, batch: p.size.of(p.batch), rows: p.size.of(p.rows), turns: p.turns}
	d.exceptIDs, d.exceptTenants = p.kept()
	made, c, err := p.promote(ctx, d, seen)
	if len(c.jobs) > 0 && divisible(err) {
		p.suspect(ctx, now, c, d.rows, err)
		report.At, report.Claimed = c.at, report.Claimed+len(c.jobs)
		return report, nil
	}
	if err != nil {
		return Report{}, err
	}
	p.noteScan(d.since, c.took)
	p.raiseLowerBound(made)
	p.awaitLocked(made, c, d)
	p.turns.after(made, d.batch)
	p.size.after(made, d)
	report.add(made)
	report.Parked += p.park(ctx, now, made.broken)
	if len(p.suspects.parts) == 0 && report.Parked == 0 {
		report.Next = made.next
	}
	return report, nil
}

// promote promotes one batch, and says what was claimed for it, also where that
// failed.
func (p *Promoter) promote(ctx context.Context, d due, seen lanes) (made plan, claimed claim, err error) {
	made, err = p.store.promote(ctx, d, func(c claim) (plan, error) {
		claimed = c
		return p.decide(c, d.rows, seen)
	})
	if err != nil {
		return plan{}, claimed, err
	}
	made.places.commit(made.at) // what a pass that failed handed out, nobody has
	for _, one := range made.busy {
		one.rows = d.rows
		p.locked.add(one)
	}
	if made.claimed > len(made.broken) {
		p.suspects.commits++
	}
	for of, ids := range made.hints() {
		if of.calls {
			p.hints.SendTogether(ctx, of.lane, ids)
		} else {
			p.hints.SendLane(ctx, of.lane, ids)
		}
	}
	if made.calls() {
		p.c.CallWorkers(ctx)
	}
	p.count(made)
	return made, claimed, nil
}

// decide says what becomes of claimed jobs, tenant by tenant in turns, until its
// time is up: jobs that it does not reach stay as they are. Halted means nothing
// does.
func (p *Promoter) decide(c claim, rows int, seen lanes) (plan, error) {
	if err := p.checkClock(c.database); err != nil {
		return plan{}, err
	}
	out := plan{at: c.at, claimed: len(c.jobs), places: p.late.begin(), before: c.before}
	for _, j := range c.jobs { // also of those that are left: the next pass must see them
		if out.oldest.IsZero() || j.due.Before(out.oldest) {
			out.oldest = j.due
		}
	}
	all := make([]dueTimes, 0, len(c.jobs))
	elapsed := p.watch()
	for i, j := range inTurns(c.jobs) {
		if i > 0 && elapsed() >= decideFor {
			break
		}
		if o, bad := p.consider(j, c.calendars, c.at); bad != nil {
			out.broken = append(out.broken, *bad)
		} else {
			all = append(all, o)
		}
	}
	for i, n := range grants(all, rows) {
		out.add(all[i], n)
	}
	out.announce(seen)
	return out, nil
}

// checkClock halts promotion while this process and the database disagree
// about the time.
func (p *Promoter) checkClock(database time.Time) error {
	skew := database.Sub(clock.Now())
	p.c.Metrics.SetClockDisagreement(skew)
	halted := skew.Abs() > maxSkew
	p.c.Metrics.SetPromotionHalted(halted)
	if halted {
		return fmt.Errorf("promotion is halted: the database's clock is %v from this process's, more than %v: correct the wrong one", skew.Round(time.Second), maxSkew)
	}
	return nil
}

// lowerBound is where the next scan begins; zero: it looks at all jobs.
func (p *Promoter) lowerBound() time.Time {
	p.since = p.locked.seenFrom(p.since)
	if p.fullScan.Elapsed() >= p.fullRest {
		p.fullScan = clock.Start()
		return time.Time{}
	}
	return p.since
}

// noteScan has a scan without a lower bound followed by none for a while.
func (p *Promoter) noteScan(since time.Time, took time.Duration) {
	if since.IsZero() {
		p.fullScan, p.fullRest = clock.Start(), clock.Rest(took, fullScanRest, fullScanEvery, fullScanMost)
	}
}

// raiseLowerBound keeps the bound a second behind the oldest time that was
// due, so that what another promoter holds locked is seen again, and no later than the oldest
// job that is left: others that are due behind it may be locked, too.
func (p *Promoter) raiseLowerBound(made plan) {
	p.since = made.at.Add(-time.Second)
	if !made.oldest.IsZero() {
		p.since = made.oldest.Add(-time.Second)
	}
	if at := made.left.at; !at.IsZero() {
		p.since = clock.Earlier(p.since, at)
	}
}

func (p *Promoter) count(made plan) {
	if made.claimed == 0 {
		return
	}
	p.c.Metrics.Batch("promote", made.claimed)
	p.c.Metrics.Missed(made.missedCount())
	for _, r := range made.runs {
		p.c.Metrics.DueLag(made.at.Sub(r.at))
	}
}

// Passes is what a process that promotes does again and again.
func (p *Promoter) Passes() []loop.Pass {
	return []loop.Pass{
		{Name: "promote", Every: maxSleep, Called: p.woken, Do: p.promoteDue},
		{Name: "promote-locked", Every: loop.Uncalled, Called: p.locked.called, Do: p.promoteLocked},
		{Name: "backfill", Every: backfillEvery, Called: p.backfills, Do: p.backfillDue},
	}
}

// Wake has the promoter poll at once if it sleeps because nothing is due.
func (p *Promoter) Wake() { call(p.woken) }

func call(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default: // it is called already
	}
}

// promoteDue runs a pass, and has the next one follow at once while something is
// due, and when the next job is due otherwise.
func (p *Promoter) promoteDue(ctx context.Context, turn *loop.Turn) error {
	mark := clock.Start()
	if p.quiet.polls() {
		return p.poll(ctx, turn)
	}
	report, err := p.Pass(ctx, time.Time{})
	p.became(err)
	if err != nil {
		turn.Again(pauseAfterError)
		return err
	}
	p.quiet.after(mark, report)
	if report.Claimed > 0 {
		p.idle.Store(false)
		p.pacer.pass(mark, report.Claimed)
	}
	p.warnMissed(ctx, report)
	if (report.Claimed == 0 || p.quiet.behind > 0) && p.quiet.lastsStill() {
		turn.Await(min(p.quiet.left(), p.pollEvery()))
	} else {
		turn.Again(report.pause(mark.Elapsed(), p.pacer.left()))
	}
	return nil
}

// Ready reports why this promoter promotes nothing: its last pass failed, or
// none is done yet.
func (p *Promoter) Ready() error {
	if why := p.state.Load(); why != nil {
		return errors.New(*why)
	}
	return nil
}

func (p *Promoter) became(err error) {
	if err == nil {
		p.state.Store(nil)
		return
	}
	why := "the last promotion failed; see the log"
	p.state.Store(&why)
}

func isNoPartition(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == postgres.NoPartition
}
