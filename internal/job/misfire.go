package job

import (
	"cmp"
	"time"
)

// Misfire says what happens to scheduled times that were not promoted in time,
// because the promoters or the database were down.
type Misfire struct {
	// Policy is one of the three below.
	Policy MisfirePolicy `json:"policy" column:"misfire_policy" api:"misfirePolicy"`
	// Limit bounds how many scheduled times run at one catching up, 1 to 1,000; of
	// more, the newest run.
	Limit int `json:"limit" column:"misfire_limit" api:"misfireLimit"`
	// GraceSeconds is how late a time may be and still run as if on time,
	// 1 to one day.
	GraceSeconds int `json:"graceSeconds" column:"misfire_grace_seconds" api:"misfireGraceSeconds"`
}

// withDefaults fills in what is left out: the newest of the times that are
// more than a minute late runs.
func (m Misfire) withDefaults() Misfire {
	return Misfire{
		Policy: cmp.Or(m.Policy, FireOnce), Limit: cmp.Or(m.Limit, 100), GraceSeconds: cmp.Or(m.GraceSeconds, 60),
	}
}

// MisfirePolicy says which of the times beyond the grace time still run.
type MisfirePolicy string

// The policies.
const (
	MisfireSkip MisfirePolicy = "skip"      // none of them
	FireOnce    MisfirePolicy = "fire_once" // the newest of them
	FireAll     MisfirePolicy = "fire_all"  // all of them, up to the limit
)

// Decide returns how many of the due times, in ascending order and at or before
// now, do not run: the first so many of them. The rest run.
func (m Misfire) Decide(times []time.Time, now time.Time) (missed int) {
	late := 0
	for late < len(times) && now.Sub(times[late]) > time.Duration(m.GraceSeconds)*time.Second {
		late++
	}
	switch m.Policy {
	case MisfireSkip:
		missed = late
	case FireAll:
		missed = 0
	default:
		missed = max(0, late-1)
	}
	return max(missed, len(times)-max(1, m.Limit))
}
