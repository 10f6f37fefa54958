package rest

import (
	"context"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/live"
)

// ListSettings is GET /settings.
func (s *server) ListSettings(ctx context.Context, _ api.ListSettingsRequestObject) (api.ListSettingsResponseObject, error) {
	all, err := s.Settings.List(ctx)
	if err != nil {
		return nil, err
	}
	answer := api.ListSettings200JSONResponse{Items: make([]api.Setting, len(all))}
	for i, one := range all {
		answer.Items[i] = viewSetting(one)
	}
	return answer, nil
}

// PutSetting is PUT /settings/{name}.
func (s *server) PutSetting(ctx context.Context, request api.PutSettingRequestObject) (api.PutSettingResponseObject, error) {
	changed, err := s.Settings.Set(ctx, callOf(ctx).who.Actor, request.Name, request.Body.Value)
	if err != nil {
		return nil, err
	}
	return api.PutSetting200JSONResponse(viewSetting(changed)), nil
}

// ResetSetting is DELETE /settings/{name}.
func (s *server) ResetSetting(ctx context.Context, request api.ResetSettingRequestObject) (api.ResetSettingResponseObject, error) {
	if err := s.Settings.Reset(ctx, callOf(ctx).who.Actor, request.Name); err != nil {
		return nil, err
	}
	return api.ResetSetting204Response{}, nil
}

func viewSetting(one live.Setting) api.Setting {
	return api.Setting{
		Name: one.Name, Value: textOrNull(one.Value), Source: api.SettingSource(one.Source), Default: one.Default, Unit: one.Unit,
		Minimum: one.Min, Maximum: one.Max, Allowed: append([]string{}, one.OneOf...), Description: one.Meaning,
		ChangedAt: one.ChangedAt, ChangedBy: textOrNull(one.ChangedBy),
	}
}
