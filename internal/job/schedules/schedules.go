// Package schedules keeps the compiled schedules of jobs.
//
// It owns what a compiled schedule depends on (the job's version, its anchor,
// and its calendars as they are now) and when one is forgotten. It refuses to
// read jobs: its callers hold them.
package schedules

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// maxKept bounds how many compiled schedules are kept; each takes less than a
// kilobyte.
const maxKept = 100_000

// Job is what a schedule is compiled from.
type Job struct {
	ID      uuid.UUID
	Version int
	Anchor  time.Time // where its interval counts from
	Policy  *job.Policy
}

// Cache keeps compiled schedules, because compiling costs many times what
// asking for the next scheduled time does. One goroutine at a time uses it.
type Cache struct {
	kept map[key]*schedule.Schedule
}

// key holds all that an edit of the job or of its calendars can change.
type key struct {
	job       uuid.UUID
	version   int
	anchor    time.Time
	calendars string // their versions
}

// NewCache makes an empty cache.
func NewCache() *Cache { return &Cache{kept: map[key]*schedule.Schedule{}} }

// Of returns the compiled schedule of a job whose calendars are among those
// loaded.
func (c *Cache) Of(j Job, loaded Calendars) (*schedule.Schedule, error) {
	calendars, versions, err := loaded.of(j.Policy.Calendars)
	if err != nil {
		return nil, err
	}
	k := key{job: j.ID, version: j.Version, anchor: j.Anchor, calendars: versions}
	if s, ok := c.kept[k]; ok {
		return s, nil
	}
	s, err := schedule.Compile(j.Policy.Definition(j.ID.String(), j.Anchor, calendars))
	if err != nil {
		return nil, err
	}
	if len(c.kept) >= maxKept {
		for old := range c.kept { // any one: the map's order is random enough
			delete(c.kept, old)
			break
		}
	}
	c.kept[k] = s
	return s, nil
}

// Calendars are those that some jobs name, as they are now.
type Calendars map[uuid.UUID]content

type content struct {
	set        schedule.Calendar
	version    int32
	unreadable error // nil: it is readable
}

// of are the contents of the named calendars, and a text that changes with them.
func (c Calendars) of(named []job.Calendar) (sets []schedule.Calendar, versions string, err error) {
	for _, one := range named {
		found := c[one.ID]
		if found.unreadable != nil {
			return nil, "", fmt.Errorf("calendar %s: %w", one.ID, found.unreadable)
		}
		found.set.Mode = one.Mode
		sets = append(sets, found.set)
		versions += fmt.Sprint(one.ID, found.version, one.Mode, ";")
	}
	return sets, versions, nil
}
