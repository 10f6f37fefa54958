package simulation

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
)

// draw makes sequences of operations that meet one another: ids, workers and
// tokens are mostly of those that exist.
type draw struct {
	intn    func(n int) int
	model   *tables
	at      time.Time // of the next operation
	workers []uuid.UUID
	tokens  []uuid.UUID
	asked   byte // runs that were asked for
}

func newDraw(intn func(n int) int) *draw { return &draw{intn: intn} }

func (d *draw) id() (id uuid.UUID) {
	for i := range id {
		id[i] = byte(d.intn(256))
	}
	return id
}

func (d *draw) chance(percent int) bool { return d.intn(100) >= 100-percent }

func pick[T any](d *draw, list []T) (one T) {
	if len(list) > 0 {
		one = list[d.intn(len(list))]
	}
	return one
}

// op draws the next operation, and lets time go by.
func (d *draw) op(c *contract) (after time.Duration, o op) {
	// Never at one time twice: the order of what is due then means nothing.
	after = time.Duration(d.intn(5))*700*time.Millisecond + time.Duration(1+d.intn(999))*time.Microsecond
	if d.chance(10) {
		after += time.Duration(d.intn(20)) * time.Second
	}
	d.model, d.at = c.model, c.at.Add(after)
	return after, d.next()
}

func (d *draw) next() op {
	switch n := len(d.model.jobs); {
	case n == 0 || n < 4 && d.chance(10):
		return createJob{Tenant: d.tenant(), Job: d.id(), Spec: d.spec()}
	case len(d.workers) == 0 || d.chance(3):
		d.workers = append(d.workers, d.id())
		return registerWorker{Worker: d.workers[len(d.workers)-1], Lease: 10 * time.Second, Types: d.types()}
	}
	switch d.intn(20) {
	case 0, 1, 2:
		return promote{Locked: d.jobsLocked()}
	case 3, 4, 5:
		return claimExecutions{Worker: pick(d, d.workers), Token: d.token(), IDs: d.ids(), Types: d.types(), Limit: d.limit(), Locked: d.rowsLocked()}
	case 6, 7, 8:
		return claimLimitedExecutions{Worker: pick(d, d.workers), Token: d.token(), IDs: d.ids(), Types: d.types(), Limit: d.limit(), Locked: d.rowsLocked()}
	case 9, 10, 11:
		return completeExecutions{Outcomes: d.outcomes()}
	case 12:
		return releaseExecutions{Rows: d.held()}
	case 13:
		return reassignExecutions{Locked: d.rowsLocked()}
	case 14:
		return pick(d, []op{
			poolLateExecutions{Ahead: time.Duration(d.intn(2)) * 5 * time.Second, Locked: d.rowsLocked()},
			poolExecutions{IDs: d.ids(), Locked: d.rowsLocked()},
		})
	case 15:
		return pick(d, []op{
			listPooledExecutions{Types: d.types(), Limit: d.limit()},
			listUnblockedExecutions{Types: d.types(), Limit: d.limit()},
			listUnclaimedExecutions{IDs: d.ids(), Types: d.types()},
			d.whoIsNext(),
			resumePausedJobs{},
			setLimits{Tenant: d.tenant(), Most: counts{d.intn(5) - 1, d.intn(4) - 1, d.intn(4) - 1}},
		})
	case 16:
		return pick(d, []op{markDeadWorkers{}, retireWorker{Worker: pick(d, d.workers)}, listExecutionsOfWorker{Worker: pick(d, d.workers)}})
	case 17:
		return renewWorker{Worker: pick(d, d.workers), Lease: 10 * time.Second}
	case 18:
		return d.trigger()
	default:
		return d.command()
	}
}

func (d *draw) whoIsNext() op {
	o := listNextExecutions{Limit: d.limit()}
	for i := range d.model.tenants {
		if d.chance(50) {
			o.Tenants = append(o.Tenants, tenantID(i))
		}
	}
	for _, key := range pick(d, [][]string{nil, {"press"}, {"lathe", "press"}}) {
		o.Keys = append(o.Keys, lockKey{d.tenant(), key})
	}
	return o
}

func (d *draw) tenant() uuid.UUID { return tenantID(d.intn(len(d.model.tenants))) }

