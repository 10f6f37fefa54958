package promoter

import (
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// maxCompiled bounds how many compiled schedules are kept; each takes less
// than a kilobyte.
const maxCompiled = 100_000

// compiled keeps compiled schedules, because compiling costs many times what
// asking for the next instant does. The key holds all that an edit of the job
// can change.
type compiled struct {
	kept map[compiledKey]*schedule.Schedule
}

type compiledKey struct {
	job       uuid.UUID
	version   int
	anchor    time.Time
	calendars string // their versions
}

func newCompiled() *compiled { return &compiled{kept: map[compiledKey]*schedule.Schedule{}} }

// of is the compiled schedule of a job with the contents of its calendars, of
// which the versions say whether they are still those compiled with.
func (c *compiled) of(j *dueJob, calendars []schedule.Calendar, versions string) (*schedule.Schedule, error) {
	key := compiledKey{job: j.id, version: j.version, anchor: j.anchor, calendars: versions}
	if s, ok := c.kept[key]; ok {
		return s, nil
	}
	s, err := schedule.Compile(j.spec.Definition(j.id.String(), j.anchor, calendars))
	if err != nil {
		return nil, err
	}
	if len(c.kept) >= maxCompiled {
		for old := range c.kept { // any one: the map's order is random enough
			delete(c.kept, old)
			break
		}
	}
	c.kept[key] = s
	return s, nil
}
