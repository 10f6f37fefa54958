package bench

import (
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// Statements count once however they are sent, by their name or first word; lines that
// continue one, those of others and our own count not at all.
func TestStatementsAreCountedByProgramAndName(t *testing.T) {
	t.Parallel()
	got := statementsIn([]byte(`scheduler-promoter LOG:  execute stmtcache_1: -- name: ClaimDueJobs :many
	-- Cross-tenant: the promoter.
	SELECT 1
scheduler-promoter DETAIL:  parameters: $1 = 'x'
scheduler-promoter LOG:  execute <unnamed>: -- name: ClaimDueJobs :many
scheduler-worker LOG:  statement: BEGIN
scheduler-bench LOG:  statement: SELECT 1
psql LOG:  statement: SELECT 1
`))
	want := map[string]map[string]float64{"promoter": {"ClaimDueJobs": 2}, "worker": {"BEGIN": 1}}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var out strings.Builder
	cost := &idleCost{cores: map[string]float64{"postgres": 0.0123, workerName: 0.03}, statements: got}
	printIdle(&out, "a machine", Config{Stock: true}, []row{{what: "x", idle: cost}, {what: "of the load"}})
	if want := "| x | 1.23 / 0.00 / 0.00 / 3.00 / 0.00 | 3.0 |  |\n\n- x, statements a second: promoter ClaimDueJobs 2.00, worker BEGIN 1.00\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %s", out.String())
	}
}