// types are those of a worker: mostly all.
func (d *draw) types() []string {
	return [][]string{types(), types(), types(), {"http"}, {"function"}}[d.intn(5)]
}

// limit is that of tenants that have none of their own: mostly one that matters.
func (d *draw) limit() int { return d.intn(5) }

func (d *draw) trigger() op {
	j := pick(d, d.model.jobs)
	of := j.ID
	d.asked++ // or two within a millisecond may have one id
	return triggerJob{Tenant: d.ownerOf(j), Job: of, ID: execution.RequestedID(of, of, d.at, []byte{d.asked})}
}

func (d *draw) command() op {
	j := pick(d, d.model.jobs)
	of, who := j.ID, d.ownerOf(j)
	switch d.intn(6) {
	case 0, 1:
		until := time.Time{}
		if d.chance(50) {
			until = d.at.Add(time.Duration(1+d.intn(10)) * time.Second)
		}
		return pauseJob{Tenant: who, Job: of, Until: until}
	case 2, 3, 4:
		return resumeJob{Tenant: who, Job: of, Missed: pick(d, []job.MisfirePolicy{"", job.MisfireSkip, job.FireOnce, job.FireAll})}
	default:
		return deleteJob{Tenant: who, Job: of}
	}
}

// ownerOf is who asks for something of a job: seldom another than its owner.
func (d *draw) ownerOf(j jobRow) uuid.UUID {
	if d.chance(10) {
		return d.tenant()
	}
	return j.tenant
}

func (d *draw) spec() job.Spec {
	return drawSpec(d.intn)
}

// token is mostly a new one, and now and then repeats a claim.
func (d *draw) token() uuid.UUID {
	if len(d.tokens) == 0 || d.chance(80) {
		d.tokens = append(d.tokens, d.id())
	}
	return d.tokens[len(d.tokens)-1]
}

// ids are some of those that wait or run, and a few that do not.
func (d *draw) ids() (ids []uuid.UUID) {
	for i := range d.model.active {
		if d.chance(70) {
			ids = append(ids, d.model.active[i].ID)
		}
	}
	if len(d.model.finished) > 0 && d.chance(20) {
		ids = append(ids, pick(d, d.model.finished).ID)
	}
	if d.chance(10) {
		ids = append(ids, d.id())
	}
	return ids
}

func (d *draw) rowsLocked() (l locked) {
	if len(d.model.active) > 0 && d.chance(15) {
		l = locked{pick(d, d.model.active).ID}
	}
	return l
}

func (d *draw) jobsLocked() (l locked) {
	if d.chance(15) {
		l = locked{pick(d, d.model.jobs).ID}
	}
	return l
}

// outcomes are of attempts that run, and of some that are not the worker's
// any more: an old number, or another token.
func (d *draw) outcomes() (list []outcome) {
	for i := range d.model.active {
		r := &d.model.active[i]
		if d.chance(40) {
			continue
		}
		o := outcome{ID: r.ID, Token: r.Token, Attempt: r.Attempt, Succeeded: d.chance(50), Retry: -1}
		if !o.Succeeded {
			o.Error, o.Retry = "NETWORK_ERROR", time.Duration(d.intn(4)-1)*time.Second
		}
		if d.chance(10) {
			o.Token = d.id()
		}
		if d.chance(10) {
			o.Attempt--
		}
		list = append(list, o)
	}
	return list
}

func (d *draw) held() (rows []workerRun) {
	for i := range d.model.active {
		if r := &d.model.active[i]; d.chance(40) {
			rows = append(rows, workerRun{ID: r.ID, Token: r.Token})
		}
	}
	return rows
}

// script is a sequence for a case of its own.
type script struct {
	name  string
	lines []line
}

type line struct {
	after time.Duration
	op    func(m *tables) op
}

