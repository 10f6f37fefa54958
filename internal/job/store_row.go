package job

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/db"
)

// Rows stop here: nulls, enumerations and JSON columns become domain values.

func fromRow(r db.ScheduledJob) (Job, error) {
	j := Job{
		ID: r.ID, TenantID: r.TenantID, Version: int(r.Version), CreatedBy: r.CreatedBy,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(), AnchorAt: r.AnchorAt.UTC(),
		Status: Status(r.Status), StatusReason: r.StatusReason,
		StatusBy: r.StatusBy, StatusAt: r.StatusAt.UTC(), PausedUntil: utc(r.PausedUntil),
		NextExecutionAt: utc(r.NextExecutionAt), LastExecutionAt: utc(r.LastExecutionAt), ExecutionCount: r.ExecutionCount,
		AuditedAt: utc(r.AuditedAt), AuditDifference: r.AuditDifference,
		Spec: Spec{
			Name: r.Name, Description: r.Description, Tags: r.Tags, Timezone: r.Timezone,
			RunAt: utc(r.RunAt), StartDate: utc(r.StartDate), EndDate: utc(r.EndDate),
			Type: r.JobType, Config: r.Config, Timeout: int(r.TimeoutSeconds), Priority: int(r.Priority),
			MaxExecutions: orZero(r.MaxExecutions), JitterSeconds: int(r.JitterSeconds), DSTGap: r.DstGap, DSTOverlap: r.DstOverlap,
			MaxConcurrent: int(r.MaxConcurrent), Overlap: Overlap(r.OverlapPolicy), OverlapQueueLimit: int(r.OverlapQueueLimit),
			Misfire:              Misfire{Policy: MisfirePolicy(r.MisfirePolicy), Limit: int(r.MisfireLimit), GraceSeconds: int(r.MisfireGraceSeconds)},
			DisableAfterFailures: int(orZero(r.DisableAfterFailures)), ConcurrencyKey: r.ConcurrencyKey,
		},
	}
	if r.CronExpression != nil {
		j.CronExpression = *r.CronExpression
	}
	if r.IntervalMs != nil {
		j.Interval = Duration(time.Duration(*r.IntervalMs) * time.Millisecond)
	}
	if err := json.Unmarshal(r.RetryConfig, &j.Retry); err != nil {
		return Job{}, fmt.Errorf("read the retry rule of job %s: %w", r.ID, err)
	}
	if err := json.Unmarshal(r.Calendars, &j.Calendars); err != nil {
		return Job{}, fmt.Errorf("read the calendars of job %s: %w", r.ID, err)
	}
	return j, nil
}

// insertParams holds what comes from the definition; who, when and where the
// caller adds.
func insertParams(s Spec) (db.InsertJobParams, error) {
	retry, err := json.Marshal(s.Retry)
	if err != nil {
		return db.InsertJobParams{}, fmt.Errorf("write the retry rule: %w", err)
	}
	calendars, err := json.Marshal(append([]Calendar{}, s.Calendars...))
	if err != nil {
		return db.InsertJobParams{}, fmt.Errorf("write the calendars: %w", err)
	}
	p := db.InsertJobParams{
		Name: s.Name, Description: s.Description, Tags: s.Tags,
		CronExpression: orNil(s.CronExpression), Timezone: s.Timezone, RunAt: s.RunAt, StartDate: s.StartDate, EndDate: s.EndDate,
		JobType: s.Type, Config: s.Config, RetryConfig: retry, MaxAttempts: int32(s.Retry.MaxRetries) + 1,
		TimeoutSeconds: int32(s.Timeout), Priority: int16(s.Priority),
		JitterSeconds: int32(s.JitterSeconds), DstGap: s.DSTGap, DstOverlap: s.DSTOverlap, Calendars: calendars,
		MaxExecutions: orNil(s.MaxExecutions), MaxConcurrent: int32(s.MaxConcurrent),
		OverlapPolicy: string(s.Overlap), OverlapQueueLimit: int32(s.OverlapQueueLimit),
		MisfirePolicy: string(s.Misfire.Policy), MisfireLimit: int32(s.Misfire.Limit), MisfireGraceSeconds: int32(s.Misfire.GraceSeconds),
		DisableAfterFailures: orNil(int32(s.DisableAfterFailures)), ConcurrencyKey: s.ConcurrencyKey,
	}
	if s.Interval != 0 {
		ms := time.Duration(s.Interval).Milliseconds()
		p.IntervalMs = &ms
	}
	return p, nil
}

func updateParams(p db.InsertJobParams) db.UpdateJobParams {
	return db.UpdateJobParams{
		Name: p.Name, Description: p.Description, Tags: p.Tags,
		CronExpression: p.CronExpression, Timezone: p.Timezone, IntervalMs: p.IntervalMs, RunAt: p.RunAt,
		StartDate: p.StartDate, EndDate: p.EndDate,
		JobType: p.JobType, Config: p.Config, RetryConfig: p.RetryConfig, MaxAttempts: p.MaxAttempts,
		TimeoutSeconds: p.TimeoutSeconds, Priority: p.Priority,
		JitterSeconds: p.JitterSeconds, DstGap: p.DstGap, DstOverlap: p.DstOverlap, Calendars: p.Calendars,
		MaxExecutions: p.MaxExecutions, MaxConcurrent: p.MaxConcurrent, OverlapPolicy: p.OverlapPolicy, OverlapQueueLimit: p.OverlapQueueLimit,
		MisfirePolicy: p.MisfirePolicy, MisfireLimit: p.MisfireLimit, MisfireGraceSeconds: p.MisfireGraceSeconds,
		DisableAfterFailures: p.DisableAfterFailures, SecretNames: p.SecretNames, ConcurrencyKey: p.ConcurrencyKey,
	}
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
