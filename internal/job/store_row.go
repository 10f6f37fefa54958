package job

import (
	"fmt"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
)

// Rows stop here: nulls, enumerations and JSON columns become domain values.

func fromRow(r db.ScheduledJob) (Job, error) {
	j := Job{
		ID: r.ID, TenantID: r.TenantID, Version: int(r.Version), CreatedBy: r.CreatedBy,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(), AnchorAt: r.AnchorAt.UTC(),
		Status: Status(r.Status), StatusReason: r.StatusReason,
		StatusBy: r.StatusBy, StatusAt: r.StatusAt.UTC(), PausedUntil: columns.UTC(r.PausedUntil),
		NextExecutionAt: columns.UTC(r.NextExecutionAt), LastExecutionAt: columns.UTC(r.LastExecutionAt), ExecutionCount: r.ExecutionCount,
		AuditedAt: columns.UTC(r.AuditedAt), AuditDifference: r.AuditDifference,
	}
	if err := readColumns(&j.Spec, &r); err != nil {
		return Job{}, fmt.Errorf("read job %s: %w", r.ID, err)
	}
	return j, nil
}

// Read fills the policy from a row of any statement, given by its address. The row
// has a column for each setting.
func (p *Policy) Read(row any) error { return readColumns(p, row) }
