package schedctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scheduler-service/scheduler/api/client"
	"github.com/scheduler-service/scheduler/internal/schedctl/setfile"
)

// maxAuthors bounds the jobs of a comparison whose last change is looked up.
const maxAuthors = 200

// setFlags are those of a command on a set.
type setFlags struct {
	files        []string
	name         string
	prune, adopt bool
	hash         string // apply this plan alone
	drift        bool
}

// setCommands are the commands that keep jobs as files describe them.
func (s *session) setCommands() []*cobra.Command {
	return []*cobra.Command{s.planCommand(), s.applyCommand(), s.diffCommand(), s.adoptCommand(), s.exportCommand(), s.promoteCommand()}
}

// setCommand makes a command that reads files.
func setCommand(use, short, long string, f *setFlags, run func(command *cobra.Command) error) *cobra.Command {
	command := &cobra.Command{Use: use, Short: short, Long: long, Args: exactly(0), RunE: func(c *cobra.Command, _ []string) error { return run(c) }}
	command.Flags().StringSliceVarP(&f.files, "file", "f", nil, "a file of YAML or JSON, or a directory of them; may be given several times; - reads from the standard input")
	command.Flags().StringVar(&f.name, "set", "", "the set that owns the jobs")
	return command
}

func (s *session) planCommand() *cobra.Command {
	var f setFlags
	command := setCommand("plan", "Show what would make the jobs of a set as files describe them", `Shows what would make the jobs of a set as files describe them, and changes nothing.

Exit codes: 0 nothing differs, 2 something would be done, 1 the files are wrong or
jobs outside the set have names of it.`, &f, func(c *cobra.Command) error {
		w, p, _, err := s.planOf(c.Context(), f)
		if err != nil {
			return err
		}
		return s.showPlan(w, p, p.changes())
	})
	command.Flags().BoolVar(&f.prune, "prune", false, "delete the jobs of the set that no file has")
	command.Flags().BoolVar(&f.adopt, "adopt", false, "take over jobs of the same name that are outside the set")
	return command
}

func (s *session) applyCommand() *cobra.Command {
	var f setFlags
	command := setCommand("apply", "Make the jobs of a set as files describe them", `Plans as "schedctl plan" does, and does it. Interrupted, it has done a part of it;
the same command again does the rest. Applied a second time, it changes nothing.`, &f, func(c *cobra.Command) error {
		return s.applyFiles(c.Context(), f)
	})
	command.Flags().BoolVar(&f.prune, "prune", false, "delete the jobs of the set that no file has")
	command.Flags().BoolVar(&f.adopt, "adopt", false, "take over jobs of the same name that are outside the set")
	command.Flags().StringVar(&f.hash, "plan", "", "apply this plan, and nothing if the files or the jobs are others by now")
	return command
}

func (s *session) adoptCommand() *cobra.Command {
	f := setFlags{adopt: true}
	return setCommand("adopt", "Let a set take over the jobs that its files name", `Applies files to a set, and takes over jobs of the same name that are outside of it,
also those of another set. The jobs keep their ids and their history.`, &f, func(c *cobra.Command) error {
		return s.applyFiles(c.Context(), f)
	})
}

func (s *session) diffCommand() *cobra.Command {
	var f setFlags
	command := setCommand("diff", "Show where the jobs of a set are not as files describe them", `Shows where the jobs of a set are not as files describe them, those that no file has
included. With --drift only the jobs that are there, with who changed them last: run
it after an apply of the same files, and each one was changed past the files.

Exit codes: 0 nothing differs, 2 something differs, 1 the files are wrong.`, &f, func(c *cobra.Command) error {
		w, p, service, err := s.planOf(c.Context(), f)
		if err != nil {
			return err
		}
		if f.drift {
			if p, err = drifted(c.Context(), service, p); err != nil {
				return err
			}
		}
		return s.showPlan(w, p, len(p.Changes) > 0)
	})
	command.Flags().BoolVar(&f.drift, "drift", false, "only jobs that are there and differ, with who changed them last")
	return command
}

// planOf plans a set of files.
func (s *session) planOf(ctx context.Context, f setFlags) (w wantedSet, p setPlan, service *client.Client, err error) {
	if f.name == "" || len(f.files) == 0 {
		return w, p, nil, misuse("which files, and which set? Name them with -f and --set")
	}
	if _, err := s.printer(); err != nil {
		return w, p, nil, err
	}
	w = wantedSet{name: f.name, prune: f.prune, adopt: f.adopt}
	jobs, faults, err := s.readJobs(f.files)
	if err != nil {
		return w, p, nil, err
	}
	if service, err = s.reach(); err != nil {
		return w, p, nil, err
	}
	w.jobs = jobs
	p, err = s.planWanted(ctx, service, w, faults)
	return w, p, service, err
}

// planWanted plans a set, and lists all that is wrong with it: faults that were found
// before, and those that the service finds.
func (s *session) planWanted(ctx context.Context, service *client.Client, w wantedSet, faults []setfile.Fault) (setPlan, error) {
	slices.SortFunc(w.jobs, func(a, b setfile.Job) int { return strings.Compare(a.Name, b.Name) })
	p, more, err := w.plan(ctx, service)
	if err != nil {
		return p, err
	}
	if faults = append(faults, more...); len(faults) == 0 {
		return p, nil
	}
	sortFaults(faults)
	for _, f := range faults {
		fmt.Fprintln(s.env.Err, plain(f.String()))
	}
	return p, fmt.Errorf("%d faults; nothing was changed", len(faults))
}

