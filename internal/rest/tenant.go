package rest

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
	"github.com/scheduler-service/scheduler/internal/tenant"
	"github.com/scheduler-service/scheduler/internal/tenant/hosts"
)

// withinLimits refuses a valid definition that the tenant may not have.
func (s *server) withinLimits(ctx context.Context, spec job.Spec) error {
	limits := callOf(ctx).tenant.Limits
	if !limits.Allows(spec.Type) {
		may := fmt.Sprintf("may have the types %v", limits.JobTypes)
		if limits.JobTypes == nil {
			may = fmt.Sprintf("may not have the type %s until a platform administrator names it in the tenant's jobTypes", spec.Type)
		}
		return fault.Exceeded(fault.Limit{Name: "jobTypes", Value: int64(len(limits.JobTypes))}, "jobs of this tenant "+may, s.Clock())
	}
	least := time.Duration(orZero(limits.MinIntervalSeconds)) * time.Second
	if least <= time.Second {
		return nil // no schedule has less
	}
	calendars, err := s.Jobs.Contents(ctx, callOf(ctx).who.Actor, spec.Calendars)
	if err != nil {
		return err
	}
	distance, err := spec.SmallestDistance(calendars, s.Clock())
	if err != nil || distance == 0 || distance >= least {
		return err
	}
	return fault.Exceeded(fault.Limit{Name: "minIntervalSeconds", Value: int64(least / time.Second)},
		fmt.Sprintf("the schedule has two scheduled times %v apart; jobs of this tenant need at least %v between them", distance, least), s.Clock())
}

// hostFaults says that a job calls a host that the tenant may not call.
func (s *server) hostFaults(ctx context.Context, spec job.Spec) []fault.Field {
	host := s.HostOf(spec.Type, spec.Config)
	if host == "" || hosts.Admit(callOf(ctx).tenant.AllowedHosts, host) {
		return nil
	}
	return []fault.Field{{Path: "config.url", Rule: "allowed-host", Message: "calls a host that is not among allowedHosts of this tenant (GET /tenant)"}}
}

// GetOwnTenant is GET /tenant.
func (s *server) GetOwnTenant(ctx context.Context, _ api.GetOwnTenantRequestObject) (api.GetOwnTenantResponseObject, error) {
	view, err := s.tenantWithUsage(ctx, callOf(ctx).who.Actor.TenantID, s.Limits())
	if err != nil {
		return nil, err
	}
	return api.GetOwnTenant200JSONResponse{Body: view, Headers: api.GetOwnTenant200ResponseHeaders{ETag: etag(view.Version)}}, nil
}

// GetTenant is GET /tenants/{id}: the limits are those that PUT takes, so that
// sending them back does not make today's configuration the tenant's own.
func (s *server) GetTenant(ctx context.Context, request api.GetTenantRequestObject) (api.GetTenantResponseObject, error) {
	view, err := s.tenantWithUsage(ctx, request.ID, tenant.Limits{})
	if err != nil {
		return nil, err
	}
	return api.GetTenant200JSONResponse{Body: view, Headers: api.GetTenant200ResponseHeaders{ETag: etag(view.Version)}}, nil
}

// tenantWithUsage shows the limits that it has of its own, or those that hold
// with these defaults.
func (s *server) tenantWithUsage(ctx context.Context, id uuid.UUID, defaults tenant.Limits) (api.TenantWithUsage, error) {
	found, used, err := s.Tenants.Get(ctx, id)
	if err != nil {
		return api.TenantWithUsage{}, err
	}
	found.Limits = found.Limits.WithDefaults(defaults)
	v := viewTenant(found)
	view := api.TenantWithUsage{
		ID: v.ID, Version: v.Version, Name: v.Name, Status: v.Status, StatusReason: v.StatusReason, Limits: v.Limits, AllowedIps: v.AllowedIps, AllowedOrigins: v.AllowedOrigins, AllowedHosts: v.AllowedHosts,
		CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt,
		Usage: api.TenantUsage{
			Jobs: used.Jobs, Running: used.Running, Waiting: used.Waiting, Cancelling: used.Cancelling, Calendars: used.Calendars, Secrets: used.Secrets, APIKeys: used.APIKeys,
		},
	}
	if found.Limits.MaxExecutionsPerDay != nil {
		view.Usage.ExecutionsToday = new(used.ExecutionsToday)
	}
	return view, nil
}

