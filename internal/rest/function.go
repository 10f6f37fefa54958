package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/function"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

// PutFunction is PUT /functions/{name}.
func (s *server) PutFunction(ctx context.Context, request api.PutFunctionRequestObject) (api.PutFunctionResponseObject, error) {
	who := callOf(ctx).who.Actor
	module, err := io.ReadAll(request.Body) // the check bounded it
	if err != nil {
		return nil, fmt.Errorf("read a module: %w", err)
	}
	sum := sha256.Sum256(module)
	problem, err := s.CheckModule(ctx, who.TenantID, hex.EncodeToString(sum[:]), module)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, fault.CodeUnavailable, "the module cannot be checked now: upload it again later", err)
	}
	if problem != "" {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidModule, "the body "+problem)
	}
	stored, fresh, err := s.Functions.Put(ctx, who, request.Name, module)
	if err != nil {
		return nil, err
	}
	if !fresh {
		return api.PutFunction200JSONResponse{Body: viewFunction(stored), Headers: api.PutFunction200ResponseHeaders{ETag: etag(int(stored.Version))}}, nil
	}
	location := base + "/functions/" + stored.Name
	return api.PutFunction201JSONResponse{
		Body: viewFunction(stored), Headers: api.PutFunction201ResponseHeaders{Location: &location, ETag: etag(int(stored.Version))},
	}, nil
}

// ListFunctions is GET /functions.
func (s *server) ListFunctions(ctx context.Context, request api.ListFunctionsRequestObject) (api.ListFunctionsResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var after *function.Position
	if page.after != nil {
		after = &function.Position{CreatedAt: page.after.At, ID: page.after.ID}
	}
	list, err := s.Functions.List(ctx, c.who.Actor, page.limit+1, after)
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(one function.Function) cursor.Place { return cursor.Place{At: one.CreatedAt, ID: one.ID} })
	answer := api.ListFunctions200JSONResponse{Items: make([]api.Function, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = viewFunction(one)
	}
	return answer, nil
}

// GetFunction is GET /functions/{name}.
func (s *server) GetFunction(ctx context.Context, request api.GetFunctionRequestObject) (api.GetFunctionResponseObject, error) {
	found, versions, err := s.Functions.Get(ctx, callOf(ctx).who.Actor, request.Name)
	if err != nil {
		return nil, err
	}
	view, list := viewFunction(found), make([]api.FunctionVersion, len(versions))
	for i, v := range versions {
		list[i] = api.FunctionVersion{Version: int(v.Version), Digest: v.Digest, SizeBytes: int(v.SizeBytes), CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt}
	}
	view.Versions = &list
	return api.GetFunction200JSONResponse{Body: view, Headers: api.GetFunction200ResponseHeaders{ETag: etag(int(found.Version))}}, nil
}

// DeleteFunction is DELETE /functions/{name}.
func (s *server) DeleteFunction(ctx context.Context, request api.DeleteFunctionRequestObject) (api.DeleteFunctionResponseObject, error) {
	if err := s.Functions.Delete(ctx, callOf(ctx).who.Actor, request.Name); err != nil {
		return nil, err
	}
	return api.DeleteFunction204Response{}, nil
}

func viewFunction(one function.Function) api.Function {
	return api.Function{
		ID: one.ID, TenantID: one.TenantID, Name: one.Name, Version: int(one.Version), Digest: one.Digest, SizeBytes: int(one.SizeBytes),
		CreatedBy: one.CreatedBy, CreatedAt: one.CreatedAt, UpdatedBy: one.UpdatedBy, UpdatedAt: one.UpdatedAt,
	}
}
