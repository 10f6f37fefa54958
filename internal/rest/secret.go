package rest

import (
	"context"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// PutSecret is PUT /secrets/{name}.
func (s *server) PutSecret(ctx context.Context, request api.PutSecretRequestObject) (api.PutSecretResponseObject, error) {
	draft := secret.Draft{Name: request.Name, Value: keyring.NewText(orZero(request.Body.Value)), Description: request.Body.Description}
	if fields := draft.Validate(); len(fields) > 0 {
		return nil, wrong(fields...)
	}
	draft.IfVersion, draft.Replaces = versionOf(request.Params.IfMatch), request.Params.IfMatch != nil
	stored, fresh, err := s.Secrets.Put(ctx, callOf(ctx).who.Actor, draft)
	if err != nil {
		return nil, err
	}
	if !fresh {
		return api.PutSecret200JSONResponse{Body: viewSecret(stored), Headers: api.PutSecret200ResponseHeaders{ETag: etag(int(stored.Version))}}, nil
	}
	location := base + "/secrets/" + stored.Name
	headers := api.PutSecret201ResponseHeaders{Location: &location, ETag: etag(int(stored.Version))}
	return api.PutSecret201JSONResponse{Body: viewSecret(stored), Headers: headers}, nil
}

// ListSecrets is GET /secrets.
func (s *server) ListSecrets(ctx context.Context, request api.ListSecretsRequestObject) (api.ListSecretsResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var after *secret.Position
	if page.after != nil {
		after = &secret.Position{CreatedAt: page.after.At, ID: page.after.ID}
	}
	list, err := s.Secrets.List(ctx, c.who.Actor, page.limit+1, after)
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(one secret.Secret) cursor.Place { return cursor.Place{At: one.CreatedAt, ID: one.ID} })
	answer := api.ListSecrets200JSONResponse{Items: make([]api.Secret, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = viewSecret(one)
	}
	return answer, nil
}

// GetSecret is GET /secrets/{name}.
func (s *server) GetSecret(ctx context.Context, request api.GetSecretRequestObject) (api.GetSecretResponseObject, error) {
	found, err := s.Secrets.Get(ctx, callOf(ctx).who.Actor, request.Name)
	if err != nil {
		return nil, err
	}
	return api.GetSecret200JSONResponse{Body: viewSecret(found), Headers: api.GetSecret200ResponseHeaders{ETag: etag(int(found.Version))}}, nil
}

// DeleteSecret is DELETE /secrets/{name}.
func (s *server) DeleteSecret(ctx context.Context, request api.DeleteSecretRequestObject) (api.DeleteSecretResponseObject, error) {
	if err := s.Secrets.Delete(ctx, callOf(ctx).who.Actor, request.Name, versionOf(request.Params.IfMatch)); err != nil {
		return nil, err
	}
	return api.DeleteSecret204Response{}, nil
}

func viewSecret(one secret.Secret) api.Secret {
	return api.Secret{
		ID: one.ID, TenantID: one.TenantID, Name: one.Name, Description: one.Description, Version: int(one.Version), KeyID: one.KeyID,
		CreatedBy: one.CreatedBy, CreatedAt: one.CreatedAt, UpdatedBy: one.UpdatedBy, UpdatedAt: one.UpdatedAt,
	}
}
