package schedctl

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/scheduler-service/scheduler/api/client"
	"github.com/scheduler-service/scheduler/internal/schedctl/setfile"
)

const (
	// sectionJobs and sectionBytes bound the definitions of one request, well below what
	// the contract lets a section have.
	sectionJobs, sectionBytes = 500, 1 << 20
	// sectionsAtOnce is how many sections are under way: as many as leave the tenant
	// another heavy request.
	sectionsAtOnce = 3
)

// wantedSet is a set as files describe it.
type wantedSet struct {
	name         string
	jobs         []setfile.Job // by name, each once
	prune, adopt bool
}

// section is a part of a set, and what the service planned for it.
type section struct {
	after   string
	through *string
	jobs    []setfile.Job
	plan    sectionPlan
}

// sectionPlan is the service's answer.
type sectionPlan struct {
	Hash    string      `json:"hash"`
	Through *string     `json:"through"`
	Changes []setChange `json:"changes"`
	Jobs    int64       `json:"jobs"`
	MaxJobs *int64      `json:"maxJobs"`
	tally
}

// tally counts what becomes of jobs.
type tally struct {
	Created   int `json:"created"`
	Changed   int `json:"changed"`
	Adopted   int `json:"adopted"`
	Deleted   int `json:"deleted"`
	Unchanged int `json:"unchanged"`
	Left      int `json:"left"`
	Conflicts int `json:"conflicts"`
}

func (t *tally) add(o tally) {
	t.Created += o.Created
	t.Changed += o.Changed
	t.Adopted += o.Adopted
	t.Deleted += o.Deleted
	t.Unchanged += o.Unchanged
	t.Left += o.Left
	t.Conflicts += o.Conflicts
}

// changes says whether applying does anything.
func (t tally) changes() bool { return t.Created+t.Changed+t.Adopted+t.Deleted > 0 }

// setChange is what becomes of a job.
type setChange struct {
	Name   string  `json:"name"`
	Action string  `json:"action"`
	JobID  *string `json:"jobId"`
	Set    *string `json:"set"`
	Fields []struct {
		Field string `json:"field"`
		From  any    `json:"from,omitempty"`
		To    any    `json:"to,omitempty"`
	} `json:"fields"`
	// By and At are of the last change of the definition; empty: it was not asked for.
	By string `json:"by,omitempty"`
	At string `json:"at,omitempty"`
}

// setPlan is the plan of a whole set.
type setPlan struct {
	Set     string      `json:"set"`
	Hash    string      `json:"plan"`
	Changes []setChange `json:"changes"`
	tally

	sections []section
}

// cut divides a set into sections that lie side by side.
func (w wantedSet) cut() []section {
	all := []section{{}}
	size := 0
	for _, job := range w.jobs {
		now := &all[len(all)-1]
		if len(now.jobs) == sectionJobs || len(now.jobs) > 0 && size+len(job.JSON) > sectionBytes {
			last := now.jobs[len(now.jobs)-1].Name
			now.through = &last
			all = append(all, section{after: last})
			now, size = &all[len(all)-1], 0
		}
		now.jobs, size = append(now.jobs, job), size+len(job.JSON)+1
	}
	return all
}

// body is what the service takes; a hash makes it the body of an apply.
func (w wantedSet) body(s section, hash string) ([]byte, error) {
	body := map[string]any{"jobs": []json.RawMessage{}, "prune": w.prune, "adopt": w.adopt}
	definitions := make([]json.RawMessage, len(s.jobs))
	for i, job := range s.jobs {
		definitions[i] = job.JSON
	}
	body["jobs"] = definitions
	if s.after != "" {
		body["after"] = s.after
	}
	if s.through != nil {
		body["through"] = *s.through
	}
	if hash != "" {
		body["hash"] = hash
	}
	return json.Marshal(body)
}

// ask sends a section.
func (w wantedSet) ask(ctx context.Context, service *client.Client, verb string, s section, hash string) ([]byte, error) {
	body, err := w.body(s, hash)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	return service.Call(ctx, http.MethodPost, base+"/sets/"+url.PathEscape(w.name)+"/"+verb, nil, header, body)
}

