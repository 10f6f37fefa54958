package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	production "github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// real carries the operations out on PostgreSQL, with the statements that
// production sends: promotion by the promoter itself, the rest by the
// generated queries, because production's stores take no time for them.
type real struct {
	api, engine *postgres.DB
	q           *db.Queries
	admin       *pgx.Conn // also the other transaction that holds rows locked
	metrics     *telemetry.Metrics
}

func newReal(t *testing.T) *real {
	t.Helper()
	database := pgtest.New(t)
	open := func(role postgres.Role) *postgres.DB {
		pool, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "model", MaxConns: 2, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	s := &real{
		api: open(postgres.API), engine: open(postgres.Engine),
		metrics: telemetry.NewMetrics(telemetry.NewRegistry()),
	}
	s.q = db.New(s.engine.Pool())
	for _, one := range freshTenants() {
		if err := tenant.NewStore(s.api, true).Admit(t.Context(), one.ID); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if s.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.admin.Close(context.WithoutCancel(t.Context())) })
	return s
}

// sent takes down the hints of a promotion.
type sent struct{ ids []uuid.UUID }

func (s *sent) Publish(_ context.Context, _ queue.Lane, ids []uuid.UUID) error {
	s.ids = append(s.ids, ids...)
	return nil
}

func (s *sent) PublishTogether(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error {
	return s.Publish(ctx, lane, ids)
}
func (s *sent) LostContents(context.Context) (bool, error)        { return false, nil }
func (s *sent) Depth(context.Context) (map[queue.Lane]int, error) { return nil, nil }

// do carries out one operation, if need be while others hold rows locked.
func (s *real) do(ctx context.Context, o op, at time.Time) (answer, error) {
	held, table := lockedBy(o)
	if len(held) == 0 {
		return s.one(ctx, o, at)
	}
	tx, err := s.admin.Begin(ctx)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "SELECT 1 FROM "+table+" WHERE id = ANY ($1) FOR UPDATE", []uuid.UUID(held)); err != nil {
		return answer{}, err
	}
	return s.one(ctx, o, at)
}

func lockedBy(o op) (held locked, table string) {
	switch o := o.(type) {
	case claimExecutions:
		return o.Locked, "active_executions"
	case claimLimitedExecutions:
		return o.Locked, "active_executions"
	case reassignExecutions:
		return o.Locked, "active_executions"
	case poolLateExecutions:
		return o.Locked, "active_executions"
	case poolExecutions:
		return o.Locked, "active_executions"
	case promote:
		return o.Locked, "scheduled_jobs"
	case resumePausedJobs:
		return o.Locked, "scheduled_jobs"
	}
	return nil, ""
}

