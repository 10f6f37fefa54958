package rest

import (
	"context"
	"time"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/apikey"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

// CreateAPIKey is POST /api-keys.
func (s *server) CreateAPIKey(ctx context.Context, request api.CreateAPIKeyRequestObject) (api.CreateAPIKeyResponseObject, error) {
	who, spec := callOf(ctx).who, newKey(*request.Body)
	if fields := apikey.Validate(spec, who, s.Clock()); len(fields) > 0 {
		return nil, wrong(fields...)
	}
	made, text, err := s.Keys.Create(ctx, who.Actor, spec)
	if err != nil {
		return nil, err
	}
	location := base + "/api-keys/" + made.ID.String()
	return api.CreateAPIKey201JSONResponse{Body: viewNewKey(made, text), Headers: api.CreateAPIKey201ResponseHeaders{Location: &location}}, nil
}

// ListAPIKeys is GET /api-keys.
func (s *server) ListAPIKeys(ctx context.Context, request api.ListAPIKeysRequestObject) (api.ListAPIKeysResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var after *apikey.Position
	if page.after != nil {
		after = &apikey.Position{CreatedAt: page.after.At, ID: page.after.ID}
	}
	list, err := s.Keys.List(ctx, c.who.Actor, page.limit+1, after)
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(k apikey.Key) cursor.Place { return cursor.Place{At: k.CreatedAt, ID: k.ID} })
	answer := api.ListAPIKeys200JSONResponse{Items: make([]api.APIKey, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = viewKey(one)
	}
	return answer, nil
}

// GetAPIKey is GET /api-keys/{id}.
func (s *server) GetAPIKey(ctx context.Context, request api.GetAPIKeyRequestObject) (api.GetAPIKeyResponseObject, error) {
	found, err := s.Keys.Get(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	return api.GetAPIKey200JSONResponse(viewKey(found)), nil
}

// DeleteAPIKey is DELETE /api-keys/{id}.
func (s *server) DeleteAPIKey(ctx context.Context, request api.DeleteAPIKeyRequestObject) (api.DeleteAPIKeyResponseObject, error) {
	if err := s.Keys.Delete(ctx, callOf(ctx).who.Actor, request.ID); err != nil {
		return nil, err
	}
	return api.DeleteAPIKey204Response{}, nil
}

// RotateAPIKey is POST /api-keys/{id}/rotate.
func (s *server) RotateAPIKey(ctx context.Context, request api.RotateAPIKeyRequestObject) (api.RotateAPIKeyResponseObject, error) {
	grace := time.Duration(orZero(orZero(request.Body).GraceSeconds)) * time.Second
	key, text, err := s.Keys.Rotate(ctx, callOf(ctx).who, request.ID, grace)
	if err != nil {
		return nil, err
	}
	return api.RotateAPIKey200JSONResponse(viewNewKey(key, text)), nil
}

func newKey(body api.APIKeySpec) apikey.Spec {
	spec := apikey.Spec{Name: body.Name, ExpiresAt: body.ExpiresAt, Scopes: make([]identity.Permission, len(body.Scopes))}
	for i, scope := range body.Scopes {
		spec.Scopes[i] = identity.Permission(scope)
	}
	return spec
}

func viewKey(k apikey.Key) api.APIKey {
	view := api.APIKey{
		ID: k.ID, TenantID: k.TenantID, Name: k.Name, Prefix: k.Prefix, Scopes: make([]api.Permission, len(k.Scopes)),
		ExpiresAt: k.ExpiresAt, LastUsedAt: k.LastUsedAt, CreatedBy: k.CreatedBy, CreatedAt: k.CreatedAt, RotatedAt: k.RotatedAt,
	}
	for i, scope := range k.Scopes {
		view.Scopes[i] = api.Permission(scope)
	}
	return view
}

func viewNewKey(k apikey.Key, text string) api.NewAPIKey {
	v := viewKey(k)
	return api.NewAPIKey{
		ID: v.ID, TenantID: v.TenantID, Name: v.Name, Prefix: v.Prefix, Scopes: v.Scopes, ExpiresAt: v.ExpiresAt,
		LastUsedAt: v.LastUsedAt, CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt, RotatedAt: v.RotatedAt, Key: text,
	}
}
