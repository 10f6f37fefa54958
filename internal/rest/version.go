package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
	"github.com/scheduler-service/scheduler/internal/rest/patch"
)

// patchTries bounds how often a patch without If-Match is applied anew because
// somebody else changed the job meanwhile.
const patchTries = 5

// PatchJob is PATCH /jobs/{id}.
func (s *server) PatchJob(ctx context.Context, request api.PatchJobRequestObject) (api.PatchJobResponseObject, error) {
	change, err := decodeExact(*request.Body)
	if err != nil {
		return nil, err
	}
	wanted := versionOf(request.Params.IfMatch)
	for try := 1; ; try++ {
		patched, err := s.patchOnce(ctx, request.ID, change, wanted)
		if wanted == 0 && try < patchTries && isOutdated(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return api.PatchJob200JSONResponse{Body: viewJob(patched), Headers: api.PatchJob200ResponseHeaders{ETag: etag(patched.Version)}}, nil
	}
}

func (s *server) patchOnce(ctx context.Context, id uuid.UUID, change any, wanted int) (job.Job, error) {
	found, err := s.current(ctx, id, wanted)
	if err != nil {
		return job.Job{}, err
	}
	before, err := document(found.Spec)
	if err != nil {
		return job.Job{}, err
	}
	after, _ := patch.Merge(before, change).(map[string]any)
	if len(patch.Between(before, after)) == 0 {
		return found, nil
	}
	spec, err := s.specFrom(ctx, after)
	if err != nil {
		return job.Job{}, err
	}
	updated, err := s.Jobs.Update(ctx, callOf(ctx).who.Actor, id, spec, found.Version)
	if err == nil {
		s.callIfDueSoon(ctx, updated)
	}
	return updated, err
}

// current reads a job that is to be changed, if it has the wanted version; 0 is
// any.
func (s *server) current(ctx context.Context, id uuid.UUID, wanted int) (job.Job, error) {
	found, err := s.Jobs.Get(ctx, callOf(ctx).who.Actor, id)
	if err != nil {
		return job.Job{}, err
	}
	if wanted != 0 && wanted != found.Version {
		return job.Job{}, fault.New(fault.Conflict, fault.CodePreconditionFailed,
			fmt.Sprintf("the job is at version %d now: read it again and repeat the change", found.Version))
	}
	return found, nil
}

// specFrom is the definition that a document describes, which is checked as
// the body of PUT /jobs/{id} is.
func (s *server) specFrom(ctx context.Context, definition map[string]any) (job.Spec, error) {
	raw, err := json.Marshal(definition)
	if err != nil {
		return job.Spec{}, fmt.Errorf("write the definition: %w", err)
	}
	put, ok := s.contract.Operation(http.MethodPut, base+"/jobs/{id}")
	if !ok {
		return job.Spec{}, fmt.Errorf("the contract has no PUT of a job")
	}
	if fields := s.checkBody(ctx, put, raw); len(fields) > 0 {
		return job.Spec{}, wrong(fields...)
	}
	var body api.JobSpec
	if err := json.Unmarshal(raw, &body); err != nil {
		return job.Spec{}, wrong(undecoded(err))
	}
	return s.validSpec(ctx, body)
}

// ListJobVersions is GET /jobs/{id}/versions.
func (s *server) ListJobVersions(ctx context.Context, request api.ListJobVersionsRequestObject) (api.ListJobVersionsResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	before := 0
	if page.after != nil {
		if before, err = strconv.Atoi(page.after.Text); err != nil {
			return nil, fmt.Errorf("read a cursor of versions: %w", err)
		}
	}
	list, more, err := s.Jobs.Versions(ctx, c.who.Actor, request.ID, before, page.limit)
	if err != nil {
		return nil, err
	}
	var next *string
	if more && len(list) > 0 {
		at := s.cursors.Encode(page.list, cursor.Place{Text: strconv.Itoa(list[len(list)-1].Number)})
		next = &at
	}
	answer := api.ListJobVersions200JSONResponse{Items: make([]api.JobVersionSummary, len(list)), NextCursor: next, HasMore: next != nil}
	for i, v := range list {
		answer.Items[i] = api.JobVersionSummary{
			JobID: request.ID, Version: v.Number, CreatedBy: v.By, CreatedAt: v.At, RestoredFrom: numberOrNull(v.RestoredFrom),
			ChangedFields: append([]string{}, v.Changed...),
		}
	}
	return answer, nil
}

// GetJobVersion is GET /jobs/{id}/versions/{version}.
func (s *server) GetJobVersion(ctx context.Context, request api.GetJobVersionRequestObject) (api.GetJobVersionResponseObject, error) {
	v, err := s.Jobs.Version(ctx, callOf(ctx).who.Actor, request.ID, request.Version)
	if err != nil {
		return nil, err
	}
	changes, err := changesOf(v)
	if err != nil {
		return nil, err
	}
	return api.GetJobVersion200JSONResponse{
		JobID: request.ID, Version: v.Number, CreatedBy: v.By, CreatedAt: v.At, RestoredFrom: numberOrNull(v.RestoredFrom),
		Definition: definitionOf(v.Spec), Changes: viewChanges(changes),
	}, nil
}

// CompareJobVersions is GET /jobs/{id}/versions/{version}/compare/{other}.
func (s *server) CompareJobVersions(ctx context.Context, request api.CompareJobVersionsRequestObject) (api.CompareJobVersionsResponseObject, error) {
	from, err := s.Jobs.Version(ctx, callOf(ctx).who.Actor, request.ID, request.Version)
	if err != nil {
		return nil, err
	}
	to, err := s.Jobs.Version(ctx, callOf(ctx).who.Actor, request.ID, request.Other)
	if err != nil {
		return nil, err
	}
	to.Previous = &from.Spec
	changes, err := changesOf(to)
	if err != nil {
		return nil, err
	}
	return api.CompareJobVersions200JSONResponse{JobID: request.ID, From: request.Version, To: request.Other, Changes: viewChanges(changes)}, nil
}

// RestoreJobVersion is POST /jobs/{id}/versions/{version}/restore.
func (s *server) RestoreJobVersion(ctx context.Context, request api.RestoreJobVersionRequestObject) (api.RestoreJobVersionResponseObject, error) {
	who, wanted := callOf(ctx).who.Actor, versionOf(request.Params.IfMatch)
	restored, err := s.current(ctx, request.ID, wanted)
	if err != nil {
		return nil, err
	}
	v, err := s.Jobs.Version(ctx, who, request.ID, request.Version)
	if err != nil {
		return nil, err
	}
	v.Previous = &restored.Spec
	changes, err := changesOf(v)
	if err != nil {
		return nil, err
	}
	if len(changes) > 0 {
		fields, err := s.storedFaultsOf(ctx, v.Spec)
		if err != nil {
			return nil, err
		}
		if len(fields) > 0 {
			return nil, wrong(fields...)
		}
		if err := s.withinLimits(ctx, v.Spec); err != nil {
			return nil, err
		}
		if restored, err = s.Jobs.Restore(ctx, who, request.ID, v, wanted); err != nil {
			return nil, err
		}
	}
	return api.RestoreJobVersion200JSONResponse{Body: viewJob(restored), Headers: api.RestoreJobVersion200ResponseHeaders{ETag: etag(restored.Version)}}, nil
}

// changesOf is what a version changed; nothing for the first.
func changesOf(v job.Version) ([]patch.Change, error) {
	if v.Previous == nil {
		return nil, nil
	}
	from, err := document(*v.Previous)
	if err != nil {
		return nil, err
	}
	to, err := document(v.Spec)
	if err != nil {
		return nil, err
	}
	return patch.Between(from, to), nil
}

// maxChangedFields bounds the paths that are kept with a version, in bytes.
const maxChangedFields = 4 << 10

// ChangedFields names the fields that differ between two definitions, in order.
// Where the paths would take too much, those of the second level stand for what they hold, or
// those of the first, of which the contract has a few.
func ChangedFields(from, to job.Spec) ([]string, error) {
	changes, err := changesOf(job.Version{Spec: to, Previous: &from})
	if err != nil {
		return nil, err
	}
	paths := make([]string, len(changes))
	for i, change := range changes {
		paths[i] = change.Path
	}
	for depth := 2; depth > 0 && len(strings.Join(paths, "")) > maxChangedFields; depth-- {
		for i, path := range paths {
			names := strings.SplitN(path, ".", depth+1)
			paths[i] = strings.Join(names[:min(len(names), depth)], ".")
		}
		paths = slices.Compact(paths)
	}
	return paths, nil
}

func viewChanges(changes []patch.Change) []api.Change {
	view := make([]api.Change, len(changes))
	for i, change := range changes {
		view[i] = api.Change{Field: change.Path, From: change.From, To: change.To}
	}
	return view
}

// document is a definition as the contract writes it, decoded.
func document(spec job.Spec) (map[string]any, error) {
	raw, err := json.Marshal(definitionOf(spec))
	if err != nil {
		return nil, fmt.Errorf("write the definition: %w", err)
	}
	value, err := decodeExact(raw)
	object, _ := value.(map[string]any)
	return object, err
}

// decodeExact keeps numbers as they are written.
func decodeExact(raw []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("read the definition: %w", err)
	}
	return value, nil
}
