package schedctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/api/client"
	"github.com/scheduler-service/scheduler/internal/schedctl/setfile"
)

// maxFileName bounds the part of a file's name that a job's name makes.
const maxFileName = 80

func (s *session) exportCommand() *cobra.Command {
	var name, tag, dir string
	command := &cobra.Command{
		Use: "export", Short: "Write the definitions of jobs as files",
		Long: `Writes the definitions of jobs as YAML: to the standard output, one document each, or
into a directory, one file each. Applied to the set that they are of, they change nothing.
Credentials are written as ***, which keeps those that are stored.`,
		Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			service, err := s.reach()
			if err != nil {
				return err
			}
			filter := url.Values{}
			for parameter, value := range map[string]string{"set": name, "tags": tag} {
				if value != "" {
					filter.Set(parameter, value)
				}
			}
			jobs, err := definitions(c.Context(), service, filter)
			if err != nil {
				return err
			}
			return s.writeJobs(jobs, dir)
		},
	}
	command.Flags().StringVar(&name, "set", "", "only jobs of this set")
	command.Flags().StringVar(&tag, "tag", "", "only jobs with this tag")
	command.Flags().StringVar(&dir, "dir", "", "write one file for each job into this directory, which is made, or has none of these files")
	return command
}

// definitions reads the definitions of the jobs that fit, by name.
func definitions(ctx context.Context, service *client.Client, filter url.Values) ([]map[string]any, error) {
	answer, err := list(ctx, service, request{method: http.MethodGet, path: base + "/jobs", query: filter}, 0)
	if err != nil {
		return nil, err
	}
	items, _ := answer.(map[string]any)["items"].([]any)
	settings := settingNames()
	jobs := make([]map[string]any, len(items))
	for i, item := range items {
		job, ok := item.(map[string]any)
		if !ok {
			return nil, errors.New("the answer is no list of jobs; is this the address of the service?")
		}
		maps.DeleteFunc(job, func(name string, value any) bool { return value == nil || !settings[name] })
		jobs[i] = job
	}
	slices.SortStableFunc(jobs, func(a, b map[string]any) int { return strings.Compare(nameOf(a), nameOf(b)) })
	return jobs, nil
}

func nameOf(job map[string]any) string {
	name, _ := job["name"].(string)
	return name
}