// plan asks what makes the set as it is wanted. Where definitions are wrong, it lists
// every fault of every section, and there is no plan.
func (w wantedSet) plan(ctx context.Context, service *client.Client) (setPlan, []setfile.Fault, error) {
	wanted := w.cut()
	planned, faults := make([][]section, len(wanted)), make([][]setfile.Fault, len(wanted))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(sectionsAtOnce)
	for i, s := range wanted {
		group.Go(func() (err error) {
			planned[i], faults[i], err = w.planSection(within, service, s)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return setPlan{}, nil, err
	}
	if all := slices.Concat(faults...); len(all) > 0 {
		return setPlan{}, all, nil
	}
	p := setPlan{Set: w.name, sections: slices.Concat(planned...), Changes: []setChange{}}
	sum := sha256.New()
	for _, s := range p.sections {
		sum.Write([]byte(s.plan.Hash))
		p.add(s.plan.tally)
		p.Changes = append(p.Changes, s.plan.Changes...)
	}
	p.Hash = hex.EncodeToString(sum.Sum(nil))
	return p, nil, nil
}

// planSection plans a section in as many steps as the service takes: it may end a plan
// before the section's end.
func (w wantedSet) planSection(ctx context.Context, service *client.Client, s section) (planned []section, faults []setfile.Fault, err error) {
	for {
		text, err := w.ask(ctx, service, "plan", s, "")
		if faults = faultsIn(err, s.jobs); faults != nil {
			return planned, faults, nil
		}
		if err != nil {
			return nil, nil, err
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&s.plan); err != nil {
			return nil, nil, fmt.Errorf("the answer is no plan; is this the address of the service? %w", err)
		}
		planned = append(planned, s)
		end := s.plan.Through
		if end == nil || s.through != nil && *end >= *s.through {
			return planned, nil, nil
		}
		s = section{after: *end, through: s.through, jobs: slices.DeleteFunc(slices.Clone(s.jobs), func(j setfile.Job) bool { return j.Name <= *end })}
	}
}

// faultPath is where a fault of a definition is.
var faultPath = regexp.MustCompile(`^jobs\[(\d+)\]\.?(.*)$`)

// faultsIn are the faults of definitions that the service answered, with their lines; nil
// where the answer is another.
func faultsIn(err error, jobs []setfile.Job) (faults []setfile.Fault) {
	var refusal *client.Error
	if !errors.As(err, &refusal) || refusal.Status != http.StatusBadRequest {
		return nil
	}
	for _, d := range refusal.Details {
		parts := faultPath.FindStringSubmatch(d.Field)
		if parts == nil {
			return nil
		}
		i, err := strconv.Atoi(parts[1])
		if err != nil || i >= len(jobs) {
			return nil
		}
		faults = append(faults, jobs[i].Fault(parts[2], d.Message))
	}
	return faults
}

// tooMany says that the tenant may not have as many jobs; empty: it may.
func (p setPlan) tooMany() string {
	if len(p.sections) == 0 {
		return ""
	}
	of := p.sections[0].plan
	more := int64(p.Created - p.Deleted)
	if of.MaxJobs == nil || more <= 0 || of.Jobs+more <= *of.MaxJobs {
		return ""
	}
	return fmt.Sprintf("this tenant may have %d jobs and has %d, and the set makes %d more", *of.MaxJobs, of.Jobs, more)
}

// apply does what a plan says, section by section. Sections that make room for jobs come
// before those that need it. Sections that were applied before an error stay applied.
func (w wantedSet) apply(ctx context.Context, service *client.Client, p setPlan) (done tally, err error) {
	var shrinking, growing []section
	for _, s := range p.sections {
		switch {
		case !s.plan.changes():
		case s.plan.Created > s.plan.Deleted:
			growing = append(growing, s)
		default:
			shrinking = append(shrinking, s)
		}
	}
	for _, some := range [][]section{shrinking, growing} {
		outcomes := make([]tally, len(some))
		group, within := errgroup.WithContext(ctx)
		group.SetLimit(sectionsAtOnce)
		for i, s := range some {
			group.Go(func() error {
				if within.Err() != nil {
					return within.Err()
				}
				text, err := w.ask(within, service, "apply", s, s.plan.Hash)
				if err != nil {
					return err
				}
				return json.Unmarshal(text, &outcomes[i])
			})
		}
		err := group.Wait()
		for _, o := range outcomes {
			done.add(o)
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// sortFaults puts faults in the order of their places.
func sortFaults(faults []setfile.Fault) {
	slices.SortStableFunc(faults, func(a, b setfile.Fault) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
}
