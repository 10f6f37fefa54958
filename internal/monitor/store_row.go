package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
)

// stored is a monitor's state as its columns hold it.
type stored struct {
	Status                             string
	ExpectedAt, RunningSince, Deadline *time.Time
	State                              json.RawMessage
}

func (j *Machine) stored() (c stored, err error) {
	s := &j.m.State
	c = stored{Status: s.Status, ExpectedAt: columns.OrNull(s.ExpectedAt), Deadline: columns.OrNull(j.Deadline())}
	if s.Run != nil {
		c.RunningSince = &s.Run.StartedAt
	}
	if c.State, err = json.Marshal(s); err != nil {
		return c, fmt.Errorf("write the state of monitor %s: %w: %w", j.m.ID, ErrBroken, err)
	}
	return c, nil
}

// FromRow reads a row.
func FromRow(r db.Monitor) (Monitor, error) {
	state, err := readState(r.State)
	if err != nil {
		return Monitor{}, err
	}
	state.Status = r.Status
	if r.ExpectedAt != nil {
		state.ExpectedAt = r.ExpectedAt.UTC()
	}
	seconds := func(n int32) time.Duration { return time.Duration(n) * time.Second }
	return Monitor{
		Spec: Spec{
			Name: r.Name, Tags: r.Tags, Cron: columns.OrZero(r.CronExpression), Zone: r.Timezone, Interval: seconds(columns.OrZero(r.IntervalSeconds)),
			StartGrace: seconds(r.StartGraceSeconds), CompletionGrace: seconds(r.CompletionGraceSeconds),
			MaxRuntime: seconds(r.MaxRuntimeSeconds), MinRuntime: seconds(r.MinRuntimeSeconds), AlertTooOften: r.AlertTooOften, ExtendOnLog: r.ExtendOnLog,
			FailureThreshold: int(r.FailureThreshold), RecoveryThreshold: int(r.RecoveryThreshold),
		},
		ID: r.ID, TenantID: r.TenantID, Version: int(r.Version), Paused: r.Paused, PingKey: r.PingKey, CreatedBy: r.CreatedBy,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(), DeadlineAt: columns.OrZero(r.Deadline), State: state,
	}, nil
}

// Batch is what the decisions about some monitors change, as one statement of each kind
// writes it.
type Batch struct {
	states db.UpdateMonitorStatesParams
	runs   db.UpsertMonitorRunsParams
	events db.InsertMonitorEventsParams
}

// Add adds what was decided about a monitor.
func (b *Batch) Add(j *Machine) error {
	c, err := j.stored()
	if err != nil {
		return err
	}
	s := &b.states
	s.Ids, s.Statuses, s.States = append(s.Ids, j.m.ID), append(s.Statuses, c.Status), append(s.States, c.State)
	s.ExpectedAts, s.RunningSinces, s.Deadlines = append(s.ExpectedAts, never(c.ExpectedAt)), append(s.RunningSinces, never(c.RunningSince)), append(s.Deadlines, never(c.Deadline))
	out := j.Take()
	for _, r := range merge(out.Records) {
		b.add(j.m, r)
	}
	e := &b.events
	for _, one := range out.Events {
		raw, err := json.Marshal(one)
		if err != nil {
			return fmt.Errorf("write an event: %w: %w", ErrBroken, err)
		}
		e.Ids, e.MonitorIds, e.Ats, e.Events = append(e.Ids, one.ID), append(e.MonitorIds, j.m.ID), append(e.Ats, one.At), append(e.Events, raw)
	}
	return nil
}

// Write writes them, for monitors that the transaction holds locked.
func (b *Batch) Write(ctx context.Context, tx *postgres.Tx) error {
	if len(b.states.Ids) > 0 {
		if err := tx.UpdateMonitorStates(ctx, b.states); err != nil {
			return fmt.Errorf("keep the states of monitors: %w", err)
		}
	}
	if len(b.runs.MonitorIds) > 0 {
		if err := tx.UpsertMonitorRuns(ctx, b.runs); err != nil {
			return fmt.Errorf("keep the runs of monitors: %w", err)
		}
	}
	if len(b.events.Ids) > 0 {
		if err := tx.InsertMonitorEvents(ctx, b.events); err != nil {
			return fmt.Errorf("keep the events of monitors: %w", err)
		}
	}
	return nil
}

func (b *Batch) add(m *Monitor, r Record) {
	p, orNever := &b.runs, func(at time.Time) time.Time { return never(columns.OrNull(at)) }
	p.MonitorIds, p.TenantIds, p.Ns, p.Ats = append(p.MonitorIds, m.ID), append(p.TenantIds, m.TenantID), append(p.Ns, r.N), append(p.Ats, r.At)
	p.ExpectedAts, p.StartedAts, p.EndedAts = append(p.ExpectedAts, orNever(r.ExpectedAt)), append(p.StartedAts, orNever(r.StartedAt)), append(p.EndedAts, orNever(r.EndedAt))
	p.Outcomes, p.Reasons, p.ExitCodes = append(p.Outcomes, r.Outcome), append(p.Reasons, r.Reason), append(p.ExitCodes, int32(r.Exit))
	p.RunIds, p.Logs = append(p.RunIds, r.RunID), append(p.Logs, r.Log)
}

// merge makes one record of those of one run, and keeps the last of those that share a place:
// no statement writes a row twice.
func merge(records []Record) []Record {
	at, merged := map[int64]int{}, records[:0:0]
	for _, r := range records {
		i, ok := at[r.N%keptRuns]
		switch {
		case !ok:
			at[r.N%keptRuns] = len(merged)
			merged = append(merged, r)
		case merged[i].N == r.N:
			if r.ExpectedAt.IsZero() {
				r.ExpectedAt = merged[i].ExpectedAt
			}
			r.Log = Log([]byte(merged[i].Log + r.Log))
			merged[i] = r
		case merged[i].N < r.N:
			merged[i] = r
		}
	}
	return merged
}

func never(at *time.Time) time.Time {
	if at == nil {
		return columns.Never
	}
	return *at
}

func runOf(r db.MonitorRun) StoredRun {
	run := StoredRun{
		MonitorID: r.MonitorID, N: r.N, At: r.At.UTC(), ExpectedAt: columns.UTC(r.ExpectedAt), StartedAt: columns.UTC(r.StartedAt), EndedAt: columns.UTC(r.EndedAt),
		Outcome: r.Outcome, Reason: r.Reason, RunID: r.RunID, Log: r.Log,
	}
	if r.ExitCode != nil {
		code := int(*r.ExitCode)
		run.Exit = &code
	}
	return run
}

// StoredRun is a run as it is kept.
type StoredRun struct {
	MonitorID                      uuid.UUID
	N                              int64
	At                             time.Time
	ExpectedAt, StartedAt, EndedAt *time.Time
	Outcome, Reason                string
	Exit                           *int // nil: none was told
	RunID, Log                     string
}
