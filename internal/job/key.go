package job

import (
	"encoding/json"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/job/keytemplate"
)

// KeyOf is the concurrency key of a run of the job with these parameters, which
// are nil where there are none; empty when no limit applies. Whoever makes an
// execution stores it on the row, so that a later edit of the job changes
// nothing of what waits.
func (s Spec) KeyOf(id uuid.UUID, parameters json.RawMessage) string {
	if s.ConcurrencyKey == "" {
		return ""
	}
	template, err := keytemplate.Parse(s.ConcurrencyKey)
	if err != nil {
		return "" // it was valid when it was stored
	}
	return template.Render(keytemplate.Run{JobID: id, JobName: s.Name, JobType: s.Type, Config: s.Config, Parameters: parameters})
}
