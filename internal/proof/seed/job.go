package seed

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// kind is what many jobs of a company have in common.
type kind struct {
	name, description, team string
	jobType                 string
	config                  string // JSON; ECHO stands for the address of the installation's echo endpoint
}

var kinds = []kind{
	{"invoice export", "Sends yesterday's invoices to accounting.", "billing", "http", `{"url":"ECHO/invoices","method":"POST","body":{"day":"yesterday"}}`},
	{"payment reconciliation", "Compares bank statements with invoices.", "billing", "http", `{"url":"ECHO/reconcile","method":"POST"}`},
	{"stock sync", "Reads what each warehouse has.", "logistics", "http", `{"url":"ECHO/stock","method":"GET"}`},
	{"route planning", "Plans the tours of the next day.", "logistics", "function", `{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":40}}`},
	{"nightly report", "Makes the report that sales reads in the morning.", "analytics", "http", `{"url":"ECHO/report","method":"POST","body":{"format":"pdf"}}`},
	{"search index", "Builds the search index anew.", "platform", "function", `{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":120}}`},
	{"cache warm-up", "Asks for the pages that are read most.", "platform", "http", `{"url":"ECHO/warm","method":"GET"}`},
	{"newsletter", "Sends the newsletter to those who asked for it.", "marketing", "http", `{"url":"ECHO/newsletter","method":"POST"}`},
	{"backup check", "Restores the last backup and compares it.", "platform", "function", `{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":300}}`},
	{"price import", "Reads suppliers' price lists.", "purchasing", "javascript", `{"source":"export default () => { console.log('imported'); return {rows: 812}; }"}`},
}

var (
	regions = []string{"emea", "apac", "us-east", "us-west", "latam"}
	stages  = []string{"production", "production", "production", "staging"}
	zones   = []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe", "Asia/Kolkata", "America/Sao_Paulo", "Europe/London"}
	// hostile are names that an attacker, an importer or a careless person makes. The API
	// refuses NUL in a name.
	hostile = []string{
		`<img src=x onerror=alert(1)><script>document.title="run"</script>`,
		"right-to-left \u202eevil\u202c \u2066mark\u2069",
		strings.Repeat("w", 200),
		"\"quoted' & {{job.name}} ${1+1} `x` \\",
	}
)

// definition is the kind's first job, as the API takes it.
func (k kind) definition(echo string) map[string]any {
	return map[string]any{
		"name": k.name, "description": k.description, "tags": []string{k.team}, "trigger": "manual",
		"jobType": k.jobType, "config": json.RawMessage(strings.ReplaceAll(k.config, "ECHO", echo)),
	}
}

// jobs makes the copies, each from its number alone.
type jobs struct {
	templates []uuid.UUID
	hostile   bool
	now       time.Time
	compiled  map[string]*schedule.Schedule
}

func newJobs(templates []uuid.UUID, c Config, now time.Time) *jobs {
	return &jobs{templates: templates, hostile: c.Hostile, now: now, compiled: make(map[string]*schedule.Schedule)}
}

// copied is a job as it differs from its template: the columns of its row, and the fields
// of its first version.
type copied struct {
	template     uuid.UUID
	row, version string // JSON
}

func (j *jobs) copy(n int) (copied, error) {
	k := kinds[n%len(kinds)]
	region, stage, zone := regions[n/len(kinds)%len(regions)], stages[n/7%len(stages)], zones[n/3%len(zones)]
	name := fmt.Sprintf("%s, %s %05d", k.name, region, n)
	tags := []string{k.team, region, stage}
	if j.hostile && n%50 == 0 {
		name, tags = hostile[n/50%len(hostile)], append(tags, "hostile", "<b>tag</b>")
	}
	row := map[string]any{
		"id": uuid.New(), "name": name, "tags": tags, "priority": n * 31 % 10, "created_at": j.now.Add(-time.Duration(n) * 3 * time.Minute),
		"updated_at": j.now.Add(-time.Duration(n) * time.Minute), "timezone": zone,
	}
	version := map[string]any{"name": name, "tags": tags, "priority": n * 31 % 10, "timezone": zone}
	if cron := cronOf(n); cron != "" {
		next, err := j.next(cron, zone)
		if err != nil {
			return copied{}, err
		}
		row["cron_expression"], version["cronExpression"] = cron, cron
		row["next_execution_at"] = next
	}
	switch {
	case n%37 == 5:
		row["status"], row["status_reason"], row["status_by"] = "paused", "the warehouse is being migrated", "ada"
	case n%61 == 7:
		row["status"], row["next_execution_at"], row["status_reason"], row["status_by"] = "inactive", nil, "10 executions in a row failed", "system"
	}
	rowJSON, err := json.Marshal(row)
	if err != nil {
		return copied{}, err
	}
	versionJSON, err := json.Marshal(version)
	return copied{template: j.templates[n%len(kinds)], row: string(rowJSON), version: string(versionJSON)}, err
}

// cronOf is when a job runs: most daily, some weekly, monthly or hourly, some only when
// triggered. So 100,000 of them are about two executions a second.
func cronOf(n int) string {
	minute, hour := n*17%60, n*7/3%24
	switch n % 20 {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("0 %d * * * *", minute)
	case 2, 3, 4:
		return fmt.Sprintf("0 %d %d * * %d", minute, hour, n/20%7)
	case 5:
		return fmt.Sprintf("0 %d %d %d * *", minute, hour, n/20%28+1)
	case 6, 7, 8:
		return fmt.Sprintf("0 %d %d * * 1-5", minute, hour)
	default:
		return fmt.Sprintf("%d %d %d * * *", n*13%60, minute, hour)
	}
}

func (j *jobs) next(cron, zone string) (*time.Time, error) {
	key := cron + " " + zone
	compiled := j.compiled[key]
	if compiled == nil {
		var err error
		if compiled, err = schedule.Compile(schedule.Definition{Cron: cron, Zone: zone}); err != nil {
			return nil, fmt.Errorf("the schedule %q: %w", cron, err)
		}
		j.compiled[key] = compiled
	}
	at, ok := compiled.Next(j.now)
	if !ok {
		return nil, nil
	}
	return &at, nil
}
