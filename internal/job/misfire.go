package job

import (
	"cmp"
	"time"
)

// Misfire is what happens to instants that were not promoted in time: the
// promoters were down, or the database was.
type Misfire struct {
	// Policy is one of the three below.
	Policy MisfirePolicy `json:"policy" column:"misfire_policy" api:"misfirePolicy"`
	// Limit bounds how many instants run at one catching up, 1 to 1,000; of
	// more, the newest run.
	Limit int `json:"limit" column:"misfire_limit" api:"misfireLimit"`
	// GraceSeconds is how late an instant may be and still run as if on time,
	// 1 to one day.
	GraceSeconds int `json:"graceSeconds" column:"misfire_grace_seconds" api:"misfireGraceSeconds"`
}

// withDefaults fills in what is left out: the newest of the instants that are
// more than a minute late runs.
func (m Misfire) withDefaults() Misfire {
	return Misfire{
		Policy: cmp.Or(m.Policy, FireOnce), Limit: cmp.Or(m.Limit, 100), GraceSeconds: cmp.Or(m.GraceSeconds, 60),
	}
}

// MisfirePolicy says which of the instants beyond the grace time still run.
type MisfirePolicy string

// The policies.
const (
	MisfireSkip MisfirePolicy = "skip"      // none of them
	FireOnce    MisfirePolicy = "fire_once" // the newest of them
	FireAll     MisfirePolicy = "fire_all"  // all of them, up to the limit
)

// Decide says how many of the owed instants, which are in ascending order and
// due at or before now, do not run: the first so many of them. The rest run.
func (m Misfire) Decide(owed []time.Time, now time.Time) (missed int) {
	late := 0
	for late < len(owed) && now.Sub(owed[late]) > time.Duration(m.GraceSeconds)*time.Second {
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
	return max(missed, len(owed)-max(1, m.Limit))
}
