package promoter

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	// maxTrials and trialTime bound how many parts of failed batches one pass tries,
	// before it promotes the others.
	maxTrials = 16
	trialTime = 200 * time.Millisecond
	// slowTrial is the time of a statement for a part of a batch that took too long.
	slowTrial = time.Second
	// maxStrikes is how often a job that is alone may take too long.
	maxStrikes = 3
	// maxSuspects is of how many suspects on a tenant's other jobs wait too.
	maxSuspects = 100
	// asideFor is for how long a job is left alone that cannot even be parked.
	asideFor = time.Minute
)

// suspect is a job of a batch that failed.
type suspect struct{ id, tenant uuid.UUID }

// part is a part of a batch that failed: some of its jobs, which are tried alone.
type part struct {
	jobs    []suspect
	rows    int  // that a trial may write
	slow    bool // the batch took too long; else the database refused it
	commits int  // of this promoter, when the batch failed
	strikes int  // how often it took too long while it was one job

	awaits bool      // a trial waits for the locks that keep the jobs back, see locked
	due    time.Time // of a part that awaits: the oldest scheduled time of its jobs
}

// suspects are the jobs of failed batches. They are kept out of the others'
// batches and tried in parts. A part that fails is split, until the job that fails
// alone is found. A part is split between tenants first, and the tenants' parts take
// turns, so that no tenant waits until another one's jobs are found.
type suspects struct {
	parts   []part
	trials  int
	tried   map[uuid.UUID]int        // the last trial of a tenant's part, while there are parts
	aside   map[uuid.UUID]clock.Mark // jobs that could not be parked
	commits int                      // batches with rows that this promoter committed
}

// add takes the jobs of a failed batch, to be tried whole once more or by halves.
func (s *suspects) add(jobs []suspect, rows int, slow, whole bool) {
	slices.SortStableFunc(jobs, func(a, b suspect) int { return slices.Compare(a.tenant[:], b.tenant[:]) })
	batch := part{jobs: jobs, rows: rows, slow: slow, commits: s.commits}
	if whole || len(jobs) == 1 {
		s.parts = append(s.parts, batch)
	} else {
		s.split(batch)
	}
}

// split replaces a part that failed by two: of different tenants where it can, and
// halves otherwise.
func (s *suspects) split(p part) {
	half := p.middle()
	for _, jobs := range [][]suspect{p.jobs[:half], p.jobs[half:]} {
		s.parts = append(s.parts, part{jobs: jobs, rows: max(p.rows/2, len(jobs), 10), slow: p.slow, commits: p.commits, awaits: p.awaits, due: p.due})
	}
}

// middle is where a part is split: between two tenants, as near to its half as can
// be, or at its half.
func (p part) middle() int {
	half, between := len(p.jobs)/2, 0
	for at := 1; at < len(p.jobs); at++ {
		if p.jobs[at-1].tenant != p.jobs[at].tenant && (between == 0 || at <= half || at-half < half-between) {
			between = at
		}
	}
	return cmp.Or(between, half)
}

// mixed says whether the jobs are of several tenants.
func (p part) mixed() bool { return p.jobs[0].tenant != p.jobs[len(p.jobs)-1].tenant }

// pop takes the next part: one of several tenants, or else one of the tenant whose last
// trial is longest ago, and of its parts the one that has waited longest. Of tenants
// without a trial the one with the smallest part is first.
func (s *suspects) pop() part {
	next := max(0, slices.IndexFunc(s.parts, part.mixed))
	if !s.parts[next].mixed() {
		for i := range s.parts {
			if s.before(s.parts[i], s.parts[next]) {
				next = i
			}
		}
	}
	one := s.parts[next]
	if s.parts = slices.Delete(s.parts, next, next+1); len(s.parts) == 0 || s.tried == nil {
		s.tried = map[uuid.UUID]int{}
	}
	if !one.mixed() {
		s.trials++
		s.tried[one.jobs[0].tenant] = s.trials
	}
	return one
}

// before says whether the tenant of part a has its turn before that of part b.
func (s *suspects) before(a, b part) bool {
	of, than := a.jobs[0].tenant, b.jobs[0].tenant
	return of != than && cmp.Or(cmp.Compare(s.tried[of], s.tried[than]), cmp.Compare(len(a.jobs), len(b.jobs))) < 0
}

