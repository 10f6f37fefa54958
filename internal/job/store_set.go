package job

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// A set is a named group of jobs that files own; within it a name is one job. It is
// planned and applied by sections, so that no call holds more than a piece of it, and
// each section is one transaction: what is killed in between is whole up to there, and
// planning again finds what is left.

// maxMembers bounds the jobs of a set that a plan reads.
const maxMembers = 2 * Piece

// Section is a part of a set and what is wanted there.
type Section struct {
	Set string
	// The section has the names behind After and up to Through, byte by byte; nil: to the
	// end of the set.
	After   string
	Through *string
	Specs   []Spec // valid names of the section, each once
	Prune   bool   // jobs of the set that Specs does not name are deleted
	Adopt   bool   // a job outside the set is taken over by its name
}

// SetPlan is what makes a section as it is wanted.
type SetPlan struct {
	Hash      string  // of what is wanted and of the versions that are there
	Through   *string // where the plan ends, before or at the section's end
	Changes   []SetChange
	Unchanged int
	Jobs      int // of the tenant
	MaxJobs   int // of the tenant; 0: any number

	wanted  []Spec
	current []member
}

// SetChange is what becomes of a job.
type SetChange struct {
	Name   string
	Action Action
	Index  int // of the definition in the section; -1: it has none
	ID     *uuid.UUID
	Set    string // the other set that has the job; empty: none
	// From is what is stored and To what is wanted, without credentials; nil: nothing.
	From, To *Spec
	// Faults are those that only what is stored shows.
	Faults []fault.Field

	seen    member // the job as the plan saw it
	changed bool   // From and To differ
}

// Action is what a plan does with a job.
type Action string

// The actions.
const (
	ActCreate   Action = "create"
	ActChange   Action = "change"
	ActAdopt    Action = "adopt" // into the set, and changed where it differs
	ActDelete   Action = "delete"
	ActLeave    Action = "leave"    // the set has it, and nobody wants it
	ActConflict Action = "conflict" // a job outside the set has the name
)

// member is a job as a plan saw it.
type member struct {
	ID      uuid.UUID `json:"id"`
	Name    string    `json:"name"`
	Version int       `json:"version"`
	Set     string    `json:"set"`
	Others  int64     `json:"others"` // that have the same name, outside the set
}

// Count is how many changes are of an action.
func (p SetPlan) Count(action Action) (n int) {
	for _, c := range p.Changes {
		if c.Action == action {
			n++
		}
	}
	return n
}

// PlanSet says what makes a section as it is wanted.
func (s *Store) PlanSet(ctx context.Context, who tenant.Actor, section Section) (plan SetPlan, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		plan, err = s.plan(ctx, tx, who, section)
		return err
	})
	return plan, err
}

// plan compares what is wanted with what is there.
func (s *Store) plan(ctx context.Context, tx *postgres.Tx, who tenant.Actor, section Section) (p SetPlan, err error) {
	found, err := section.read(ctx, tx, who)
	if err != nil {
		return p, err
	}
	p.Through = found.through
	for i, spec := range section.Specs {
		if beyond(spec.Name, p.Through) {
			continue
		}
		c, masked, err := s.judge(ctx, tx, who, spec, found)
		if err != nil {
			return p, err
		}
		p.wanted = append(p.wanted, masked)
		if c.Index = i; c.Action == "" {
			p.Unchanged++
			continue
		}
		p.Changes = append(p.Changes, c)
	}
	p.addUnwanted(found, section.Prune)
	slices.SortFunc(p.Changes, func(a, b SetChange) int { return strings.Compare(a.Name, b.Name) })
	if p.Hash, err = section.hash(p); err != nil {
		return p, err
	}
	has, err := s.room(ctx, tx, who, false)
	p.MaxJobs, p.Jobs = has.bound, has.jobs
	return p, err
}

// addUnwanted notes the jobs that were found, and those of the set that nobody wants.
func (p *SetPlan) addUnwanted(found present, prune bool) {
	unwanted := ActLeave
	if prune {
		unwanted = ActDelete
	}
	named := make(map[string]bool, len(p.wanted))
	for _, spec := range p.wanted {
		named[spec.Name] = true
	}
	for name, j := range found.members {
		p.current = append(p.current, memberOf(j))
		if !named[name] {
			p.Changes = append(p.Changes, SetChange{Name: name, Action: unwanted, Index: -1, ID: &j.ID, seen: memberOf(j)})
		}
	}
	for _, m := range found.outside {
		p.current = append(p.current, m)
	}
}

// present is what a plan finds.
type present struct {
	through *string
	members map[string]Job    // of the set, by name
	outside map[string]member // jobs outside the set that have a name that the set lacks
	adopted map[string]Job    // of those, the ones that are taken over
}