// scripts are the cases that chance seldom meets, and those that show each
// broken rule.
func scripts() []script {
	var (
		jobID, w1, w2  = uuid.UUID{1}, uuid.UUID{0xa1}, uuid.UUID{0xa2}
		token1, token2 = uuid.UUID{0xb1}, uuid.UUID{0xb2}
		always         = func(o op) func(*tables) op { return func(*tables) op { return o } }
		lease          = 10 * time.Second
		mine, other    = tenantID(0), tenantID(1)
	)
	at := func(after time.Duration, o op) line { return line{after: after, op: always(o)} }
	create := func(edit func(s *job.Spec)) line {
		spec := job.Spec{
			Type: "function", Retry: job.Retry{MaxRetries: 1},
			Policy: job.Policy{
				Interval: job.Duration(10 * time.Second), Timezone: "UTC", Timeout: 1, MaxConcurrent: 1, Overlap: job.OverlapQueue, OverlapQueueLimit: 3,
				Misfire: job.Misfire{Policy: job.FireAll, Limit: 5, GraceSeconds: 60},
			},
		}
		edit(&spec)
		return at(0, createJob{Tenant: mine, Job: jobID, Spec: spec})
	}
	same := func(*job.Spec) {}
	join := func(w uuid.UUID) line {
		return at(time.Millisecond, registerWorker{Worker: w, Lease: lease, Types: types()})
	}
	all := func(m *tables) (ids []uuid.UUID) {
		for _, r := range m.active {
			ids = append(ids, r.ID)
		}
		return ids
	}
	claim := func(w, token uuid.UUID) line {
		return line{time.Millisecond, func(m *tables) op { return claimExecutions{Worker: w, Token: token, IDs: all(m), Types: types()} }}
	}
	limited := func(w, token uuid.UUID) line {
		return line{time.Millisecond, func(m *tables) op {
			return claimLimitedExecutions{Worker: w, Token: token, IDs: all(m), Types: types()}
		}}
	}
	// end completes what the table says is running, as an attempt that differs
	// from it as edit says.
	end := func(edit func(o *outcome)) line {
		return line{time.Second, func(m *tables) op {
			var list []outcome
			for _, r := range m.active {
				o := outcome{ID: r.ID, Token: r.Token, Attempt: r.Attempt, Succeeded: true, Retry: -1}
				edit(&o)
				list = append(list, o)
			}
			return completeExecutions{Outcomes: list}
		}}
	}
	well := func(*outcome) {}
	fails := func(o *outcome) { o.Succeeded, o.Error, o.Retry = false, "NETWORK_ERROR", time.Second }
	due := at(10*time.Second, promote{})
	lost := func(w, token uuid.UUID) []line {
		return []line{join(w), claim(w, token), at(0, retireWorker{Worker: w}), at(time.Second, reassignExecutions{})}
	}
	lines := func(parts ...any) (out []line) {
		for _, p := range parts {
			switch p := p.(type) {
			case line:
				out = append(out, p)
			case []line:
				out = append(out, p...)
			}
		}
		return out
	}
	waiting := lines(create(same), due, due, due, join(w1)) // one has its place, two wait for it
	return []script{
		{"three workers are lost, and then it is finished", lines(create(same), due, lost(w1, token1), lost(w2, token2), lost(uuid.UUID{0xa3}, uuid.UUID{0xb3}))},
		{"deadlines pass until the attempts are used up", lines(
			create(same), due, join(w1), claim(w1, token1), at(6500*time.Millisecond, reassignExecutions{}), at(0, renewWorker{Worker: w1, Lease: lease}),
			claim(w1, token2), at(6500*time.Millisecond, reassignExecutions{}),
		)},
		{"a lease runs out", lines(
			create(same), join(w1), join(w2), due, claim(w1, token1), at(0, markDeadWorkers{}), at(400*time.Millisecond, markDeadWorkers{}),
			at(time.Second, markDeadWorkers{}), at(0, renewWorker{Worker: w1, Lease: lease}), at(0, reassignExecutions{}), claim(w1, token1), claim(w2, token2),
		)},
		{"a claim is repeated, and another's is not", lines(
			create(same), due, join(w1), join(w2), claim(w1, token1), claim(w1, token1), claim(w1, token2), claim(w2, token1), claim(w2, token2),
			at(time.Second, listExecutionsOfWorker{Worker: w1}), end(well),
		)},
		{"places are kept", lines(waiting, claim(w1, token1), limited(w1, token2), end(func(o *outcome) { o.Attempt = max(o.Attempt, 1) }), limited(w1, token2), limited(w1, token1),
			at(0, listUnblockedExecutions{Types: types()}), end(fails), at(0, listUnblockedExecutions{Types: types()}), limited(w1, token1), at(2*time.Second, listUnblockedExecutions{Types: types()}), limited(w1, token1))},
		{"an old attempt ends", lines(create(same), due, join(w1), claim(w1, token1), end(func(o *outcome) { o.Attempt-- }), end(func(o *outcome) { o.Token = token2 }), end(fails),
			end(well), at(time.Second, listPooledExecutions{Types: types()}), at(3*time.Second, listPooledExecutions{Types: types()}), at(time.Second, poolLateExecutions{}), claim(w1, token2), end(fails))},
		{"a deletion ends all", lines(waiting, claim(w1, token1), at(0, deleteJob{Tenant: mine, Job: jobID}), claim(w1, token1), at(0, listExecutionsOfWorker{Worker: w1}), end(well), due,
			at(0, triggerJob{Tenant: mine, Job: jobID, ID: uuid.UUID{9}}), at(0, pauseJob{Tenant: mine, Job: jobID}), at(0, resumeJob{Tenant: mine, Job: jobID}), at(0, deleteJob{Tenant: mine, Job: jobID}))},
		{"what is to be cancelled is released or lost", lines(
			waiting, claim(w1, token1), at(0, deleteJob{Tenant: mine, Job: jobID}), line{0, func(m *tables) op {
				return releaseExecutions{Rows: []workerRun{{ID: m.active[0].ID, Token: m.active[0].Token}}}
			}}, at(0, reassignExecutions{}),
		)},
		{"a later scheduled time takes the slot", lines(create(func(s *job.Spec) { s.Overlap = job.OverlapCancel }), due, join(w1), claim(w1, token1), due, due,
			at(35*time.Second, promote{}), end(well), limited(w1, token2))},
		{"a pause ends", lines(create(same), at(0, pauseJob{Tenant: mine, Job: jobID, Until: time.Time{}.Add(time.Hour)}), at(25*time.Second, resumePausedJobs{}), due,
			at(0, pauseJob{Tenant: mine, Job: jobID}), at(25*time.Second, resumeJob{Tenant: mine, Job: jobID, Missed: job.FireOnce}), due, at(0, pauseJob{Tenant: mine, Job: jobID}), at(0, resumeJob{Tenant: mine, Job: jobID}))},
		{"a long outage", lines(create(func(s *job.Spec) { s.Overlap = job.OverlapAllow }), at(5*time.Minute, promote{}), at(100*time.Millisecond, listPooledExecutions{Types: types()}),
			at(time.Second, poolLateExecutions{Ahead: 5 * time.Second}), due)},
		{"a tenant may run one at once", lines(
			create(func(s *job.Spec) { s.Overlap = job.OverlapAllow }), due, due, join(w1), at(5*time.Second, poolLateExecutions{}), at(0, listPooledExecutions{Types: types(), Limit: 1}),
			line{time.Millisecond, func(m *tables) op {
				return claimExecutions{Worker: w1, Token: token1, IDs: all(m), Types: types(), Limit: 1}
			}},
			at(0, listNextExecutions{Tenants: []uuid.UUID{mine}, Limit: 1}), at(0, listPooledExecutions{Types: types(), Limit: 1}), end(well),
			at(0, listNextExecutions{Tenants: []uuid.UUID{mine}, Limit: 1}), at(0, listPooledExecutions{Types: types(), Limit: 1}),
			line{time.Millisecond, func(m *tables) op {
				return claimExecutions{Worker: w1, Token: token2, IDs: all(m), Types: types(), Limit: 1}
			}}, end(fails),
		)},
		{"a mark that a limit left something behind is soon not renewed", lines(
			create(func(s *job.Spec) { s.Overlap = job.OverlapAllow }), due, due, due, join(w1), at(5*time.Second, poolLateExecutions{}),
			at(0, setLimits{Tenant: mine, Most: counts{1, -1, -1}}), claim(w1, token1), at(time.Second, setLimits{Tenant: mine, Most: counts{2, -1, -1}}), claim(w1, token2),
		)},
		{"a key is held by one", lines(
			create(func(s *job.Spec) { s.Overlap, s.ConcurrencyKey = job.OverlapAllow, "press" }), due, due, join(w1), claim(w1, token1),
			at(0, listUnclaimedExecutions{Types: types()}), limited(w1, token1), at(0, listNextExecutions{Keys: []lockKey{{mine, "press"}}}), at(0, listUnblockedExecutions{Types: types()}), limited(w1, token2),
			end(well), at(0, listNextExecutions{Keys: []lockKey{{mine, "press"}}}), at(0, listUnblockedExecutions{Types: types()}), limited(w1, token2),
			line{0, func(m *tables) op {
				return releaseExecutions{Rows: []workerRun{{ID: m.active[0].ID, Token: m.active[0].Token}}}
			}}, limited(w1, token1), at(0, retireWorker{Worker: w1}), at(0, reassignExecutions{}),
		)},
		{"a tenant may run one of a type at once", lines(
			create(func(s *job.Spec) { s.Overlap = job.OverlapAllow }), due, due, join(w1), at(0, setLimits{Tenant: mine, Most: counts{-1, 1, -1}}),
			claim(w1, token1), at(0, listNextExecutions{Tenants: []uuid.UUID{other, mine}}), end(well), claim(w1, token2),
			at(0, setLimits{Tenant: mine, Most: counts{2, -1, -1}}), claim(w1, uuid.UUID{0xb3}),
		)},
		{"another tenant's runs count for nothing", lines(
			create(func(s *job.Spec) { s.Overlap, s.ConcurrencyKey = job.OverlapAllow, "press" }), at(0, createJob{Tenant: other, Job: uuid.UUID{2}, Spec: job.Spec{
				Type: "http",
				Policy: job.Policy{
					Interval: job.Duration(10 * time.Second), Timezone: "UTC", Timeout: 1, MaxConcurrent: 1, Overlap: job.OverlapAllow, OverlapQueueLimit: 1, ConcurrencyKey: "press",
					Misfire: job.Misfire{Policy: job.FireAll, Limit: 5, GraceSeconds: 60},
				},
			}}), due, due, join(w1), at(0, setLimits{Tenant: mine, Most: counts{1, -1, -1}}), limited(w1, token1), at(0, listUnblockedExecutions{Types: types()}),
			line{time.Second, func(m *tables) op { // only mine
				i := slices.IndexFunc(m.active, func(r activeRow) bool { return r.Tenant == mine && !r.waits() })
				return completeExecutions{Outcomes: []outcome{{ID: m.active[i].ID, Token: m.active[i].Token, Attempt: 1, Succeeded: true, Retry: -1}}}
			}},
			at(0, listNextExecutions{Keys: []lockKey{{mine, "press"}}}), limited(w1, token2), end(well), limited(w1, token1),
		)},
		{"a job is its tenant's alone", lines(create(same), at(0, pauseJob{Tenant: other, Job: jobID}), at(0, triggerJob{Tenant: other, Job: jobID, ID: uuid.UUID{9}}),
			at(0, deleteJob{Tenant: other, Job: jobID}), due)},
		{"a worker runs its types alone", lines(
			create(same), due, due, at(0, registerWorker{Worker: w1, Lease: lease, Types: []string{"http"}}),
			line{time.Millisecond, func(m *tables) op {
				return claimExecutions{Worker: w1, Token: token1, IDs: all(m), Types: []string{"http"}}
			}},
			line{0, func(m *tables) op { return listUnclaimedExecutions{IDs: all(m), Types: []string{"http"}} }},
			line{0, func(m *tables) op { return poolExecutions{IDs: all(m)} }}, at(0, listPooledExecutions{Types: []string{"http"}}),
			at(0, listNextExecutions{Tenants: []uuid.UUID{mine}}), at(0, listUnblockedExecutions{Types: []string{"http"}}),
			line{time.Millisecond, func(m *tables) op {
				return claimLimitedExecutions{Worker: w1, Token: token1, IDs: all(m), Types: []string{"http"}}
			}},
			join(w2), at(0, listNextExecutions{Tenants: []uuid.UUID{mine}}), claim(w2, token2),
		)},
		{"no more than so many", lines(create(func(s *job.Spec) { s.MaxExecutions, s.Overlap = 3, job.OverlapAllow }), due, at(50*time.Second, promote{}), due,
			at(0, pauseJob{Tenant: mine, Job: jobID}), at(0, resumeJob{Tenant: mine, Job: jobID}), due)},
	}
}