// kept are the jobs that no ordinary batch holds, and the tenants with so many of
// them that their other jobs wait too.
func (s *suspects) kept() (ids, tenants []uuid.UUID) {
	ids, tenants = []uuid.UUID{}, []uuid.UUID{}
	of := map[uuid.UUID]int{}
	for _, p := range s.parts {
		for _, j := range p.jobs {
			ids = append(ids, j.id)
			if of[j.tenant]++; of[j.tenant] == maxSuspects {
				tenants = append(tenants, j.tenant)
			}
		}
	}
	for id, since := range s.aside {
		if since.Elapsed() >= asideFor {
			delete(s.aside, id)
			continue
		}
		ids = append(ids, id)
	}
	return ids, tenants
}

// leave keeps a job out of all batches for a while.
func (s *suspects) leave(id uuid.UUID) {
	if s.aside == nil {
		s.aside = map[uuid.UUID]clock.Mark{}
	}
	s.aside[id] = clock.Start()
}

// divisible says whether a batch failed because of something in it: what the
// database refuses is refused again, and what takes too long may be too much.
func divisible(err error) bool { return postgres.Refused(err) || postgres.TimedOut(err) }

// suspect keeps the jobs of a batch that failed for trials. A time without a
// partition is made first, and then the batch is tried whole.
func (p *Promoter) suspect(ctx context.Context, now time.Time, c claim, rows int, err error) {
	p.c.Metrics.Failure("promote", fault.KindOf(err).String())
	p.c.Log.WarnContext(ctx, "a batch was not promoted, and is divided", "jobs", len(c.jobs), "error", err)
	month := isNoPartition(err)
	if month {
		if _, err := partition.Keep(ctx, p.store.queries(), p.c.Spans.Now(), partition.Ahead, now); err != nil {
			p.c.Log.ErrorContext(ctx, "partitions not made", "error", err)
		}
	}
	jobs := make([]suspect, len(c.jobs))
	for i, j := range c.jobs {
		jobs[i] = suspect{j.id, j.tenant}
	}
	p.suspects.add(jobs, rows, postgres.TimedOut(err), month)
}

// tryParts tries parts of failed batches, as many as a pass may.
func (p *Promoter) tryParts(ctx context.Context, now time.Time, seen lanes) (report Report, err error) {
	elapsed := p.watch()
	for trials := 0; trials < maxTrials && len(p.suspects.parts) > 0; trials++ {
		one := p.suspects.pop()
		d := due{now: now, backlogs: !seen.none, rows: one.rows, slow: one.slow, awaits: one.awaits, chosen: make([]uuid.UUID, len(one.jobs))}
		for i, j := range one.jobs {
			d.chosen[i] = j.id
		}
		made, c, err := p.promote(ctx, d, seen)
		switch {
		case err == nil:
			report.add(made)
			report.Parked += p.park(ctx, now, made.broken)
			if c.mended != "" {
				report.Mended++
				p.c.Log.ErrorContext(ctx, "a due schedule was not that of its job", "job_id", d.chosen[0], "mended", c.mended)
			}
		case !divisible(err):
			p.suspects.parts = append(p.suspects.parts, one)
			return report, err
		case errors.Is(err, errNoTurn):
			p.suspects.parts = append(p.suspects.parts, one)
			return report, nil
		case len(one.jobs) > 1:
			p.suspects.split(one)
		default:
			report.Parked += p.accuse(ctx, now, one, c, err)
		}
		if elapsed() > trialTime {
			break
		}
	}
	return report, nil
}

// accuse decides about a job that failed alone. One that is refused is parked. One
// that takes too long is parked when it did so several times while other batches were
// committed; else the database may be slow, and the job goes back to the others. One that
// met a lock, of its executions for example, is waited for beside the passes.
func (p *Promoter) accuse(ctx context.Context, now time.Time, one part, c claim, err error) (parked int) {
	if len(c.jobs) == 0 { // somebody else holds it, or its schedule cannot be mended
		p.c.Log.WarnContext(ctx, "a due job was not claimed, and is tried again", "job_id", one.jobs[0].id, "error", err)
		return 0
	}
	if postgres.LockTimedOut(err) {
		if one.due = c.jobs[0].due; one.awaits {
			p.suspects.parts = append(p.suspects.parts, one)
		} else {
			p.locked.add(one)
		}
		return 0
	}
	if !postgres.TimedOut(err) {
		return p.park(ctx, now, []badJob{{job: &c.jobs[0], kind: "refused", what: refusal(err)}})
	}
	switch one.strikes++; {
	case one.strikes < maxStrikes:
		p.suspects.parts = append(p.suspects.parts, one)
	case p.suspects.commits > one.commits:
		return p.park(ctx, now, []badJob{{job: &c.jobs[0], kind: "slow", what: "promoting it takes longer than it may"}})
	}
	return 0
}