func (s *real) one(ctx context.Context, o op, at time.Time) (a answer, err error) {
	switch o := o.(type) {
	case promote:
		return s.promote(ctx, at)
	case setLimits:
		byType := map[string]int{}
		for kind, n := range map[string]int{"function": o.Most.Function, "http": o.Most.HTTP} {
			if n >= 0 {
				byType[kind] = n
			}
		}
		_, err := s.admin.Exec(ctx, "UPDATE tenants SET max_running = nullif($2, -1), max_running_by_type = $3 WHERE id = $1", o.Tenant, o.Most.All, byType)
		return a, err
	case createJob, pauseJob, resumeJob, deleteJob, triggerJob:
		err = s.api.InTenant(ctx, asker(o), func(tx *postgres.Tx) error {
			a, err = s.command(ctx, tx, o, at)
			return err
		})
		return a, err
	case registerWorker:
		return a, s.q.InsertWorker(ctx, db.InsertWorkerParams{ID: o.Worker, Now: &at, LeaseSeconds: o.Lease.Seconds(), Host: "host", Slots: 1, JobTypes: o.Types})
	case renewWorker:
		n, err := s.q.RenewWorker(ctx, db.RenewWorkerParams{ID: o.Worker, Now: &at, LeaseSeconds: o.Lease.Seconds()})
		return answer{Stands: n == 1}, err
	case retireWorker:
		return a, s.q.RetireWorker(ctx, o.Worker)
	case markDeadWorkers:
		rows, err := s.q.MarkDeadWorkers(ctx, &at)
		for _, r := range rows {
			a.IDs = append(a.IDs, r.ID)
		}
		return a, err
	case resumePausedJobs:
		rows, err := s.q.ResumePausedJobs(ctx, &at)
		for _, r := range rows {
			a.IDs = append(a.IDs, r.ID)
		}
		return a, err
	case claimExecutions, listUnclaimedExecutions, claimLimitedExecutions, listPooledExecutions, listUnblockedExecutions, listExecutionsOfWorker, listNextExecutions:
		return s.claim(ctx, o, at)
	case completeExecutions:
		return s.complete(ctx, o, at)
	case releaseExecutions:
		p := db.ReleaseExecutionsParams{Now: &at}
		for _, r := range o.Rows {
			p.Ids, p.LeaseTokens = append(p.Ids, r.ID), append(p.LeaseTokens, r.Token)
		}
		rows, err := s.q.ReleaseExecutions(ctx, p)
		for _, r := range rows {
			a.IDs = append(a.IDs, r.ID)
		}
		return a, err
	case reassignExecutions:
		rows, err := s.q.ReassignExecutions(ctx, db.ReassignExecutionsParams{Now: &at, MaxLost: maxLost, BatchSize: 1000})
		for _, r := range rows {
			v := verdict{ID: r.ID, Status: execution.Status(r.Verdict), Lost: r.WorkerLost, Tenant: r.TenantID}
			if r.ConcurrencyKey != nil {
				v.Key = *r.ConcurrencyKey
			}
			a.Verdicts = append(a.Verdicts, v)
		}
		return a, err
	case poolLateExecutions:
		n, err := s.q.PoolLateExecutions(ctx, db.PoolLateExecutionsParams{Now: &at, AheadMs: int32(o.Ahead.Milliseconds()), BatchSize: 1000})
		return answer{Count: int(n)}, err
	case poolExecutions:
		n, err := s.q.PoolExecutions(ctx, o.IDs)
		return answer{Count: int(n)}, err
	}
	return a, fmt.Errorf("no statement for %T", o)
}

func (s *real) promote(ctx context.Context, at time.Time) (answer, error) {
	var hints sent
	p := production.New(production.Config{
		DB: s.engine, Hints: &hints, Metrics: s.metrics, Log: slog.New(slog.DiscardHandler), CatchupPerSecond: func() int { return int(time.Second / catchupEvery) },
	})
	_, err := p.Pass(ctx, at)
	return answer{IDs: hints.ids}, err
}

