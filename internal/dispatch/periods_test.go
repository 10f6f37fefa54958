package dispatch

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// stated are the periods that statements state, in the order in which they stand.
var stated = map[string][]time.Duration{
	"InsertDueExecutions":      {HintPatience},
	"InsertBackfillExecutions": {HintPatience},
	"HoldBackfill":             {holdBackfill},
	"ClaimExecutions":          {DeadlineMargin, SweepAhead},
	"ClaimLimitedExecutions":   {DeadlineMargin, SweepAhead},
	"ListNextExecutions":       {priorityWorth, priorityWorth},
	"ListPooledExecutions":     {cancelSkew, priorityWorth, priorityWorth},
	"CompleteExecutions":       {backloggedFor},
	"ReleaseExecutions":        {SweepAhead},
	"HoldExecutions":           {SweepAhead, backloggedFor},
	"ListExecutionsOfWorker":   {SweepAhead},
	"ReassignExecutions":       {SweepAhead},
	"ListLostExecutions":       {SweepAhead},
	"PutOffParkedExecution":    {parkedMin, parkedMax},
}

// holdBackfill is how long a backfill that fails alone is left alone.
const holdBackfill = time.Minute

// Statements and Go agree about periods, and no statement has one that nobody named.
func TestStatementsStateThePeriods(t *testing.T) {
	t.Parallel()
	found := make(map[string][]time.Duration)
	period := regexp.MustCompile(`interval '(\d+) (second|minute)s?'|/ 1000\.0 \+ (\d+)\)`)
	for _, file := range []string{"backfills", "cancel", "claim", "complete", "insert_executions", "next", "park", "poll", "reassign", "release"} {
		text, err := os.ReadFile("../../db/queries/" + file + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range strings.Split(string(text), "-- name: ")[1:] {
			name, _, _ := strings.Cut(statement, " ")
			for _, m := range period.FindAllStringSubmatch(statement, -1) {
				unit := map[string]string{"second": "s", "minute": "m", "": "s"}[m[2]]
				d, err := time.ParseDuration(m[1] + m[3] + unit)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				found[name] = append(found[name], d)
			}
		}
	}
	if diff := cmp.Diff(stated, found); diff != "" {
		t.Errorf("periods (-named +stated):\n%s", diff)
	}
}