// CreateTenant is POST /tenants.
func (s *server) CreateTenant(ctx context.Context, request api.CreateTenantRequestObject) (api.CreateTenantResponseObject, error) {
	spec, fields := newTenant(api.TenantSpec{Name: request.Body.Name, Limits: request.Body.Limits, AllowedIps: request.Body.AllowedIps, AllowedOrigins: request.Body.AllowedOrigins, AllowedHosts: request.Body.AllowedHosts})
	id := orZero(request.Body.ID)
	if request.Body.ID == nil {
		id = uuid.New()
	} else if id == uuid.Nil {
		fields = append(fields, fault.Field{Path: "id", Rule: "uuid", Message: "is the id of nobody"})
	}
	if len(fields) > 0 {
		return nil, wrong(fields...)
	}
	made, err := s.Tenants.Create(ctx, id, spec)
	if err != nil {
		return nil, err
	}
	location := base + "/tenants/" + id.String()
	headers := api.CreateTenant201ResponseHeaders{Location: &location, ETag: etag(made.Version)}
	return api.CreateTenant201JSONResponse{Body: viewTenant(made), Headers: headers}, nil
}

// ListTenants is GET /tenants.
func (s *server) ListTenants(ctx context.Context, request api.ListTenantsRequestObject) (api.ListTenantsResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var after *tenant.Position
	if page.after != nil {
		after = &tenant.Position{CreatedAt: page.after.At, ID: page.after.ID}
	}
	list, err := s.Tenants.List(ctx, tenant.Status(orZero(request.Params.Status)), page.limit+1, after)
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(t tenant.Tenant) cursor.Place { return cursor.Place{At: t.CreatedAt, ID: t.ID} })
	answer := api.ListTenants200JSONResponse{Items: make([]api.Tenant, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = viewTenant(one)
	}
	return answer, nil
}