func (s *real) claim(ctx context.Context, o op, at time.Time) (a answer, err error) {
	add := func(r db.ClaimExecutionsRow) {
		a.Claims = append(a.Claims, claimed{ID: r.ID, Job: r.JobID, Attempt: int(r.Attempt), Max: int(r.MaxAttempts), Token: *r.LeaseToken})
	}
	switch o := o.(type) {
	case claimExecutions:
		rows, err := s.q.ClaimExecutions(ctx, db.ClaimExecutionsParams{Now: &at, WorkerID: &o.Worker, LeaseToken: &o.Token, Ids: o.IDs, LeftTypes: leftOf(o.Types), MaxRunning: int32(o.Limit)})
		for _, r := range rows {
			add(r)
		}
		return a, err
	case listUnclaimedExecutions:
		return s.left(ctx, o, at)
	case claimLimitedExecutions:
		left, err := s.left(ctx, listUnclaimedExecutions{IDs: o.IDs, Types: o.Types}, at)
		if err != nil {
			return a, err
		}
		return a, s.engine.InTx(ctx, func(tx *postgres.Tx) error {
			if _, err := tx.LockJobs(ctx, left.SlotJobs); err != nil {
				return err
			}
			rows, err := tx.ClaimLimitedExecutions(ctx, db.ClaimLimitedExecutionsParams{Now: &at, WorkerID: &o.Worker, LeaseToken: &o.Token, Ids: o.IDs, LeftTypes: leftOf(o.Types), MaxRunning: int32(o.Limit)})
			for _, r := range rows {
				add(db.ClaimExecutionsRow(r))
			}
			return err
		})
	case listPooledExecutions:
		// The spread adds to what a line gives, so each gives all that it has.
		found, err := s.q.ListPooledExecutions(ctx, db.ListPooledExecutionsParams{Now: &at, BatchSize: 1000, Spread: 1000, Lines: 1000, LeftTypes: leftOf(o.Types), MaxRunning: int32(o.Limit)})
		return answer{IDs: found.Ids}, err
	case listUnblockedExecutions:
		found, err := s.q.ListUnblockedExecutions(ctx, db.ListUnblockedExecutionsParams{Now: &at, BatchSize: 1000, Step: 1000, LeftTypes: leftOf(o.Types), MaxRunning: int32(o.Limit)})
		return answer{IDs: found.Ids}, err
	case listNextExecutions:
		p := db.ListNextExecutionsParams{
			Now: &at, MaxRunning: int32(o.Limit), WindowSize: 256, Most: 64, TenantIds: []uuid.UUID{}, KeyTenantIds: []uuid.UUID{}, Keys: []string{},
		}
		p.TenantIds = append(p.TenantIds, o.Tenants...)
		for _, key := range o.Keys {
			p.Keys, p.KeyTenantIds = append(p.Keys, key.Key), append(p.KeyTenantIds, key.Tenant)
		}
		rows, err := s.q.ListNextExecutions(ctx, p)
		for _, r := range rows {
			a.IDs = append(a.IDs, r.ID)
		}
		return a, err
	case listExecutionsOfWorker:
		rows, err := s.q.ListExecutionsOfWorker(ctx, db.ListExecutionsOfWorkerParams{Now: &at, WorkerID: &o.Worker})
		for _, r := range rows {
			a.Held = append(a.Held, workerRun{ID: r.ID, Token: *r.LeaseToken, Cancelling: r.Cancelling})
		}
		return a, err
	}
	return a, nil
}

// leftOf are the types that a worker which runs these leaves to others.
func leftOf(runs []string) []string {
	left := []string{}
	for _, one := range types() {
		if !slices.Contains(runs, one) {
			left = append(left, one)
		}
	}
	return left
}

// asker is the tenant whose request an operation is.
func asker(o op) uuid.UUID {
	switch o := o.(type) {
	case createJob:
		return o.Tenant
	case pauseJob:
		return o.Tenant
	case resumeJob:
		return o.Tenant
	case deleteJob:
		return o.Tenant
	case triggerJob:
		return o.Tenant
	}
	return uuid.Nil
}

func (s *real) left(ctx context.Context, o listUnclaimedExecutions, at time.Time) (a answer, err error) {
	rows, err := s.q.ListUnclaimedExecutions(ctx, db.ListUnclaimedExecutionsParams{Now: &at, Ids: o.IDs, LeftTypes: leftOf(o.Types)})
	for _, r := range rows {
		if !r.Limited {
			a.Unpooled = append(a.Unpooled, r.ID)
			continue
		}
		if !slices.Contains(a.IDs, r.JobID) {
			a.IDs = append(a.IDs, r.JobID)
		}
		if r.NeedsSlot && !slices.Contains(a.SlotJobs, r.JobID) {
			a.SlotJobs = append(a.SlotJobs, r.JobID)
		}
	}
	slices.SortFunc(a.Unpooled, compareIDs)
	return a, err
}

