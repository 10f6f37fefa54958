package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

// ListSets is GET /sets.
func (s *server) ListSets(ctx context.Context, request api.ListSetsRequestObject) (api.ListSetsResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	names, jobs, err := s.Jobs.ListSets(ctx, c.who.Actor, orZero(page.after).Text, page.limit+1)
	if err != nil {
		return nil, err
	}
	list := make([]api.JobSet, len(names))
	for i, name := range names {
		list[i] = api.JobSet{Name: name, Jobs: jobs[i]}
	}
	list, next := cut(s, page, list, func(one api.JobSet) cursor.Place { return cursor.Place{Text: one.Name} })
	return api.ListSets200JSONResponse{Items: list, NextCursor: next, HasMore: next != nil}, nil
}

// PlanSet is POST /sets/{name}/plan.
func (s *server) PlanSet(ctx context.Context, request api.PlanSetRequestObject) (api.PlanSetResponseObject, error) {
	_, plan, err := s.planSection(ctx, request.Name, *request.Body)
	if err != nil {
		return nil, err
	}
	answer := api.PlanSet200JSONResponse{
		Hash: plan.Hash, Through: plan.Through, Unchanged: plan.Unchanged, Jobs: int64(plan.Jobs), MaxJobs: numberOrNull(int64(plan.MaxJobs)),
		Created: plan.Count(job.ActCreate), Changed: plan.Count(job.ActChange), Adopted: plan.Count(job.ActAdopt),
		Deleted: plan.Count(job.ActDelete), Left: plan.Count(job.ActLeave), Conflicts: plan.Count(job.ActConflict),
		Changes: make([]api.SetChange, len(plan.Changes)),
	}
	for i, change := range plan.Changes {
		if answer.Changes[i], err = viewSetChange(change); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// ApplySet is POST /sets/{name}/apply.
func (s *server) ApplySet(ctx context.Context, request api.ApplySetRequestObject) (api.ApplySetResponseObject, error) {
	body := request.Body
	section, _, err := s.planSection(ctx, request.Name, api.SetSection{
		Jobs: body.Jobs, After: body.After, Through: body.Through, Prune: body.Prune, Adopt: body.Adopt,
	})
	if err != nil {
		return nil, err
	}
	plan, err := s.Jobs.ApplySet(ctx, callOf(ctx).who.Actor, section, body.Hash)
	if err != nil {
		return nil, err
	}
	if plan.Count(job.ActCreate)+plan.Count(job.ActChange)+plan.Count(job.ActAdopt) > 0 {
		s.callPromoters(ctx) // some of them may be due
	}
	for _, change := range plan.Changes {
		if change.Action == job.ActCreate {
			s.countCreated(false, *change.To)
		}
	}
	return api.ApplySet200JSONResponse{
		Through: plan.Through, Created: plan.Count(job.ActCreate), Changed: plan.Count(job.ActChange),
		Adopted: plan.Count(job.ActAdopt), Deleted: plan.Count(job.ActDelete),
	}, nil
}

// planSection plans a section whose definitions are all valid. Those that are stored
// already as they are wanted are not checked again.
func (s *server) planSection(ctx context.Context, set string, body api.SetSection) (section job.Section, plan job.SetPlan, err error) {
	section, fields, err := s.sectionOf(set, body)
	if err != nil {
		return section, plan, err
	}
	if len(fields) > 0 {
		return section, plan, wrong(fields...)
	}
	if plan, err = s.Jobs.PlanSet(ctx, callOf(ctx).who.Actor, section); err != nil {
		return section, plan, err
	}
	changes := slices.Clone(plan.Changes)
	slices.SortFunc(changes, func(a, b job.SetChange) int { return cmp.Compare(a.Index, b.Index) })
	for _, change := range changes {
		if change.To == nil {
			continue
		}
		found, err := s.changeFaults(ctx, section.Specs[change.Index], change)
		if err != nil {
			return section, plan, err
		}
		fields = append(fields, at(change.Index, found)...)
	}
	if len(fields) > 0 {
		return section, plan, wrong(fields...)
	}
	for _, change := range changes {
		if change.To == nil {
			continue
		}
		if err := s.withinLimits(ctx, section.Specs[change.Index]); err != nil {
			return section, plan, ofJob(change.Name, err)
		}
	}
	return section, plan, nil
}

// sectionOf translates a section, and lists what is wrong with it by itself.
func (s *server) sectionOf(set string, body api.SetSection) (section job.Section, fields []fault.Field, err error) {
	section = job.Section{
		Set: set, After: orZero(body.After), Through: body.Through, Prune: orZero(body.Prune), Adopt: orZero(body.Adopt),
		Specs: make([]job.Spec, len(body.Jobs)),
	}
	named := make(map[string]bool, len(body.Jobs))
	for i, definition := range body.Jobs {
		spec, found, err := s.draftOf(definition)
		if err != nil {
			return section, nil, err
		}
		name := func(rule, message string) {
			found = append(found, fault.Field{Path: "name", Rule: rule, Message: message})
		}
		switch {
		case named[spec.Name]:
			name("unique", fmt.Sprintf("is %q a second time; within a set, a name is one job", spec.Name))
		case spec.Name <= section.After:
			name("order", "must come behind after, byte by byte")
		case section.Through != nil && spec.Name > *section.Through:
			name("order", "must not come behind through, byte by byte")
		}
		named[spec.Name], section.Specs[i] = true, spec
		fields = append(fields, at(i, found)...)
	}
	return section, fields, nil
}

// changeFaults lists what is wrong with a definition that would be stored.
func (s *server) changeFaults(ctx context.Context, spec job.Spec, change job.SetChange) ([]fault.Field, error) {
	found, err := s.faultsOf(ctx, callOf(ctx).who.Actor, spec, change.From == nil)
	if err != nil {
		return nil, err
	}
	found = append(found, change.Faults...)
	slices.SortStableFunc(found, func(a, b fault.Field) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Rule, b.Rule)) })
	return slices.CompactFunc(found, func(a, b fault.Field) bool { return a.Path == b.Path && a.Rule == b.Rule }), nil
}

// ofJob names the job of a section that a limit refuses.
func ofJob(name string, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	named := *f
	named.Message = fmt.Sprintf("job %q: %s", name, f.Message)
	return &named
}

func viewSetChange(c job.SetChange) (view api.SetChange, err error) {
	view = api.SetChange{Name: c.Name, Action: api.SetChangeAction(c.Action), JobID: c.ID, Set: textOrNull(c.Set), Fields: []api.Change{}}
	if c.From == nil || c.To == nil {
		return view, nil
	}
	changes, err := changesOf(job.Version{Spec: *c.To, Previous: c.From})
	view.Fields = viewChanges(changes)
	return view, err
}
