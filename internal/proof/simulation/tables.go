package simulation

import (
	"bytes"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// tables are what the database holds of the protocol, with the columns that
// decide something. Zero times and ids stand for NULL. Every operation is one
// statement, or one transaction that holds the locks which make it one.
type tables struct {
	jobs     []jobRow
	active   []activeRow   // ordered by id
	finished []finishedRow // in the order of their insertion
	workers  []workerRow
	tenants  []tenantRow
	keys     []keyRow

	bug     bug                       // the planted one; none outside the tests of the checker
	counted map[int]map[uuid.UUID]int // by session, see countsBeforeLock
}

// jobRow is a row of scheduled_jobs.
type jobRow struct {
	ID      uuid.UUID
	Status  job.Status
	Next    time.Time
	Last    time.Time
	Count   int64
	Until   time.Time // of a pause that ends by itself
	Resume  job.MisfirePolicy
	Deleted bool

	spec     job.Spec
	tenant   uuid.UUID
	schedule *schedule.Schedule
	lock     int // the session whose transaction holds the row; 0: none
}

// activeRow is a row of active_executions.
type activeRow struct {
	ID, Job     uuid.UUID
	Tenant      uuid.UUID
	Type        string
	At          time.Time // scheduled_at
	Trigger     execution.Trigger
	Status      execution.Status
	Priority    int
	Attempt     int
	MaxAttempts int
	Lost        int
	Pooled      bool   // workers poll for it; else a hint is under way
	SlotLimit   int    // concurrency_limit
	Key         string // concurrency_key
	Timeout     time.Duration
	Failures    []failure
	AvailableAt time.Time
	SweepAt     time.Time
	StartedAt   time.Time
	AttemptedAt time.Time // attempt_started_at
	DeadlineAt  time.Time
	CancelAt    time.Time
	CancelFor   string // cancel_reason
	Worker      uuid.UUID
	Token       uuid.UUID
}

// never is the sweep of what needs none: PostgreSQL's infinity.
func never() time.Time { return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }

// bound says that the row waits for more than a worker: a place or a key.
func (r *activeRow) bound() bool { return r.SlotLimit > 0 || r.Key != "" }

// pool has workers poll for the row, unless it is bound.
func (r *activeRow) pool() { r.Pooled, r.SweepAt = !r.bound(), never() }

func (r *activeRow) waits() bool { return r.Status != execution.Running }

// hasSlot says that the row counts against its job's limit.
func (r *activeRow) hasSlot() bool { return !r.waits() || r.SlotLimit == 0 }

// failure is an attempt that did not end its execution.
type failure struct {
	Number int
	Type   string
}

// finishedRow is a row of job_executions.
type finishedRow struct {
	ID, Job     uuid.UUID
	Tenant      uuid.UUID
	At          time.Time
	Trigger     execution.Trigger
	Status      execution.Status
	Reason      string
	Attempt     int
	MaxAttempts int
	Failures    []failure
	ErrorType   string
	StartedAt   time.Time
	CompletedAt time.Time
	MissedCount int
	MissedUntil time.Time
	Worker      uuid.UUID
	Token       uuid.UUID
}

// keyRow is a row of running_keys.
type keyRow struct {
	Of lockKey
	ID uuid.UUID // the execution that holds it
}

// lockKey is a concurrency key: two tenants' are two, whatever they say.
type lockKey struct {
	Tenant uuid.UUID
	Key    string
}

// tenantRow is what a tenant may run, of tenants, and what it runs, of
// running_counts.
type tenantRow struct {
	ID         uuid.UUID
	Most       counts // of it; negative: no limit of its own
	Running    counts
	Backlogged time.Time // when a claim last left something behind for a limit
}

// counts are runs: all, and those of each type.
type counts struct{ All, Function, HTTP int }

// of is the count of a type.
func (c *counts) of(kind string) *int {
	if kind == "http" {
		return &c.HTTP
	}
	return &c.Function
}

func (c *counts) add(kind string, n int) {
	c.All += n
	*c.of(kind) += n
}

// workerRow is a row of workers.
type workerRow struct {
	ID        uuid.UUID
	ExpiresAt time.Time
	Dead      bool
	Types     []string // none: it is of an older version and runs all
}

// clone is a copy that later operations do not change: a standby's state.
func (t *tables) clone() *tables {
	c := &tables{
		jobs: slices.Clone(t.jobs), active: slices.Clone(t.active), finished: slices.Clone(t.finished), workers: slices.Clone(t.workers),
		tenants: slices.Clone(t.tenants), keys: slices.Clone(t.keys), bug: t.bug,
	}
	for i := range c.jobs {
		c.jobs[i].lock = 0 // the sessions are gone
	}
	return c
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

func (t *tables) find(id uuid.UUID) (int, bool) {
	return slices.BinarySearchFunc(t.active, id, func(r activeRow, id uuid.UUID) int { return compareIDs(r.ID, id) })
}

func (t *tables) row(id uuid.UUID) *activeRow {
	if i, ok := t.find(id); ok {
		return &t.active[i]
	}
	return nil
}

func (t *tables) job(id uuid.UUID) *jobRow {
	for i := range t.jobs {
		if t.jobs[i].ID == id {
			return &t.jobs[i]
		}
	}
	return nil
}

func (t *tables) tenant(id uuid.UUID) *tenantRow {
	for i := range t.tenants {
		if t.tenants[i].ID == id {
			return &t.tenants[i]
		}
	}
	return nil
}

func (t *tables) worker(id uuid.UUID) *workerRow {
	for i := range t.workers {
		if t.workers[i].ID == id {
			return &t.workers[i]
		}
	}
	return nil
}

// insert adds a row, ON CONFLICT (id) DO NOTHING.
func (t *tables) insert(r activeRow) {
	if i, ok := t.find(r.ID); !ok {
		t.active = slices.Insert(t.active, i, r)
	}
}

func (t *tables) remove(id uuid.UUID) {
	if i, ok := t.find(id); ok {
		t.active = slices.Delete(t.active, i, i+1)
	}
}

// ended says that the history has a row, by its primary key.
func (t *tables) ended(id uuid.UUID, at time.Time) bool {
	return slices.ContainsFunc(t.finished, func(o finishedRow) bool { return o.ID == id && o.At.Equal(at) })
}

// record adds to the history, ON CONFLICT DO NOTHING.
func (t *tables) record(o finishedRow) {
	if !t.ended(o.ID, o.At) {
		t.finished = append(t.finished, o)
	}
}

// end is the record of a finished active row.
func (r *activeRow) end(status execution.Status, at time.Time) finishedRow {
	return finishedRow{
		ID: r.ID, Job: r.Job, Tenant: r.Tenant, At: r.At, Trigger: r.Trigger, Status: status, Attempt: r.Attempt, MaxAttempts: r.MaxAttempts,
		Failures: r.Failures, StartedAt: r.StartedAt, CompletedAt: at, Worker: r.Worker, Token: r.Token,
	}
}

// letGo takes a row from its worker.
func (r *activeRow) letGo(status execution.Status) {
	r.Status, r.Worker, r.Token, r.DeadlineAt = status, uuid.Nil, uuid.Nil, time.Time{}
}

// ends takes a run off the counts, and frees its key.
func (t *tables) ends(r *activeRow) {
	t.tenant(r.Tenant).Running.add(r.Type, -1)
	if t.bug != keepsKeys {
		t.keys = slices.DeleteFunc(t.keys, func(k keyRow) bool { return k.ID == r.ID })
	}
}

// taken says that a run holds a key.
func (t *tables) taken(r *activeRow) bool {
	return r.Key != "" && slices.ContainsFunc(t.keys, func(k keyRow) bool { return k.Of == r.lockKey() || t.bug == keysCross && k.Of.Key == r.Key })
}

// lockKey is the key that the row has, whichever run holds it.
func (r *activeRow) lockKey() lockKey { return lockKey{r.Tenant, r.Key} }

// failed appends without touching what a clone shares.
func (r *activeRow) failed(kind string) {
	r.Failures = append(slices.Clone(r.Failures), failure{Number: r.Attempt, Type: kind})
}

// places are the unfinished runs of a job: count_active.
func (t *tables) places(id uuid.UUID) (p job.Places) {
	for i := range t.active {
		switch r := &t.active[i]; {
		case r.Job != id:
		case r.hasSlot():
			p.Taken++
		default:
			p.Waiting++
		}
	}
	return p
}