func (s *real) complete(ctx context.Context, o completeExecutions, at time.Time) (a answer, err error) {
	n := len(o.Outcomes)
	p := db.CompleteExecutionsParams{
		LeftTypes: []string{},
		Now:       &at, Results: make([]string, n), ErrorMessages: make([]string, n), ErrorStacks: make([]string, n),
		DurationsUs: make([]int64, n), MemoryMb: make([]float32, n), CpuMs: make([]int64, n),
	}
	for _, d := range o.Outcomes {
		p.Ids, p.Attempts, p.LeaseTokens = append(p.Ids, d.ID), append(p.Attempts, int32(d.Attempt)), append(p.LeaseTokens, d.Token)
		p.Succeeded, p.ErrorTypes = append(p.Succeeded, d.Succeeded), append(p.ErrorTypes, d.Error)
		p.RetryMs = append(p.RetryMs, max(-1, d.Retry.Milliseconds()))
	}
	rows, err := s.q.CompleteExecutions(ctx, p)
	for _, r := range rows {
		v := verdict{ID: r.ID, Status: execution.Status(r.Verdict), Tenant: r.TenantID}
		v.Next = append(v.Next, r.NextIds...) // nil when there are none
		if v.Backlogged = r.Backlogged; r.ConcurrencyKey != nil {
			v.Key = *r.ConcurrencyKey
		}
		a.Verdicts = append(a.Verdicts, v)
	}
	return a, err
}

// command repeats what the stores of job and execution do, at a time of
// the test's own.
func (s *real) command(ctx context.Context, tx *postgres.Tx, o op, at time.Time) (a answer, err error) {
	var id uuid.UUID
	switch o := o.(type) {
	case createJob:
		return a, s.create(ctx, tx, o, at)
	case pauseJob:
		id = o.Job
	case resumeJob:
		id = o.Job
	case deleteJob:
		id = o.Job
	case triggerJob:
		id = o.Job
	}
	old, err := tx.LockJob(ctx, db.LockJobParams{TenantID: asker(o), ID: id})
	if err == pgx.ErrNoRows {
		return answer{Refused: notFound}, nil
	}
	if err != nil {
		return a, err
	}
	p := db.UpdateJobStatusParams{TenantID: asker(o), ID: id, Now: at, NextExecutionAt: old.NextExecutionAt}
	switch o := o.(type) {
	case pauseJob:
		if old.Status == string(job.Inactive) {
			return answer{Refused: conflict}, nil
		}
		p.Status, p.PausedUntil = string(job.Paused), orNull(o.Until)
	case resumeJob:
		p.Status = string(job.Active)
		switch {
		case old.Status == p.Status:
			return a, nil
		case old.Status == string(job.Paused) && old.NextExecutionAt != nil && !old.NextExecutionAt.After(at):
			policy := old.MisfirePolicy
			if o.Missed != "" {
				policy = string(o.Missed)
			}
			p.ResumePolicy = &policy
		default:
			compiled, err := schedule.Compile(job.Spec{Policy: job.Policy{Interval: job.Duration(time.Duration(*old.IntervalMs) * time.Millisecond), Timezone: "UTC"}}.Definition(id.String(), old.AnchorAt, nil))
			if err != nil {
				return a, err
			}
			next, _ := compiled.Next(at)
			p.NextExecutionAt = &next
		}
	case deleteJob:
		if err := tx.DeleteJobs(ctx, db.DeleteJobsParams{TenantID: asker(o), Ids: []uuid.UUID{id}, Now: at}); err != nil {
			return a, err
		}
		err := tx.CancelExecutionsOfJobs(ctx, db.CancelExecutionsOfJobsParams{TenantID: asker(o), JobIds: []uuid.UUID{id}, Now: at, Reason: "the job was deleted"})
		return a, err
	case triggerJob:
		return s.trigger(ctx, tx, o, old, at)
	}
	_, err = tx.UpdateJobStatus(ctx, p)
	return a, err
}

