package job

import "github.com/scheduler-service/scheduler/internal/job/keytemplate"

// KeyOf returns the concurrency key of a run; empty when no limit applies. It is
// stored with the execution, so that a later edit of the job changes nothing of
// what waits.
func (p Policy) KeyOf(run keytemplate.Run) string {
	if p.ConcurrencyKey == "" {
		return ""
	}
	template, err := keytemplate.Parse(p.ConcurrencyKey)
	if err != nil {
		return "" // it was valid when it was stored
	}
	return template.Render(run)
}
