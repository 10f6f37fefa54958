package importer

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// aliases are the names that stand for five fields.
var aliases = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

var (
	assignment = regexp.MustCompile(`^\s*(?:([A-Za-z_][A-Za-z0-9_]*)|"([^"]*)"|'([^']*)')\s*=\s*(.*?)\s*$`)
	words      = regexp.MustCompile(`^\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(.+)$`)
)

// table is a crontab while it is read.
type table struct {
	f      *found
	system bool // the sixth field is a user
	zone   string
	env    map[string]string
}

// readCrontab reads a crontab: of a user, or of the system with the user's name before
// each command.
func readCrontab(system bool) func(text, zone string, f *found) {
	return func(text, zone string, f *found) {
		t := table{f: f, system: system, zone: zone, env: map[string]string{}}
		number := 0
		for line := range strings.Lines(text) {
			number++
			line = strings.TrimSpace(line)
			switch {
			case line == "" || line[0] == '#':
			case assignment.MatchString(line) && !strings.ContainsRune("0123456789*@", rune(line[0])):
				t.assign(number, line)
			default:
				t.entry(number, line)
			}
		}
	}
}

// assign takes a setting, which holds for the lines below it.
func (t *table) assign(number int, line string) {
	m := assignment.FindStringSubmatch(line)
	name, value := m[1]+m[2]+m[3], m[4]
	if len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
		value = value[1 : len(value)-1]
	}
	switch name {
	case "CRON_TZ":
		t.zone = value
	case "MAILTO", "MAILFROM":
		t.f.note(number, "%s is left out: who hears of a run is said by webhooks and notifications", name)
	case "RANDOM_DELAY":
		t.f.note(number, "RANDOM_DELAY is left out: give the jobs jitterSeconds")
	default:
		t.env[name] = value
	}
}

func (t *table) entry(number int, line string) {
	schedule, command, ok := splitEntry(line)
	if !ok {
		t.f.left(number, "it is neither a setting nor five fields and a command")
		return
	}
	if t.system {
		user, rest, found := strings.Cut(command, " ")
		if rest = strings.TrimSpace(rest); !found || rest == "" {
			t.f.left(number, "it has no user before its command")
			return
		}
		t.f.note(number, "the user %q is left out: a worker runs commands as its own user", user)
		command = rest
	}
	command, ok = unescape(command)
	if !ok {
		t.f.left(number, "its command has a %% and with it an input, which a job cannot have")
		return
	}
	cron, err := five(vixie, schedule)
	if err != nil {
		t.f.left(number, "%v", err)
		return
	}
	shell := t.env["SHELL"]
	if shell == "" {
		shell = "/bin/sh"
	}
	env := map[string]string{}
	for name, value := range t.env {
		if name != "SHELL" {
			env[name] = value
		}
	}
	t.f.add(Entry{Line: number, Name: command, Cron: cron, Zone: t.zone, Args: []string{shell, "-c", command}, Env: env, Retries: -1})
}

// splitEntry divides a line into schedule and command.
func splitEntry(line string) (schedule, command string, ok bool) {
	if line[0] == '@' {
		alias, command, found := strings.Cut(line, " ")
		if !found {
			alias, command, found = strings.Cut(line, "\t")
		}
		return alias, strings.TrimSpace(command), found && strings.TrimSpace(command) != ""
	}
	m := words.FindStringSubmatch(line)
	if m == nil {
		return "", "", false
	}
	return strings.Join(m[1:6], " "), m[6], true
}

// unescape is the command as the shell gets it: \% is a percent sign. A bare one begins
// the command's input.
func unescape(command string) (string, bool) {
	plain := strings.ReplaceAll(command, `\%`, "\x00")
	return strings.ReplaceAll(plain, "\x00", "%"), !strings.Contains(plain, "%")
}

// five reads an expression of five fields, or an alias of one, into ours.
func five(d dialect, text string) (string, error) {
	if strings.HasPrefix(text, "@") {
		long, known := aliases[strings.ToLower(text)]
		if !known {
			return "", fmt.Errorf("%s has no counterpart here", text)
		}
		text = long
	}
	parts := strings.Fields(text)
	if len(parts) != 5 {
		return "", fmt.Errorf("%q has %d fields, not 5", text, len(parts))
	}
	kinds := []kind{minute, hour, dayOfMonth, month, d.dayOfWeek()}
	read := make([]values, len(kinds))
	for i, k := range kinds {
		var err error
		if read[i], err = d.read(k, parts[i]); err != nil {
			return "", err
		}
	}
	star := func(v values) bool { return v.starred }
	if d.open { // robfig: a step takes the star away
		star = func(v values) bool { return v.starred && v.full() }
	}
	days, weekdays, err := posix(read[2], read[4], star)
	if err != nil {
		return "", err
	}
	return strings.Join([]string{"0", read[0].String(), read[1].String(), days, read[3].String(), weekdays}, " "), nil
}

// readCronJobs reads the CronJobs of a file of Kubernetes objects.
func readCronJobs(text, zone string, f *found) {
	line := 1
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		readCronJob(document, line, zone, f)
		line += strings.Count(document, "\n") + 1
	}
}