func (s *real) create(ctx context.Context, tx *postgres.Tx, o createJob, at time.Time) error {
	compiled, err := schedule.Compile(o.Spec.Definition(o.Job.String(), at, nil))
	if err != nil {
		return err
	}
	next, _ := compiled.Next(at)
	interval := time.Duration(o.Spec.Interval).Milliseconds()
	p := db.InsertJobParams{
		ID: o.Job, TenantID: asker(o), Name: "model", Tags: []string{}, SecretNames: []string{}, ConcurrencyKey: o.Spec.ConcurrencyKey, Now: at, Timezone: "UTC", IntervalMs: &interval, AnchorAt: at,
		JobType: o.Spec.Type, Config: json.RawMessage("{}"), RetryConfig: json.RawMessage("{}"), MaxAttempts: int32(o.Spec.Retry.MaxRetries + 1),
		TimeoutSeconds: int32(o.Spec.Timeout), Priority: int16(o.Spec.Priority), Status: string(job.Active), NextExecutionAt: &next,
		DstGap: "shift", DstOverlap: "first", Calendars: json.RawMessage("[]"), MaxConcurrent: int32(o.Spec.MaxConcurrent),
		OverlapPolicy: string(o.Spec.Overlap), OverlapQueueLimit: int32(o.Spec.OverlapQueueLimit),
		MisfirePolicy: string(o.Spec.Misfire.Policy), MisfireLimit: int32(o.Spec.Misfire.Limit), MisfireGraceSeconds: int32(o.Spec.Misfire.GraceSeconds),
	}
	if n := o.Spec.MaxExecutions; n > 0 {
		p.MaxExecutions = &n
	}
	tx.InsertJob(ctx, []db.InsertJobParams{p}).QueryRow(func(_ int, _ db.InsertJobRow, e error) { err = e })
	return err
}

func (s *real) trigger(ctx context.Context, tx *postgres.Tx, o triggerJob, j db.ScheduledJob, at time.Time) (a answer, err error) {
	var active db.CountActiveOfJobRow
	tx.CountActiveOfJob(ctx, []db.CountActiveOfJobParams{{TenantID: j.TenantID, JobID: j.ID}}).QueryRow(func(_ int, row db.CountActiveOfJobRow, e error) { active, err = row, e })
	if err != nil {
		return a, err
	}
	places := job.Places{Taken: int(active.Taken), Waiting: int(active.Waiting)}
	admission := job.Spec{Policy: job.Policy{Overlap: job.Overlap(j.OverlapPolicy), MaxConcurrent: int(j.MaxConcurrent)}}.AdmitTrigger(places)
	if !admission.Run {
		return answer{Refused: conflict}, nil
	}
	p := db.InsertRequestedExecutionParams{
		ID: o.ID, TenantID: asker(o), JobID: j.ID, JobVersion: j.Version, ScheduledAt: at, TriggerType: string(execution.Manual),
		JobType: j.JobType, Priority: j.Priority, MaxAttempts: j.MaxAttempts, TimeoutMs: j.TimeoutSeconds * 1000, Now: at, SweepAt: at.Add(dispatch.HintPatience),
	}
	if j.ConcurrencyKey != "" {
		p.ConcurrencyKey = &j.ConcurrencyKey
	}
	if admission.Gated {
		p.ConcurrencyLimit = int16(j.MaxConcurrent)
	}
	p.Pooled = !admission.Gated && p.ConcurrencyKey == nil
	if err := tx.InsertRequestedExecution(ctx, p); err != nil {
		return a, err
	}
	tx.LockJobToRun(ctx, []db.LockJobToRunParams{{TenantID: asker(o), ID: j.ID, Now: &at}}).QueryRow(func(_ int, _ db.LockJobToRunRow, e error) { err = e })
	return answer{IDs: []uuid.UUID{o.ID}}, err
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// sorted puts the parts of an answer whose order means nothing in one.
func (a answer) sorted() answer {
	slices.SortFunc(a.IDs, compareIDs)
	slices.SortFunc(a.Claims, func(x, y claimed) int { return compareIDs(x.ID, y.ID) })
	slices.SortFunc(a.Verdicts, func(x, y verdict) int { return compareIDs(x.ID, y.ID) })
	slices.SortFunc(a.Held, func(x, y workerRun) int { return compareIDs(x.ID, y.ID) })
	return a
}
