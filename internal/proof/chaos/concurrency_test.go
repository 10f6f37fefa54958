package chaos

import (
	"net/http"
	"testing"
	"time"
)

// A call whose report was refused went on after its attempt: the job was deleted while the
// execution waited for its next one, and another ran meanwhile.
func TestRefusedReportIsOfNoAttemptThatRuns(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 9, 25, 0, 0, time.UTC)
	over := at.Add(time.Minute)
	r := row{status: "cancelled", attempt: 3, completedAt: &over}
	for name, test := range map[string]struct {
		call call
		want bool
	}{
		"in time":                    {call{attempt: 3, start: at, end: at.Add(time.Second), reported: true, status: http.StatusOK}, true},
		"refused":                    {call{attempt: 3, start: at, end: at.Add(time.Second), reported: true, aborted: true, status: http.StatusConflict}, false},
		"after the end":              {call{attempt: 3, start: at, end: over.Add(time.Second)}, false},
		"of an attempt given up":     {call{attempt: 2, start: at, end: at.Add(time.Second)}, false},
		"of an attempt that failed":  {call{attempt: 2, start: at, end: at.Add(time.Second), status: http.StatusInternalServerError}, true},
		"which the worker broke off": {call{attempt: 3, start: at, end: at.Add(time.Second), aborted: true}, true},
	} {
		if got := (&evidence{}).ownedThroughout(r, test.call); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