type cronJob struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		Schedule                string `json:"schedule"`
		TimeZone                string `json:"timeZone"`
		StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds"`
		ConcurrencyPolicy       string `json:"concurrencyPolicy"`
		Suspend                 bool   `json:"suspend"`
		JobTemplate             struct {
			Spec struct {
				ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds"`
				BackoffLimit          *int   `json:"backoffLimit"`
				Template              struct {
					Spec struct {
						Containers []container `json:"containers"`
					} `json:"spec"`
				} `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
	Items []json.RawMessage `json:"items"`
}

type container struct {
	Image   string   `json:"image"`
	Command []string `json:"command"`
	Args    []string `json:"args"`
	Env     []struct {
		Name      string `json:"name"`
		Value     string `json:"value"`
		ValueFrom any    `json:"valueFrom"`
	} `json:"env"`
}

// overlaps are Kubernetes' words for what happens beside a run that goes on.
var overlaps = map[string]string{"": "allow", "Allow": "allow", "Forbid": "skip", "Replace": "cancel_running"}

func readCronJob(document string, line int, zone string, f *found) {
	var c cronJob
	if err := yaml.Unmarshal([]byte(document), &c); err != nil {
		f.left(line, "it is no YAML: %v", err)
		return
	}
	for _, item := range c.Items {
		readCronJob(string(item), line, zone, f)
	}
	if c.Kind != "CronJob" {
		return
	}
	cron, every, err := robfigs(c.Spec.Schedule)
	if err != nil {
		f.left(line, "%s: %v", c.Metadata.Name, err)
		return
	}
	overlap, known := overlaps[c.Spec.ConcurrencyPolicy]
	if !known {
		f.left(line, "%s: the concurrencyPolicy %q is not known", c.Metadata.Name, c.Spec.ConcurrencyPolicy)
		return
	}
	if c.Spec.TimeZone != "" {
		zone = c.Spec.TimeZone
	}
	e := Entry{
		Line: line, Name: path.Join(c.Metadata.Namespace, c.Metadata.Name), Cron: cron, Interval: every, Zone: zone, Overlap: overlap,
		Retries: -1, Suspended: c.Spec.Suspend, Env: map[string]string{},
	}
	if s := c.Spec.StartingDeadlineSeconds; s != nil {
		e.Grace = time.Duration(*s) * time.Second
	}
	spec := c.Spec.JobTemplate.Spec
	if spec.ActiveDeadlineSeconds != nil {
		e.Timeout = time.Duration(*spec.ActiveDeadlineSeconds) * time.Second
	}
	if spec.BackoffLimit != nil {
		e.Retries = *spec.BackoffLimit
	}
	takeContainers(spec.Template.Spec.Containers, &e, f)
	f.add(e)
}

// takeContainers takes the first container's command, and notes all that a job of ours does
// not have.
func takeContainers(all []container, e *Entry, f *found) {
	if len(all) == 0 {
		return
	}
	if len(all) > 1 {
		f.note(e.Line, "%s: of %d containers only the first is taken", e.Name, len(all))
	}
	first := all[0]
	e.Args = append(append([]string{}, first.Command...), first.Args...)
	f.note(e.Line, "%s: the image %s is left out", e.Name, first.Image)
	for _, v := range first.Env {
		if v.ValueFrom != nil {
			f.note(e.Line, "%s: the variable %s is left out: its value is elsewhere; use a secret", e.Name, v.Name)
			continue
		}
		e.Env[v.Name] = v.Value
	}
}

// robfigs reads an expression as Kubernetes does.
func robfigs(text string) (cron string, every time.Duration, err error) {
	if rest, ok := strings.CutPrefix(text, "@every "); ok {
		every, err = time.ParseDuration(strings.TrimSpace(rest))
		return "", every, err
	}
	if strings.Contains(text, "TZ=") {
		return "", 0, fmt.Errorf("%q names a zone in the expression; use timeZone", text)
	}
	cron, err = five(robfig, text)
	return cron, 0, err
}

// readWorkflow reads the schedules of a workflow of GitHub Actions, which are in UTC.
func readWorkflow(text, _ string, f *found) {
	var w struct {
		Name string `json:"name"`
		On   any    `json:"on"`
		True any    `json:"true"` // YAML 1.1 reads the word on as that
	}
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		f.err = fmt.Errorf("it is no YAML: %w", err)
		return
	}
	on, _ := w.On.(map[string]any)
	if on == nil {
		on, _ = w.True.(map[string]any)
	}
	all, _ := on["schedule"].([]any)
	if len(all) == 0 {
		f.err = fmt.Errorf("the workflow has no on.schedule")
		return
	}
	for number, one := range all {
		object, _ := one.(map[string]any)
		text, _ := object["cron"].(string)
		cron, err := five(vixie, text)
		if err != nil {
			f.left(number+1, "%v", err)
			continue
		}
		f.add(Entry{Line: number + 1, Name: w.Name, Cron: cron, Zone: "UTC", Retries: -1})
	}
}
