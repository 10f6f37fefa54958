package bench

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/clock"
)

func TestParse(t *testing.T) {
	t.Parallel()
	full := Config{Rates: []int{100, 500, 1000, 2000, 4000, 8000}, Spread: []int{500, 10, 1000, 4000, 5000}, Fleets: []int{1, 4, 16}, Seconds: 8, Slots: 1000, Workers: 1, Promoters: 1, PromoterFleets: []int{1, 4}, Burst: 10_000, History: 5_000_000, Jobs: 100_000, Idle: 60, Repeats: 3, Tenants: 10, Backend: "auto"}
	quick := Config{Rates: []int{1000}, Spread: []int{1000}, Fleets: []int{1, 4}, Seconds: 3, Slots: 1000, Workers: 1, Promoters: 1, PromoterFleets: []int{1}, Burst: 3000, History: 100_000, Jobs: 10_000, Idle: 5, Repeats: 1, Tenants: 10, Backend: "auto"}
	some := Config{Rates: []int{5}, Fleets: []int{1, 4}, Seconds: 9, Slots: 7, Workers: 2, Promoters: 3, PromoterFleets: []int{3, 2}, Burst: 3000, History: 100_000, Jobs: 10_000, Idle: 5, Repeats: 1, Tenants: 10, Only: []string{"sql", "drain"}, Backend: "auto", Out: "x.md"}
	for _, test := range []struct {
		name, args string
		want       Config
		refused    string
	}{
		{name: "defaults", want: full},
		{name: "quick", args: "-quick", want: quick},
		{name: "quick, but what is given stays", args: "-quick -rates 5 -spread= -seconds 9 -slots 7 -workers 2 -promoters 3,2 -only sql,drain -out x.md", want: some},
		{name: "a rate that is none", args: "-rates 5,none", refused: `"none" is not a whole number`},
		{name: "no slots", args: "-slots 0", refused: "must be 1 or more"},
		{name: "no promoters", args: "-promoters=", refused: "-promoters must name one"},
		{name: "promoters that are none", args: "-promoters 1,0", refused: `-promoters: "0" is not a whole number`},
		{name: "commits that wait too long", args: "-commits 1001", refused: "-commits 0 to 1000"},
		{name: "a measurement that is none", args: "-only sql,speed", refused: `no measurement "speed"`},
		{name: "a flag that is none", args: "-fast", refused: "not defined: -fast"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var said strings.Builder
			got, err := Parse(strings.Fields(test.args), &said)
			if test.refused != "" {
				if err == nil || !strings.Contains(said.String(), test.refused) {
					t.Fatalf("got %v and %q, want %q", err, said.String(), test.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestScrapeAddsUpLabels(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `# HELP scheduler_database_round_trips_total Round trips.
scheduler_database_round_trips_total{statement="ClaimExecutions"} 40
scheduler_database_round_trips_total{statement="CompleteExecutions"} 2.5e+01
scheduler_database_round_trips_total_created 1
scheduler_executions_total{job_type="function",status="completed"} 1000
`)
	}))
	defer server.Close()
	found, err := scrape(t.Context(), strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	got := []float64{found.sum(roundTrips), found.sum(roundTrips, `statement="ClaimExecutions"`), found.sum(executions), found.sum(stale)}
	if diff := gocmp.Diff([]float64{65, 40, 1000, 0}, got); diff != "" {
		t.Errorf("all round trips, those of claims, executions, stale completions (-want +got)\n%s", diff)
	}
	c := counters{executions: found.sum(executions), trips: found.by(roundTrips)}
	if diff := gocmp.Diff("ClaimExecutions 0.040, CompleteExecutions 0.025", c.leading()); diff != "" {
		t.Errorf("round trips by statement (-want +got)\n%s", diff)
	}
}

func TestScrapeSaysWhenNobodyAnswers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if _, err := scrape(t.Context(), strings.TrimPrefix(server.URL, "http://")); err == nil {
		t.Error("an answer of 404 passed for metrics")
	}
}

func TestReadStat(t *testing.T) {
	t.Parallel()
	got := readStat("412 (odd) (name) S 7 412 412 0 -1 4194560 1 2 3 4 150 50 30 20 20 0 9 0 100")
	want := stat{pid: 412, parent: 7, program: "odd) (name", own: 2_000_000, dead: 500_000}
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(stat{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestUsageCountsAWholeTree(t *testing.T) {
	t.Parallel()
	all := map[int]stat{
		1: {pid: 1, parent: 0, own: 5, dead: 1},
		2: {pid: 2, parent: 1, own: 10, dead: 2},
		3: {pid: 3, parent: 2, own: 100},
		4: {pid: 4, parent: 9, own: 1000},
	}
	if got := all[1].cpu(all); got != 118 {
		t.Errorf("got %v µs, want those of three processes and their dead children, 118", got)
	}
}

// A program that began in between counts from its start, and one that is none of the table's
// does not count.
func TestCoresAreThoseOfAllPrograms(t *testing.T) {
	t.Parallel()
	now := clock.Now()
	from := reading{at: now, usages: map[string]usage{"postgres": {cpu: 1_000_000}, promoterName: {cpu: 500_000}}}
	to := reading{at: now.Add(4 * time.Second), usages: map[string]usage{
		"postgres": {cpu: 2_000_000}, "redis-server": {cpu: 100_000}, promoterName: {cpu: 1_000_000}, workerName: {cpu: 400_000}, "river": {cpu: 9_000_000},
	}}
	if got := costs(from, to, 1000).cores; got != 0.5 {
		t.Errorf("%v cores, want 0.5: 2 s in 4", got)
	}
}

func TestRiverSaysOneNumberOrFour(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]row{
		"24372.5\n":                 {perSecond: 24372.5, backlog: none},
		"1000.0 1500 23000 2000000": {perSecond: 1000, backlog: none, lag: lag{p50: 1500 * time.Microsecond, p99: 23 * time.Millisecond, max: 2 * time.Second}},
	} {
		got, err := riverRow(said)
		if err != nil || got.perSecond != want.perSecond || got.backlog != want.backlog || got.lag != want.lag {
			t.Errorf("%q: got %+v, %v", said, got, err)
		}
	}
	for _, said := range []string{"", "1 2", "none", "1 2 3 x"} {
		if got, err := riverRow(said); err == nil {
			t.Errorf("%q: got %+v", said, got)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		all  []int
		want int
	}{{"one", []int{4}, 4}, {"odd", []int{9, 1, 5}, 5}, {"even takes the lower", []int{4, 3, 1, 2}, 2}} {
		if got := median(test.all, cmp.Compare); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	printTable(&text, "2 cores", Config{Workers: 1, Slots: 100, Tenants: 10}, []row{
		{key: sqlKey, what: "limit: SQL alone", perSecond: 20_000, backlog: none},
		{key: riverKey, what: "beside: River, drained", perSecond: 30_000, backlog: none},
		{what: "limit: a stranger", perSecond: 1, backlog: none},
		{
			what: "1000 due each second", perSecond: 999.6, lag: lag{p50: 12 * time.Millisecond, p99: 34 * time.Millisecond, max: time.Second},
			atTarget: lag{p50: 13 * time.Millisecond, p99: 35 * time.Millisecond, max: 2 * time.Second}, trips: 0.25, wal: 900,
			cpu: map[string]float64{"postgres": 60, "redis-server": 5, promoterName: 20, workerName: 40}, memory: map[string]float64{workerName: 30}, others: 0.05, cores: 0.125,
		},
		{key: drainKey, what: "drained", perSecond: 15_000, backlog: none},
		{what: "all reads", perSecond: 400, backlog: none, answers: &latency{p50: 1500 * time.Microsecond, p95: 2 * time.Millisecond, p99: 3 * time.Millisecond, max: time.Second}},
	})
	printAnswers(&text, Config{}, []row{{what: "all reads", perSecond: 400, answers: &latency{p50: 1500 * time.Microsecond, p95: 2 * time.Millisecond, p99: 3 * time.Millisecond, max: time.Second}}})
	var api strings.Builder
	printTable(&api, "2 cores", Config{}, []row{{what: "drained", perSecond: 1}, {what: "limit: one row read", answers: &latency{}, load: true}})
	if strings.Contains(api.String(), "keeps a record") {
		t.Errorf("without a row of others\n%s", api.String())
	}
	for _, line := range []string{
		"| limit: SQL alone | 20000 |  |  |  |  |  |  |  |  |  |",
		"| 1000 due each second | 1000 | 12 / 34 / 1000 | 13 / 35 / 2000 | 0 | 0.25 | 900 | 60 / 5 / 20 / 40 | 12 | – / – / – / 30 | 5 % |",
		"- drain: 0.75 of SQL alone",
		"| what it does | keeps a record | knows tenants | has limits | has a schedule | is durable |",
		"| SQL alone | yes | yes | counts each tenant's | no | yes |\n| River, drained | the job itself, for a day | no | of the process alone | no | yes |\n| a stranger | ? | ? | ? | ? | ? |\n| the product | yes | yes | yes | yes, but not of what waits in the pool | yes |",
		"| all reads | 400 | 1.5 / 2.0 / 3.0 / 1000.0 |  |",
	} {
		if !strings.Contains(text.String(), line+"\n") {
			t.Errorf("%q is missing in\n%s", line, text.String())
		}
	}
}

// The table says how commits are slowed, and jobs are not expected to be created faster than
// they can be: eight at a time, each in a commit that may wait for the one before it.
func TestSlowCommitsAreSaid(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		commits int
		want    string
		pace    float64
	}{
		{0, "PostgreSQL with fsync", 1000},
		{20, "Each commit waits 20 ms more (commit_delay). PostgreSQL", 200},
		{100, "Each commit waits 100 ms more (commit_delay). PostgreSQL", 40},
		{400, "Each fsync of PostgreSQL waits 400 ms more, and a commit for one or two of them. PostgreSQL", 10},
	} {
		var text strings.Builder
		c := Config{Commits: test.commits}
		printTable(&text, "2 cores", c, nil)
		if !strings.Contains(text.String(), "\n"+test.want) || c.firstPace() != test.pace {
			t.Errorf("%d ms: %v jobs a second, and\n%s", test.commits, c.firstPace(), text.String())
		}
	}
}

func TestMachineIsNamedByWhatMatters(t *testing.T) {
	t.Parallel()
	if host, err := os.Hostname(); err == nil && strings.Contains(thisMachine(), host) {
		t.Errorf("%q names the host", thisMachine())
	}
	if !strings.Contains(thisMachine(), "cores") {
		t.Errorf("%q does not say how many cores", thisMachine())
	}
}
