package rest_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/audit"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// entries are what the audit log has of a tenant, newest first, as kind, actor,
// action and change.
func (b *bundle) entries(t *testing.T, who tenant.Actor, f audit.Filter) (texts []string) {
	t.Helper()
	f.Limit = 200
	list, _, err := audit.NewStore(b.db).List(t.Context(), who, f)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		texts = append(texts, fmt.Sprint(e.ActorKind, " ", e.Actor, " ", e.Action, " ", e.ObjectType, " ", e.Address, " ", string(e.After)))
	}
	return texts
}

// inAuditLog has a call of one tenant after another refused until the audit log has it. It may take
// a second to record one, after which it is left out: on a busy machine that is too short.
func (b *bundle) inAuditLog(t *testing.T, want string, call func(who tenant.Actor)) {
	t.Helper()
	got := ""
	for range 5 {
		who := tenant.Actor{TenantID: uuid.New(), Subject: "eve"}
		b.makeJob(t, who)
		call(who)
		if got = strings.Join(b.entries(t, who, audit.Filter{ObjectType: "call"}), "\n"); strings.Contains(got, want) {
			return
		}
	}
	t.Errorf("the audit log has\n%s\nand not\n%s", got, want)
}

// A service with a name acts for its tenants, from its networks and so often; the
// audit log says which service it was, and what was refused to it.
func TestNamedServices(t *testing.T) {
	t.Parallel()
	var b *bundle
	ours := uuid.New()
	b = setup(t, func(d *parts.Deps) {
		d.Services = identity.NewPeerTokens(
			identity.Peer{Name: "billing", Token: serviceToken, Tenants: []uuid.UUID{ours}, Rate: 1},
			identity.Peer{Name: "shop", Token: nextToken, Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		)
	})
	b.ours.TenantID = ours
	b.makeJob(t, b.ours)
	b.makeJob(t, b.theirs)
	call := func(token string, who tenant.Actor) answer {
		return b.do(t, request{method: "POST", path: "/internal/jobs/create", body: webhook, header: map[string]string{"X-Service-Token": token, "X-Tenant-ID": who.TenantID.String()}})
	}
	made := read[api.ServiceJob](t, call(serviceToken, b.ours), http.StatusCreated)
	if made.Data.CreatedBy != "service:billing" {
		t.Errorf("made by %s", made.Data.CreatedBy)
	}
	if got := b.entries(t, b.ours, audit.Filter{Actor: "service:billing"}); len(got) != 1 || !strings.HasPrefix(got[0], "service service:billing internalCreateJob job ") {
		t.Errorf("the audit log has %q", got)
	}
	for token, want := range map[string]string{
		serviceToken: `service service:billing internalCreateJob call 192.0.2.1 {"reason":"this service may not act for this tenant"}`,
		nextToken:    `service service:shop internalCreateJob call 192.0.2.1 {"reason":"this service may not call from this address"}`,
	} {
		b.inAuditLog(t, want, func(who tenant.Actor) {
			refusedService(t, call(token, who), http.StatusForbidden, "FORBIDDEN")
		})
	}
	limited := 0
	for try := 0; try < 10 || try < 1000 && limited == 0; try++ { // on a busy machine ten take ten seconds
		got := call(serviceToken, b.ours)
		if got.status != http.StatusTooManyRequests {
			continue
		}
		limited++
		if e := refusedService(t, got, http.StatusTooManyRequests, "RATE_LIMITED"); e.Limit == nil || e.Limit.Name != "serviceRequestsPerSecond" || e.Limit.Value != 1 {
			t.Errorf("the limit is %+v", e.Limit)
		}
	}
	if limited == 0 {
		t.Error("no call was beyond the rate of one a second")
	}
}

// A call that is refused to somebody whose tenant is known is in the audit log
// once a minute, however often it comes; who proves nothing is not. The chain
// holds.
func TestRefusedCallsAreRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.makeJob(t, b.ours)
	remove := request{method: "DELETE", path: base + "/jobs/" + made.ID.String()}
	who := b.ours
	var list []string
	for try := 0; try < 5 && len(list) == 0; try++ { // a record that takes more than a second is left out
		who.Subject = fmt.Sprint("ada ", try)
		remove.token = b.token(t, who, identity.Viewer)
		for range 20 {
			refused(t, b.do(t, remove), http.StatusForbidden, "FORBIDDEN")
		}
		remove.token = "nonsense"
		refused(t, b.do(t, remove), http.StatusUnauthorized, "UNAUTHORIZED")
		list = b.entries(t, b.ours, audit.Filter{ObjectType: "call"})
	}
	if len(list) != 1 || !strings.HasPrefix(list[0], "user "+who.Subject+" deleteJob call 192.0.2.1 {") || !strings.Contains(list[0], "jobs:write") && !strings.Contains(list[0], "permission") {
		t.Errorf("the audit log has %q, want one refused call", list)
	}
	for i := range 100 { // callers with a good token each
		who.Subject = fmt.Sprint("caller ", i)
		remove.token = b.token(t, who, identity.Viewer)
		refused(t, b.do(t, remove), http.StatusForbidden, "FORBIDDEN")
	}
	if n := len(b.entries(t, b.ours, audit.Filter{ObjectType: "call"})); n < 2 || n > 60 {
		t.Errorf("100 callers left %d records, want some 30", n)
	}
	reports, err := audit.NewStore(b.db).Verify(t.Context(), b.ours, nil, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		if r.Problem != nil || !r.Complete {
			t.Errorf("%+v %+v", r, r.Problem)
		}
	}
	if err := b.connect(t).QueryRow(t.Context(), "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM denied_calls)").Scan(new(int)); err != nil {
		t.Errorf("rows stay behind: %v", err)
	}
}

// A token whose time is over still says whose it was.
func TestExpiredTokensAreRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.makeJob(t, b.ours)
	var tokens, got []string
	for i := range 5 {
		who := b.ours
		who.Subject = fmt.Sprint("ada ", i)
		tokens = append(tokens, b.token(t, who, identity.Viewer))
	}
	b.now = b.now.AddDate(1, 0, 0)
	for i := 0; i < len(tokens) && len(got) == 0; i++ { // a record that takes more than a second is left out
		refused(t, b.do(t, request{method: "GET", path: base + "/jobs", token: tokens[i]}), http.StatusUnauthorized, "UNAUTHORIZED")
		got = b.entries(t, b.ours, audit.Filter{ObjectType: "call", Action: "listJobs"})
	}
	if len(got) != 1 || !strings.Contains(got[0], "expired") {
		t.Errorf("the audit log has %q", got)
	}
}