// UpdateTenant is PUT /tenants/{id}.
func (s *server) UpdateTenant(ctx context.Context, request api.UpdateTenantRequestObject) (api.UpdateTenantResponseObject, error) {
	err := sentBackAsIs(ctx, func() (api.TenantWithUsage, error) { return s.tenantWithUsage(ctx, request.ID, tenant.Limits{}) })
	if err != nil {
		return nil, err
	}
	spec, fields := newTenant(*request.Body)
	if len(fields) > 0 {
		return nil, wrong(fields...)
	}
	changed, err := s.Tenants.Change(ctx, request.ID, spec, wantedVersion(ctx, request.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	return api.UpdateTenant200JSONResponse{Body: viewTenant(changed), Headers: api.UpdateTenant200ResponseHeaders{ETag: etag(changed.Version)}}, nil
}

// DeleteTenant is DELETE /tenants/{id}.
func (s *server) DeleteTenant(ctx context.Context, request api.DeleteTenantRequestObject) (api.DeleteTenantResponseObject, error) {
	if request.ID == callOf(ctx).who.Actor.TenantID {
		return nil, fault.New(fault.Conflict, fault.CodeConflict, "you cannot delete your own tenant")
	}
	deleted, err := s.Tenants.Delete(ctx, request.ID, versionOf(request.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	return api.DeleteTenant202JSONResponse(viewTenant(deleted)), nil
}

// SuspendTenant is POST /tenants/{id}/suspend.
func (s *server) SuspendTenant(ctx context.Context, request api.SuspendTenantRequestObject) (api.SuspendTenantResponseObject, error) {
	if request.ID == callOf(ctx).who.Actor.TenantID {
		return nil, fault.New(fault.Conflict, fault.CodeConflict, "nobody can suspend the tenant of their own token")
	}
	suspended, err := s.Tenants.Suspend(ctx, request.ID, orZero(orZero(request.Body).Reason))
	if err != nil {
		return nil, err
	}
	return api.SuspendTenant200JSONResponse{Body: viewTenant(suspended), Headers: api.SuspendTenant200ResponseHeaders{ETag: etag(suspended.Version)}}, nil
}

// ActivateTenant is POST /tenants/{id}/activate.
func (s *server) ActivateTenant(ctx context.Context, request api.ActivateTenantRequestObject) (api.ActivateTenantResponseObject, error) {
	active, err := s.Tenants.Activate(ctx, request.ID)
	if err != nil {
		return nil, err
	}
	return api.ActivateTenant200JSONResponse{Body: viewTenant(active), Headers: api.ActivateTenant200ResponseHeaders{ETag: etag(active.Version)}}, nil
}

// newTenant translates the contract's tenant into the domain's, and lists what
// is wrong with its networks.
func newTenant(body api.TenantSpec) (tenant.Spec, []fault.Field) {
	limits := orZero(body.Limits)
	spec := tenant.Spec{Name: body.Name, Limits: tenant.Limits{
		MaxJobs: limits.MaxJobs, MaxRunning: limits.MaxRunning, MaxRunningByType: orZero(limits.MaxRunningByType),
		MaxExecutionsPerDay: limits.MaxExecutionsPerDay, RequestsPerSecond: limits.RequestsPerSecond,
		MinIntervalSeconds: limits.MinIntervalSeconds, MaxPayloadBytes: limits.MaxPayloadBytes,
		MaxWaiting: limits.MaxWaiting, MaxWaitingPerJob: limits.MaxWaitingPerJob,
		MaxCalendars: limits.MaxCalendars, MaxSecrets: limits.MaxSecrets, MaxAPIKeys: limits.MaxAPIKeys,
	}}
	if types := limits.JobTypes; types != nil {
		spec.Limits.JobTypes = []string{}
		for _, one := range *types {
			spec.Limits.JobTypes = append(spec.Limits.JobTypes, string(one))
		}
	}
	var fields []fault.Field
	for name := range spec.Limits.MaxRunningByType {
		if !api.JobType(name).Valid() {
			fields = append(fields, fault.Field{Path: "limits.maxRunningByType." + name, Rule: "enum", Message: "is not a job type"})
		}
	}
	for i, text := range orZero(body.AllowedIps) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
			fields = append(fields, fault.Field{Path: fmt.Sprintf("allowedIps[%d]", i), Rule: "cidr", Message: "is not a network such as 203.0.113.0/24, without bits behind its mask"})
			continue
		}
		spec.AllowedIPs = append(spec.AllowedIPs, prefix)
	}
	for i, text := range orZero(body.AllowedOrigins) {
		if !isOrigin(text) {
			fields = append(fields, fault.Field{Path: fmt.Sprintf("allowedOrigins[%d]", i), Rule: "origin", Message: "is not an origin such as https://console.example.com"})
		}
	}
	for i, text := range orZero(body.AllowedHosts) {
		if !hosts.Valid(text) {
			fields = append(fields, fault.Field{Path: fmt.Sprintf("allowedHosts[%d]", i), Rule: "host", Message: "is not a host in small letters such as api.example.com, *.example.com or 203.0.113.7, without scheme and port"})
		}
	}
	spec.AllowedOrigins, spec.AllowedHosts = orZero(body.AllowedOrigins), orZero(body.AllowedHosts)
	return spec, fields
}

func viewTenant(t tenant.Tenant) api.Tenant {
	l := t.Limits
	view := api.Tenant{
		ID: t.ID, Version: t.Version, Name: t.Name, Status: string(t.Status), StatusReason: textOrNull(t.StatusReason), CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt,
		AllowedIps: make([]string, len(t.AllowedIPs)), AllowedOrigins: append([]string{}, t.AllowedOrigins...), AllowedHosts: append([]string{}, t.AllowedHosts...),
		Limits: api.TenantLimits{
			MaxJobs: l.MaxJobs, MaxRunning: l.MaxRunning, MaxExecutionsPerDay: l.MaxExecutionsPerDay,
			RequestsPerSecond: l.RequestsPerSecond, MinIntervalSeconds: l.MinIntervalSeconds,
			MaxPayloadBytes: l.MaxPayloadBytes, MaxWaiting: l.MaxWaiting, MaxWaitingPerJob: l.MaxWaitingPerJob, MaxCalendars: l.MaxCalendars, MaxSecrets: l.MaxSecrets,
			MaxAPIKeys: l.MaxAPIKeys, MaxRunningByType: &l.MaxRunningByType,
		},
	}
	if l.MaxRunningByType == nil {
		view.Limits.MaxRunningByType = &map[string]int{}
	}
	if l.JobTypes != nil {
		types := make([]api.JobType, len(l.JobTypes))
		for i, one := range l.JobTypes {
			types[i] = api.JobType(one)
		}
		view.Limits.JobTypes = new(types)
	}
	for i, prefix := range t.AllowedIPs {
		view.AllowedIps[i] = prefix.String()
	}
	return view
}