// readJobs reads files and directories of them.
func (s *session) readJobs(paths []string) (jobs []setfile.Job, faults []setfile.Fault, err error) {
	for _, path := range paths {
		files, err := filesBelow(path)
		if err != nil {
			return nil, nil, misuse("%w", err)
		}
		for _, file := range files {
			text, err := s.read(file)
			if err != nil {
				return nil, nil, err
			}
			found, wrong := setfile.Read(file, text)
			jobs, faults = append(jobs, found...), append(faults, wrong...)
		}
	}
	jobs, again := setfile.FirstOfEach(jobs)
	return jobs, append(faults, again...), nil
}

// filesBelow are the files of a path, in order; a path that is no directory is one.
func filesBelow(path string) (files []string, err error) {
	if path == "-" {
		return []string{path}, nil
	}
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case file != path && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case !entry.IsDir() && (file == path || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file))):
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

func (s *session) applyFiles(ctx context.Context, f setFlags) error {
	w, p, service, err := s.planOf(ctx, f)
	if err != nil {
		return err
	}
	if f.hash != "" && f.hash != p.Hash {
		return fmt.Errorf("the plan is %s by now: the files or the jobs are others; nothing was changed", p.Hash)
	}
	return s.applyPlan(ctx, service, w, p)
}

// applyPlan shows a plan and does it.
func (s *session) applyPlan(ctx context.Context, service *client.Client, w wantedSet, p setPlan) error {
	if err := s.showPlan(w, p, false); err != nil {
		return err
	}
	if message := p.tooMany(); message != "" {
		return code{exitLimit, fmt.Errorf("%s; nothing was changed", message)}
	}
	done, err := w.apply(ctx, service, p)
	fmt.Fprintf(s.env.Err, "applied: %d created, %d changed, %d adopted, %d deleted\n", done.Created, done.Changed, done.Adopted, done.Deleted)
	if err != nil {
		return fmt.Errorf("a part is applied; the same command again does the rest: %w", err)
	}
	return nil
}

// showPlan shows a plan. Differences end with an exit code of their own, and names that
// jobs outside the set have end the command.
func (s *session) showPlan(w wantedSet, p setPlan, differs bool) error {
	show, err := s.printer()
	if err != nil {
		return err
	}
	if s.output == "table" {
		s.printPlan(p)
	} else {
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		answer, err := decode(text)
		if err != nil {
			return err
		}
		if err := show(answer, nil); err != nil {
			return err
		}
	}
	switch {
	case p.Conflicts > 0 && !w.adopt:
		return fmt.Errorf("jobs outside the set have %d of its names and would run beside them: rename or delete them, or take them over with schedctl adopt", p.Conflicts)
	case p.Conflicts > 0:
		return fmt.Errorf("several jobs outside the set have one name, %d times: rename or delete all but one", p.Conflicts)
	case differs:
		return code{exit: exitDiffers}
	}
	return nil
}

// signs are what a line of a plan begins with.
var signs = map[string]string{"create": "+", "change": "~", "adopt": ">", "delete": "-", "leave": "?", "conflict": "!"}

func (s *session) printPlan(p setPlan) {
	out := s.env.Out
	for _, c := range p.Changes {
		line := fmt.Sprintf("%s %s %s", signs[c.Action], c.Action, plain(c.Name))
		if c.Set != nil {
			line += " (of set " + plain(*c.Set) + ")"
		}
		if c.By != "" {
			line += " (changed by " + plain(c.By) + " at " + text(s.zone(), c.At) + ")"
		}
		fmt.Fprintln(out, line)
		for _, f := range c.Fields {
			fmt.Fprintf(out, "    %s: %s -> %s\n", plain(f.Field), short(text(s.zone(), f.From)), short(text(s.zone(), f.To)))
		}
	}
	fmt.Fprintf(out, "%d to create, %d to change, %d to adopt, %d to delete, %d unchanged, %d left, %d conflicts\n",
		p.Created, p.Changed, p.Adopted, p.Deleted, p.Unchanged, p.Left, p.Conflicts)
	fmt.Fprintf(out, "plan %s\n", p.Hash)
}

// zone is the one in which times are shown.
func (s *session) zone() *time.Location {
	if s.utc {
		return time.UTC
	}
	return s.env.Zone
}

// drifted leaves of a plan the jobs that are there and differ, and adds who changed their
// definitions last.
func drifted(ctx context.Context, service *client.Client, p setPlan) (setPlan, error) {
	p.Changes = slices.DeleteFunc(p.Changes, func(c setChange) bool { return c.JobID == nil || c.Action == "conflict" })
	p.Conflicts = 0
	for i := range p.Changes[:min(len(p.Changes), maxAuthors)] {
		path := base + "/jobs/" + url.PathEscape(*p.Changes[i].JobID) + "/versions"
		answer, err := service.Call(ctx, http.MethodGet, path, url.Values{"limit": {"1"}}, nil, nil)
		var refusal *client.Error
		if errors.As(err, &refusal) && refusal.Status == http.StatusNotFound {
			continue
		}
		if err != nil {
			return p, err
		}
		var page struct {
			Items []struct{ CreatedBy, CreatedAt string }
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			return p, err
		}
		if len(page.Items) > 0 {
			p.Changes[i].By, p.Changes[i].At = page.Items[0].CreatedBy, page.Items[0].CreatedAt
		}
	}
	return p, nil
}