// read finds the jobs that a plan is about. Where they are more than one plan takes, it ends
// at an earlier name.
func (s Section) read(ctx context.Context, tx *postgres.Tx, who tenant.Actor) (found present, err error) {
	found = present{through: s.Through, members: map[string]Job{}, outside: map[string]member{}, adopted: map[string]Job{}}
	rows, err := tx.Paged().ListSetJobs(ctx, db.ListSetJobsParams{
		TenantID: who.TenantID, SetName: s.Set, AfterName: s.After, ThroughName: s.Through, PageSize: maxMembers + 1,
	})
	if err != nil {
		return found, fmt.Errorf("list the jobs of a set: %w", err)
	}
	if tx.Cut() || len(rows) > maxMembers {
		rows = rows[:min(len(rows), maxMembers)]
		found.through = &rows[len(rows)-1].Name
	}
	if err := keep(found.members, rows); err != nil {
		return found, err
	}
	var missing []string
	for _, spec := range s.Specs {
		if _, ok := found.members[spec.Name]; !ok && !beyond(spec.Name, found.through) {
			missing = append(missing, spec.Name)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	others, err := tx.ListJobsOutsideSet(ctx, db.ListJobsOutsideSetParams{TenantID: who.TenantID, SetName: s.Set, Names: missing})
	if err != nil {
		return found, fmt.Errorf("list the jobs outside a set: %w", err)
	}
	var ids []uuid.UUID
	for _, r := range others {
		found.outside[r.Name] = member{ID: r.ID, Name: r.Name, Version: int(r.Version), Set: r.SetName, Others: r.Jobs}
		if s.Adopt && r.Jobs == 1 {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return found, nil
	}
	return found, found.adopt(ctx, tx, who, ids)
}

// adopt reads the jobs that are taken over.
func (f *present) adopt(ctx context.Context, tx *postgres.Tx, who tenant.Actor, ids []uuid.UUID) error {
	rows, err := tx.Paged().ListAdoptedJobs(ctx, db.ListAdoptedJobsParams{TenantID: who.TenantID, Ids: ids})
	if err != nil {
		return fmt.Errorf("read the jobs to adopt: %w", err)
	}
	if tx.Cut() {
		f.through = &rows[len(rows)-1].Name
		for name := range f.members {
			if beyond(name, f.through) {
				delete(f.members, name)
			}
		}
		for name := range f.outside {
			if beyond(name, f.through) {
				delete(f.outside, name)
			}
		}
	}
	return keep(f.adopted, rows)
}

func keep(jobs map[string]Job, rows []db.ScheduledJob) error {
	for _, row := range rows {
		j, err := fromRow(&row)
		if err != nil {
			return err
		}
		jobs[j.Name] = j
	}
	return nil
}

// beyond says that a name comes behind the last one; nil: there is no last one.
func beyond(name string, through *string) bool { return through != nil && name > *through }

func memberOf(j Job) member {
	return member{ID: j.ID, Name: j.Name, Version: j.Version, Set: j.Set}
}

// judge says what becomes of the job that a definition names; nothing, where its
// action is empty. The definition comes back without credentials.
func (s *Store) judge(ctx context.Context, tx *postgres.Tx, who tenant.Actor, spec Spec, found present) (c SetChange, masked Spec, err error) {
	c, masked = SetChange{Name: spec.Name}, spec
	old, inSet := found.members[spec.Name]
	outside, taken := found.outside[spec.Name]
	adopted, taking := found.adopted[spec.Name]
	var protected secret.Protected
	switch {
	case inSet || taking:
		if taking {
			old = adopted
			c.Action, c.Set = ActAdopt, old.Set
		}
		c.ID, c.seen, c.From = &old.ID, memberOf(old), &old.Spec
		if err = secret.MayUse(who, old.Config, spec.Config); err != nil {
			return c, masked, err
		}
		protected, err = s.vault.ProtectNext(ctx, tx, secret.Version{Tenant: who.TenantID, Job: old.ID, Number: old.Version}, old.Config, spec.Config)
	case taken:
		c.Action, c.Set = ActConflict, outside.Set
		if outside.Others == 1 {
			c.ID = &outside.ID
		}
		return c, masked, nil
	default:
		c.Action = ActCreate
		protected, err = s.vault.Protect(ctx, tx, who, spec.Config)
	}
	if c.Faults, err = faultsIn(err); err != nil {
		return c, masked, err
	}
	masked.Config, c.To = protected.Config, &masked
	if c.From == nil {
		return c, masked, nil
	}
	changed := []string{}
	if !equal(old.Spec, masked) {
		if changed, err = s.differs(old.Spec, masked); err != nil {
			return c, masked, err
		}
	}
	c.changed = changed == nil || len(changed) > 0 || protected.New() || len(c.Faults) > 0
	if c.changed && c.Action == "" {
		c.Action = ActChange
	}
	return c, masked, nil
}

// equal says that two definitions are the same, which nearly all of a set are, at a tenth
// of what naming their differences costs. Others may still come to the same.
func equal(a, b Spec) bool {
	var configs [2]any
	for i, raw := range []json.RawMessage{a.Config, b.Config} {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if decoder.Decode(&configs[i]) != nil {
			return false
		}
	}
	a.Config, b.Config = nil, nil
	return reflect.DeepEqual(configs[0], configs[1]) && reflect.DeepEqual(a, b)
}

// faultsIn takes the fields out of an Invalid error; it returns any other.
func faultsIn(err error) ([]fault.Field, error) {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.Invalid {
		return f.Fields, nil
	}
	return nil, err
}

// hash stands for what is wanted, without credentials, and for the version of each job
// that a plan saw.
func (s Section) hash(p SetPlan) (string, error) {
	slices.SortFunc(p.wanted, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(p.current, func(a, b member) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	raw, err := json.Marshal(struct {
		Set, After   string
		Through      *string
		Prune, Adopt bool
		Wanted       []Spec
		Current      []member
	}{s.Set, s.After, p.Through, s.Prune, s.Adopt, p.wanted, p.current})
	if err != nil {
		return "", fmt.Errorf("write a plan: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

// ListSets lists the sets that come behind a name, in the order of names, and the number of jobs of each.
func (s *Store) ListSets(ctx context.Context, who tenant.Actor, after string, limit int) (names []string, jobs []int64, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListJobSets(ctx, db.ListJobSetsParams{TenantID: who.TenantID, AfterName: after, PageSize: int32(limit)})
		if err != nil {
			return fmt.Errorf("list sets: %w", err)
		}
		for _, row := range rows {
			names, jobs = append(names, row.SetName), append(jobs, row.Jobs)
		}
		return nil
	})
	return names, jobs, err
}