// settingNames are the fields of a definition, which are those of a job that may be sent.
func settingNames() map[string]bool {
	names := map[string]bool{}
	spec := reflect.TypeFor[api.JobSpec]()
	for i := range spec.NumField() {
		name, _, _ := strings.Cut(spec.Field(i).Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}

// document is a job as YAML, its name first.
func document(job map[string]any) ([]byte, error) {
	rest := maps.Clone(job)
	delete(rest, "name")
	var text []byte
	for _, part := range []map[string]any{{"name": job["name"]}, rest} {
		raw, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		block, err := yaml.JSONToYAML(raw)
		if err != nil {
			return nil, err
		}
		text = append(text, block...)
	}
	return text, nil
}

// writeJobs writes jobs to the standard output, or into a directory.
func (s *session) writeJobs(jobs []map[string]any, dir string) error {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	taken, masked := map[string]bool{}, 0
	for i, job := range jobs {
		text, err := document(job)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("***")) {
			masked++
		}
		if dir == "" {
			if i > 0 {
				text = append([]byte("---\n"), text...)
			}
			_, err = s.env.Out.Write(text)
		} else {
			err = writeNew(filepath.Join(dir, fileName(nameOf(job), taken)), text)
		}
		if err != nil {
			return err
		}
	}
	if masked > 0 {
		fmt.Fprintf(s.env.Err, "%d jobs hold ***: such a credential stays with the stored job; elsewhere write {{secret:name}}\n", masked)
	}
	fmt.Fprintf(s.env.Err, "%d jobs written\n", len(jobs))
	return nil
}

// writeNew writes a file that is not there yet.
func writeNew(file string, text []byte) error {
	made, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the user's own directory
	if errors.Is(err, fs.ErrExist) {
		return misuse("%s is there already: name another directory, or remove it", file)
	}
	if err != nil {
		return err
	}
	_, err = made.Write(text)
	return errors.Join(err, made.Close())
}

// unsafe is what a file's name leaves out of a job's.
var unsafe = regexp.MustCompile(`[^a-z0-9]+`)

// fileName is a file for a job that no other job has.
func fileName(name string, taken map[string]bool) string {
	plain := strings.Trim(unsafe.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if plain = plain[:min(len(plain), maxFileName)]; plain == "" {
		plain = "job"
	}
	file := plain
	for i := 2; taken[file]; i++ {
		file = fmt.Sprintf("%s-%d", plain, i)
	}
	taken[file] = true
	return file + ".yaml"
}

func (s *session) promoteCommand() *cobra.Command {
	var from, to, name string
	var prune, adopt, dryRun bool
	command := &cobra.Command{
		Use: "promote", Short: "Apply the jobs of a set to another installation or tenant",
		Long: `Makes the set of one profile as it is with another: the definitions are read with --from,
planned and applied with --to. Calendars are found by their names; secrets are named, not
copied, and have to be there. With --dry-run it shows the plan, and the exit code is 2 if
something would be done.`,
		Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if from == "" || to == "" || name == "" || from == to {
				return misuse("name two profiles with --from and --to, and a set with --set")
			}
			w, p, target, err := s.promotion(c.Context(), from, to, wantedSet{name: name, prune: prune, adopt: adopt})
			if err != nil {
				return err
			}
			if dryRun {
				return s.showPlan(w, p, p.changes())
			}
			return s.applyPlan(c.Context(), target, w, p)
		},
	}
	flags := command.Flags()
	flags.StringVar(&from, "from", "", "the profile whose set is the model")
	flags.StringVar(&to, "to", "", "the profile whose set becomes as the model")
	flags.StringVar(&name, "set", "", "the set")
	flags.BoolVar(&prune, "prune", false, "delete the jobs of the set that the model does not have")
	flags.BoolVar(&adopt, "adopt", false, "take over jobs of the same name that are outside the set")
	flags.BoolVar(&dryRun, "dry-run", false, "show the plan and change nothing")
	return command
}

// promotion plans with one profile the set that another one has.
func (s *session) promotion(ctx context.Context, from, to string, w wantedSet) (wantedSet, setPlan, *client.Client, error) {
	source, err := s.reachProfile(from)
	if err != nil {
		return w, setPlan{}, nil, err
	}
	target, err := s.reachProfile(to)
	if err != nil {
		return w, setPlan{}, nil, err
	}
	jobs, err := definitions(ctx, source, url.Values{"set": {w.name}})
	if err != nil {
		return w, setPlan{}, nil, err
	}
	if len(jobs) == 0 {
		return w, setPlan{}, nil, code{exitNotFound, fmt.Errorf("profile %s has no jobs in set %s", from, w.name)}
	}
	missing, err := moveCalendars(ctx, source, target, jobs)
	if err != nil {
		return w, setPlan{}, nil, err
	}
	var faults []setfile.Fault
	for _, name := range missing {
		faults = append(faults, setfile.Fault{File: to, Text: fmt.Sprintf("there is no calendar %q", name)})
	}
	for _, job := range jobs {
		text, err := json.Marshal(job)
		if err != nil {
			return w, setPlan{}, nil, err
		}
		w.jobs = append(w.jobs, setfile.Job{Name: nameOf(job), File: fmt.Sprintf("%s: job %q", from, nameOf(job)), JSON: text})
	}
	if len(faults) > 0 {
		for _, f := range faults {
			fmt.Fprintln(s.env.Err, plain(f.String()))
		}
		return w, setPlan{}, nil, fmt.Errorf("%d faults; nothing was changed", len(faults))
	}
	p, err := s.planWanted(ctx, target, w, nil)
	return w, p, target, err
}

// reachProfile makes the client of a profile. The environment's address and token do not count.
func (s *session) reachProfile(name string) (*client.Client, error) {
	all, err := s.readProfiles()
	if err != nil {
		return nil, err
	}
	kept, known := all.Known[name]
	if !known {
		return nil, misuse("there is no profile %q; schedctl profile list shows them", name)
	}
	return client.New(client.Config{URL: kept.URL, Token: kept.Token})
}

// moveCalendars puts the calendars of one installation in the place of those of another,
// by their names, and lists the names that are not there.
func moveCalendars(ctx context.Context, source, target *client.Client, jobs []map[string]any) (missing []string, err error) {
	var uses []map[string]any
	for _, job := range jobs {
		named, _ := job["calendars"].([]any)
		for _, one := range named {
			if use, ok := one.(map[string]any); ok {
				uses = append(uses, use)
			}
		}
	}
	if len(uses) == 0 {
		return nil, nil
	}
	names, _, err := calendarsOf(ctx, source)
	if err != nil {
		return nil, err
	}
	_, ids, err := calendarsOf(ctx, target)
	if err != nil {
		return nil, err
	}
	for _, use := range uses {
		name := names[use["calendarId"]]
		id, known := ids[name]
		if !known && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
		use["calendarId"] = id
	}
	return missing, nil
}

// calendarsOf are the names and the ids of the calendars that a profile has.
func calendarsOf(ctx context.Context, service *client.Client) (names map[any]string, ids map[string]any, err error) {
	answer, err := list(ctx, service, request{method: http.MethodGet, path: base + "/calendars", query: url.Values{}}, 0)
	if err != nil {
		return nil, nil, err
	}
	names, ids = map[any]string{}, map[string]any{}
	items, _ := answer.(map[string]any)["items"].([]any)
	for _, item := range items {
		if calendar, ok := item.(map[string]any); ok {
			names[calendar["id"]] = nameOf(calendar)
			ids[nameOf(calendar)] = calendar["id"]
		}
	}
	return names, ids, nil
}
