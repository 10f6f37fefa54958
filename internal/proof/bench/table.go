package bench

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// none stands for a number that a row does not have.
const none = -1

// The rows that others are compared with.
const (
	singleKey   = "single"
	chunkedKey  = "chunked"
	sqlLargeKey = "sql large"
	sqlKey      = "sql"
	drainKey    = "drain"
	riverKey    = "river"
	riverDueKey = "river due"
)

// The beginnings of rows that are not the product.
const (
	limitWord  = "limit: "
	besideWord = "beside: "
)

// traits are what is done in the time that a row measures.
type traits struct{ record, tenants, limits, schedule, durable string }

// does says it of the rows that are not the product, by their keys.
func does() map[string]traits {
	const yes, no = "yes", "no"
	asynq := traits{record: no, tenants: no, limits: no, schedule: no, durable: "but for a second"}
	sql := traits{record: yes, tenants: yes, limits: "counts each tenant's", schedule: no, durable: yes}
	river := traits{record: "the job itself, for a day", tenants: no, limits: "of the process alone", schedule: no, durable: yes}
	due := river
	due.schedule = "a time of each job"
	return map[string]traits{singleKey: asynq, chunkedKey: asynq, sqlLargeKey: sql, sqlKey: sql, riverKey: river, riverDueKey: due}
}

// printTraits says of the rows that are not the product what they do and leave out, because
// most of the difference to the product is what they leave out.
func printTraits(out io.Writer, rows []row) {
	head := "| what it does | keeps a record | knows tenants | has limits | has a schedule | is durable |\n| --- | --- | --- | --- | --- | --- |\n"
	for _, r := range rows {
		name, limit := strings.CutPrefix(r.what, limitWord)
		name, beside := strings.CutPrefix(name, besideWord)
		if !r.ofLoad() || !limit && !beside {
			continue
		}
		t, known := does()[r.key]
		if !known {
			t = traits{"?", "?", "?", "?", "?"}
		}
		fmt.Fprintf(out, "%s| %s | %s | %s | %s | %s | %s |\n", head, name, t.record, t.tenants, t.limits, t.schedule, t.durable)
		head = ""
	}
	if head == "" {
		fmt.Fprint(out, "| the product | yes | yes | yes | yes, but not of what waits in the pool | yes |\n\n")
	}
}

// row is one line of the table. Cells that are zero, or none, are left empty.
type row struct {
	key       string
	what      string
	perSecond float64
	lag       lag
	atTarget  lag // the same to the arrival of the call; zero where nothing is called
	backlog   int
	trips     float64            // database round trips per execution
	cpu       map[string]float64 // µs of processor per execution, by program
	memory    map[string]float64 // MB, by program
	cores     float64            // processors that all programs together took
	wal       float64            // bytes of PostgreSQL's log ahead per execution
	others    float64            // share of the processors that others had meanwhile
	answers   *latency           // of the API's rows, which have tables of their own
	idle      *idleCost          // of an idle installation's rows, the same
	load      bool               // of the API under load
	program   string             // that answered under load; empty: this one
}

// ofLoad says whether the row is one of the table of loads.
func (r row) ofLoad() bool { return r.answers == nil && r.idle == nil }

// latency is from the moment at which a request should have been sent to the
// end of its answer.
type latency struct{ p50, p95, p99, max time.Duration }

// printTable writes the table, and how the product compares with the limits.
func printTable(out io.Writer, machine string, c Config, rows []row) {
	fmt.Fprintf(out, "%s of %d tenants, %d worker(s) of %d slots, everything on one machine: %s.\n", c.loadOf(), c.Tenants, c.Workers, c.Slots, machine)
	fmt.Fprintf(out, "%sPostgreSQL with fsync and synchronous commit, Redis with an append-only file synced each second.\n\n", c.commitsOf())
	fmt.Fprintln(out, "| what | executions/s | start lag p50 / p99 / max (ms) | lag at the target p50 / p99 / max (ms) | backlog at the end | round trips each | WAL each (B) | CPU each: PostgreSQL / Redis / promoter / worker (µs) | CPU of all four (% of a core) | memory: the same (MB) | others had |")
	fmt.Fprintln(out, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range rows {
		if !r.ofLoad() {
			continue
		}
		fmt.Fprintf(out, "| %s | %.0f | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", r.what, r.perSecond, r.lag, r.atTarget, r.backlogText(),
			optional("%.2f", r.trips), optional("%.0f", r.wal), byProgram(r.cpu), optional("%.0f", 100*r.cores), byProgram(r.memory), optional("%.0f %%", 100*r.others))
	}
	fmt.Fprintln(out)
	printTraits(out, rows)
	printRatios(out, rows)
}

// printAnswers writes the table of the API, where it was measured.
func printAnswers(out io.Writer, c Config, rows []row) {
	head := fmt.Sprintf("\nThe REST API with %d jobs and %d executions stored, %d requests a second of %d tenants, the load on the same machine:\n\n"+
		"| request | a second | p50 / p95 / p99 / max (ms) | others had |\n| --- | --- | --- | --- |\n", c.Jobs, c.History, apiRate, tenants)
	for _, r := range rows {
		if r.answers == nil || r.load {
			continue
		}
		l := *r.answers
		fmt.Fprintf(out, "%s| %s | %.0f | %s / %s / %s / %s | %s |\n", head, r.what, r.perSecond,
			tenths(l.p50), tenths(l.p95), tenths(l.p99), tenths(l.max), optional("%.0f %%", 100*r.others))
		head = ""
	}
}

func tenths(d time.Duration) string {
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
}

// printRatios sets the drain, where the product is limited by itself alone,
// against each limit of the same run.
func printRatios(out io.Writer, rows []row) {
	byKey := map[string]row{}
	for _, r := range rows {
		byKey[r.key] = r
	}
	drained, ok := byKey[drainKey]
	if !ok {
		return
	}
	for _, key := range []string{riverKey, sqlKey, chunkedKey, singleKey} {
		if limit, ok := byKey[key]; ok {
			fmt.Fprintf(out, "- drain: %.2f of %s\n", drained.perSecond/limit.perSecond, strings.TrimPrefix(strings.TrimPrefix(limit.what, limitWord), besideWord))
		}
	}
}

// String is the lag as a cell, in ms.
func (l lag) String() string {
	if l == (lag{}) {
		return ""
	}
	return fmt.Sprintf("%s / %s / %s", millis(l.p50), millis(l.p99), millis(l.max))
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.0f", float64(d)/float64(time.Millisecond))
}

func (r row) backlogText() string {
	if r.backlog == none {
		return ""
	}
	return fmt.Sprint(r.backlog)
}

func optional(format string, value float64) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprintf(format, value)
}

func byProgram(values map[string]float64) string {
	if len(values) == 0 {
		return ""
	}
	var cells []string
	for _, name := range groups() {
		cell := "–"
		if value, ok := values[name]; ok {
			cell = fmt.Sprintf("%.0f", value)
		}
		cells = append(cells, cell)
	}
	return strings.Join(cells, " / ")
}
