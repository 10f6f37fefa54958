package rest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// limited is an API whose tenant has these limits.
func limited(t *testing.T, spec tenant.Spec, change ...func(*parts.Deps)) (*bundle, string) {
	t.Helper()
	b := setup(t, change...)
	spec.Name = "limited"
	if _, err := b.deps.Tenants.Create(t.Context(), b.ours.TenantID, spec); err != nil {
		t.Fatal(err)
	}
	return b, b.token(t, b.ours, identity.Admin)
}

// met demands that an answer names the limit that was met.
func met(t *testing.T, got answer, status int, code, name string, value int64) {
	t.Helper()
	e := refused(t, got, status, code)
	if e.Error.Limit == nil || e.Error.Limit.Name != name || e.Error.Limit.Value != value {
		t.Errorf("the limit is %+v, want %s %d: %s", e.Error.Limit, name, value, got.body)
		return
	}
	waits := status == http.StatusTooManyRequests
	if (e.Error.Limit.ResetAt == nil) == waits || (got.header.Get("Retry-After") != "") != waits {
		t.Errorf("reset %v, Retry-After %q with %d", e.Error.Limit.ResetAt, got.header.Get("Retry-After"), status)
	}
	if waits {
		sameWait(t, got, e)
	}
}

// sameWait demands that header and body say the same of when to come back, in
// whole seconds.
func sameWait(t *testing.T, got answer, e api.Error) {
	t.Helper()
	reset := *e.Error.Limit.ResetAt
	if want := `"resetAt":"` + reset.UTC().Format("2006-01-02T15:04:05Z") + `"`; !strings.Contains(got.body, want) {
		t.Errorf("resetAt is not in whole seconds: %s", got.body)
	}
	if e.Error.Code != "RATE_LIMITED" {
		return // by the database's clock
	}
	retry, err := strconv.Atoi(got.header.Get("Retry-After"))
	if left := reset.Sub(e.Timestamp); err != nil || left > time.Duration(retry)*time.Second || left <= time.Duration(retry-1)*time.Second {
		t.Errorf("Retry-After is %q, resetAt %v after the answer", got.header.Get("Retry-After"), left)
	}
	if limit := got.header.Get("RateLimit"); limit != "" && !strings.HasSuffix(e.Error.Limit.Name, "AtOnce") && !strings.HasSuffix(limit, fmt.Sprintf(`";r=0;t=%d`, retry)) {
		t.Errorf("RateLimit is %s with Retry-After %d", limit, retry)
	}
}

// Each limit lets through what is at it and refuses what is one beyond.
func TestLimitsAreMetExactly(t *testing.T) {
	t.Parallel()
	t.Run("jobs", func(t *testing.T) {
		t.Parallel()
		b, token := limited(t, tenant.Spec{Limits: tenant.Limits{MaxJobs: ptr(2)}})
		create := func() answer {
			return b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: webhook})
		}
		first := read[api.Job](t, create(), http.StatusCreated)
		read[api.Job](t, create(), http.StatusCreated)
		met(t, create(), http.StatusForbidden, "QUOTA_EXCEEDED", "maxJobs", 2)
		if got := b.do(t, request{method: "DELETE", path: base + "/jobs/" + first.ID.String(), token: token}); got.status != http.StatusNoContent {
			t.Fatal(got)
		}
		read[api.Job](t, create(), http.StatusCreated)
		e := refusedService(t, b.call(t, "POST", "batch-create", `{"jobs":[`+webhook+`]}`, b.ours), http.StatusForbidden, "QUOTA_EXCEEDED")
		if e.Limit == nil || e.Limit.Name != "maxJobs" || b.stored(t)["scheduled_jobs"] != 3 {
			t.Errorf("the batch was answered %+v", e)
		}
	})
	t.Run("calendars", func(t *testing.T) {
		t.Parallel()
		b, token := limited(t, tenant.Spec{Limits: tenant.Limits{MaxCalendars: ptr(2)}})
		create := func(name string) answer {
			return b.do(t, request{method: "POST", path: base + "/calendars", token: token, body: `{"name":"` + name + `","days":[]}`})
		}
		first := read[api.Calendar](t, create("a"), http.StatusCreated)
		read[api.Calendar](t, create("b"), http.StatusCreated)
		met(t, create("c"), http.StatusForbidden, "QUOTA_EXCEEDED", "maxCalendars", 2)
		imported := request{method: "POST", path: base + "/calendars/import?name=c", token: token, body: holidays, header: map[string]string{"Content-Type": "text/calendar"}}
		met(t, b.do(t, imported), http.StatusForbidden, "QUOTA_EXCEEDED", "maxCalendars", 2)
		if got := b.do(t, request{method: "DELETE", path: base + "/calendars/" + first.ID.String(), token: token}); got.status != http.StatusNoContent {
			t.Fatal(got)
		}
		read[api.Calendar](t, create("c"), http.StatusCreated)
	})
	t.Run("secrets", func(t *testing.T) {
		t.Parallel()
		b, token := limited(t, tenant.Spec{Limits: tenant.Limits{MaxSecrets: ptr(1)}})
		put := func(name string) answer {
			return b.do(t, request{method: "PUT", path: base + "/secrets/" + name, token: token, body: `{"value":"0123456789"}`})
		}
		read[api.Secret](t, put("a"), http.StatusCreated)
		met(t, put("b"), http.StatusForbidden, "QUOTA_EXCEEDED", "maxSecrets", 1)
		read[api.Secret](t, put("a"), http.StatusOK) // a new value is no new secret
	})
	t.Run("API keys", func(t *testing.T) {
		t.Parallel()
		b, token := limited(t, tenant.Spec{Limits: tenant.Limits{MaxAPIKeys: ptr(1)}})
		create := request{method: "POST", path: base + "/api-keys", token: token, body: `{"name":"n","scopes":["jobs:read"]}`}
		if got := b.do(t, create); got.status != http.StatusCreated {
			t.Fatal(got)
		}
		met(t, b.do(t, create), http.StatusForbidden, "QUOTA_EXCEEDED", "maxApiKeys", 1)
		seen := read[api.TenantWithUsage](t, b.do(t, request{method: "GET", path: base + "/tenant", token: token}), http.StatusOK)
		if n := seen.Limits.MaxSecrets; n == nil || *n != 1000 || seen.Usage.APIKeys != 1 || seen.Usage.Secrets != 0 {
			t.Errorf("the tenant is shown as %+v", seen)
		}
	})
	t.Run("executions of the day", func(t *testing.T) {
		t.Parallel()
		b, token := limited(t, tenant.Spec{Limits: tenant.Limits{MaxExecutionsPerDay: ptr(2)}})
		id := b.makeJob(t, b.ours).ID.String()
		trigger := func() answer {
			return b.do(t, request{method: "POST", path: base + "/jobs/" + id + "/trigger", token: token})
		}
		read[api.Execution](t, trigger(), http.StatusAccepted)
		read[api.Execution](t, trigger(), http.StatusAccepted)
		met(t, trigger(), http.StatusTooManyRequests, "QUOTA_EXCEEDED", "maxExecutionsPerDay", 2)
		usage := read[api.TenantWithUsage](t, b.do(t, request{method: "GET", path: base + "/tenant", token: token}), http.StatusOK).Usage
		if n := usage.ExecutionsToday; n == nil || *n != 2 || usage.Jobs != 1 {
			t.Errorf("the usage is %+v", usage)
		}
	})
	t.Run("smallest interval", func(t *testing.T) {
		t.Parallel()
		b, token := limited(t, tenant.Spec{Limits: tenant.Limits{MinIntervalSeconds: ptr(60)}})
		for schedule, fits := range map[string]bool{
			`"interval":"PT60S"`: true, `"interval":"PT59S"`: false, `"cronExpression":"0 * * * * *"`: true, `"cronExpression":"0,59 0 0 * * *"`: false,
			`"cronExpression":"*/30 * * * * *"`: false, `"runAt":"2099-01-01T00:00:00Z"`: true,
		} {
			body := strings.NewReplacer(`"cronExpression":"0 0 9 * * 1-5"`, schedule, `"timezone":"Asia/Shanghai",`, "").Replace(webhook)
			got := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: body})
			if fits && got.status != http.StatusCreated {
				t.Errorf("%s: %d %s", schedule, got.status, got.body)
			}
			if !fits {
				met(t, got, http.StatusForbidden, "QUOTA_EXCEEDED", "minIntervalSeconds", 60)
			}
		}
	})
	t.Run("payload", func(t *testing.T) {
		t.Parallel()
		b, token := limited(t, tenant.Spec{Limits: tenant.Limits{MaxPayloadBytes: ptr(1024)}})
		padded := func(n int) string {
			return strings.Replace(webhook, "report", strings.Repeat("r", 100), 1)[:1] + `"description":"` + strings.Repeat("d", n) + `",` + webhook[1:]
		}
		fit := 1024 - len(padded(0))
		read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: padded(fit)}), http.StatusCreated)
		met(t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: padded(fit + 1)}), http.StatusForbidden, "QUOTA_EXCEEDED", "maxPayloadBytes", 1024)
	})
	t.Run("job types", func(t *testing.T) {
		t.Parallel()
		b, token := limited(t, tenant.Spec{Limits: tenant.Limits{JobTypes: []string{"http"}}})
		read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: webhook}), http.StatusCreated)
		function := strings.NewReplacer(`"http"`, `"function"`, `{"url":"https://example.com/"}`, `{"functionName":"noop"}`).Replace(webhook)
		met(t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: function}), http.StatusForbidden, "QUOTA_EXCEEDED", "jobTypes", 1)
	})
	t.Run("commands need a word", func(t *testing.T) {
		t.Parallel()
		job := `{"name":"c","trigger":"manual","jobType":"command","config":{"command":"true"}}`
		for _, test := range []struct {
			types []string
			fits  bool
		}{{nil, false}, {[]string{"http"}, false}, {[]string{"http", "command"}, true}} {
			b, token := limited(t, tenant.Spec{Limits: tenant.Limits{JobTypes: test.types}}, realExecutors(t))
			got := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: job})
			if test.fits {
				read[api.Job](t, got, http.StatusCreated)
			} else {
				met(t, got, http.StatusForbidden, "QUOTA_EXCEEDED", "jobTypes", int64(len(test.types)))
			}
		}
	})
	t.Run("requests a second", func(t *testing.T) {
		t.Parallel()
		b, token := limited(t, tenant.Spec{Limits: tenant.Limits{RequestsPerSecond: ptr(1)}})
		ask := func() answer { return b.do(t, request{method: "GET", path: base + "/jobs", token: token}) }
		got := ask()
		if got.status != http.StatusOK || got.header.Get("RateLimit-Policy") != `"tenant";q=1;w=1` || got.header.Get("RateLimit") != `"tenant";r=0;t=1` {
			t.Errorf("%d with %v", got.status, got.header)
		}
		for range 1000 { // a busy machine may be slow for a while, but not all the time
			if got = ask(); got.status == http.StatusTooManyRequests {
				break
			}
		}
		met(t, got, http.StatusTooManyRequests, "RATE_LIMITED", "requestsPerSecond", 1)
		if other := b.do(t, request{method: "GET", path: base + "/jobs", token: b.token(t, b.theirs, identity.Admin)}); other.status != http.StatusOK {
			t.Errorf("another tenant was answered %d", other.status)
		}
	})
}

// A tenant that sends large bodies may ask less often: each whole 4 KiB counts
// for one more request.
func TestALargeBodyCountsForSeveralRequests(t *testing.T) {
	t.Parallel()
	b, token := limited(t, tenant.Spec{Limits: tenant.Limits{RequestsPerSecond: ptr(100)}})
	padded := func(n int) string { return `{"description":"` + strings.Repeat("d", n) + `",` + webhook[1:] }
	got := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: padded(24*4096 - len(padded(0)))})
	if left := got.header.Get("RateLimit"); left != `"tenant";r=75;t=1` {
		t.Errorf("after a body of 24 times 4 KiB: %s (%d)", left, got.status)
	}
}

// An API key does not use up the requests of its tenant, and what it asks for in
// vain costs the tenant none.
func TestKeysLeaveRequestsToOthers(t *testing.T) {
	t.Parallel()
	ask := func(b *bundle, token string) answer {
		return b.do(t, request{method: "GET", path: base + "/jobs", token: token})
	}
	b, token := limited(t, tenant.Spec{Limits: tenant.Limits{RequestsPerSecond: ptr(2)}})
	_, key := b.makeKey(t, b.ours, "jobs:read")
	var got answer
	for range 1000 { // a busy machine may be slow for a while, but not all the time
		if got = ask(b, key); got.status == http.StatusTooManyRequests {
			break
		}
	}
	if policies := got.header.Values("RateLimit-Policy"); cmp.Diff([]string{`"key";q=1;w=1`}, policies) != "" {
		t.Errorf("refused by %v: the tenant's requests were counted too", policies)
	}
	met(t, got, http.StatusTooManyRequests, "RATE_LIMITED", "keyRequestsPerSecond", 1)
	// The tenant's come back twice as fast as the key may use them.
	if got := ask(b, token); got.status != http.StatusOK || got.header.Get("RateLimit-Policy") != `"tenant";q=2;w=1` {
		t.Errorf("beside a key that asks without end, a person was answered %d with %v", got.status, got.header)
	}

	b, _ = limited(t, tenant.Spec{Limits: tenant.Limits{RequestsPerSecond: ptr(100)}})
	_, first := b.makeKey(t, b.ours, "jobs:read")
	_, second := b.makeKey(t, b.ours, "jobs:read")
	for _, key := range []string{first, second} { // each has requests of its own
		got := ask(b, key)
		want := []string{`"key";q=80;w=1`, `"tenant";q=100;w=1`}
		if diff := cmp.Diff(want, got.header.Values("RateLimit-Policy")); diff != "" || got.header.Get("RateLimit") != `"key";r=79;t=1` {
			t.Errorf("%v, policies (-want +got):\n%s", got.header.Values("RateLimit"), diff)
		}
	}
}

// However many create at once, the bound on jobs holds.
func TestConcurrentCreationsKeepTheBoundOnJobs(t *testing.T) {
	t.Parallel()
	b, token := limited(t, tenant.Spec{Limits: tenant.Limits{MaxJobs: ptr(5)}})
	var group sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{}
	for range 20 {
		group.Go(func() {
			got := answer{status: http.StatusTooManyRequests}
			// Where all connections are in use for a second, as on a busy machine, it is asked to come again.
			for try := 0; try < 100 && (got.status == http.StatusTooManyRequests || got.status == http.StatusServiceUnavailable); try++ {
				got = b.send(request{method: "POST", path: base + "/jobs", token: token, body: webhook})
			}
			mu.Lock()
			defer mu.Unlock()
			answers[got.status]++
		})
	}
	group.Wait()
	if diff := cmp.Diff(map[int]int{http.StatusCreated: 5, http.StatusForbidden: 15}, answers); diff != "" || b.stored(t)["scheduled_jobs"] != 5 {
		t.Errorf("%d jobs; answers (-want +got):\n%s", b.stored(t)["scheduled_jobs"], diff)
	}
}

// The address of a call is the connection's, and what a header says of it
// counts only from a trusted proxy.
func TestWhereCallsMayComeFrom(t *testing.T) {
	t.Parallel()
	allowed := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	b, token := limited(t, tenant.Spec{AllowedIPs: allowed}, func(d *parts.Deps) {
		d.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	for _, test := range []struct {
		peer, forwarded string
		status          int
	}{
		{"203.0.113.7:1", "", 200},
		{"[::ffff:203.0.113.7]:1", "", 200},
		{"[2001:db8::1]:1", "", 200},
		{"198.51.100.1:1", "", 403},
		{"198.51.100.1:1", "203.0.113.7", 403}, // nobody trusts that peer
		{"203.0.113.7:1", "198.51.100.1", 200},
		{"10.1.1.1:1", "203.0.113.7", 200},
		{"10.1.1.1:1", "198.51.100.1, 203.0.113.7", 200},
		{"10.1.1.1:1", "203.0.113.7, 198.51.100.1", 403}, // the client wrote the first
		{"10.1.1.1:1", "203.0.113.7, 10.2.2.2", 200},
		{"10.1.1.1:1", "203.0.113.7, nonsense", 403},
		{"10.1.1.1:1", "203.0.113.7:50123", 200}, // as Azure's application gateway writes it
		{"10.1.1.1:1", "198.51.100.1:1, 203.0.113.7:2, 10.2.2.2:3", 200},
		{"10.1.1.1:1", "203.0.113.7, 198.51.100.1:50123", 403},
		{"10.1.1.1:1", "[2001:db8::1]:50123", 200},
		{"10.1.1.1:1", "[2001:db8::1]", 200},
		{"10.1.1.1:1", "[::ffff:203.0.113.7]:1", 200},
		{"10.1.1.1:1", "203.0.113.7:", 403},
		{"10.1.1.1:1", "203.0.113.7:x", 403},
		{"10.1.1.1:1", "[203.0.113.7", 403},
		{"10.1.1.1:1", "203.0.113.7, unknown", 403},
		{"10.1.1.1:1", "", 403},
		{"nonsense", "203.0.113.7", 403},
	} {
		sent := httptest.NewRequest(http.MethodGet, base+"/jobs", nil)
		sent.RemoteAddr = test.peer
		sent.Header.Set("Authorization", "Bearer "+token)
		sent.Header.Set("X-Real-Ip", "203.0.113.7")
		sent.Header.Set("Forwarded", "for=203.0.113.7")
		if test.forwarded != "" {
			sent.Header.Set("X-Forwarded-For", test.forwarded)
		}
		recorder := httptest.NewRecorder()
		b.handler.ServeHTTP(recorder, sent)
		if recorder.Code != test.status {
			t.Errorf("from %s by way of %q: %d, want %d", test.peer, test.forwarded, recorder.Code, test.status)
		}
	}
}

// A client that keeps guessing is answered 429, no other is, and no header changes
// that.
func TestFailedAuthentications(t *testing.T) {
	t.Parallel()
	// So few that the next one is free after 30 s: no pause of a busy machine lasts that long.
	b := setup(t, func(d *parts.Deps) { d.FailuresPerMinute = func() int { return 2 } })
	good := b.token(t, b.ours, identity.Admin)
	try := func(peer, token string, n int) *httptest.ResponseRecorder {
		sent := httptest.NewRequest(http.MethodGet, base+"/jobs", nil)
		sent.RemoteAddr = peer
		sent.Header.Set("Authorization", "Bearer "+token)
		sent.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", n))
		recorder := httptest.NewRecorder()
		b.handler.ServeHTTP(recorder, sent)
		return recorder
	}
	for i := range 2 {
		if got := try("192.0.2.1:1", "guess", i); got.Code != http.StatusUnauthorized {
			t.Errorf("guess %d: %d", i+1, got.Code)
		}
	}
	got := try("192.0.2.1:2", "guess", 6)
	if seconds, err := strconv.Atoi(got.Header().Get("Retry-After")); got.Code != http.StatusTooManyRequests || err != nil || seconds < 1 || seconds > 31 { // the reset is a whole second
		t.Errorf("the third guess: %d, Retry-After %q", got.Code, got.Header().Get("Retry-After"))
	}
	met(t, answer{status: got.Code, header: got.Header(), body: got.Body.String()}, http.StatusTooManyRequests, "RATE_LIMITED", "authenticationFailures", 2)
	// Good ones beside the bad ones are heard: a token, and a key that was good before.
	if got := try("192.0.2.1:3", good, 6); got.Code != http.StatusOK {
		t.Errorf("a good token from the address that guesses: %d", got.Code)
	}
	_, key := b.makeKey(t, b.ours, "jobs:read")
	for _, want := range []struct {
		peer string
		code int
	}{{"192.0.2.1:4", http.StatusTooManyRequests}, {"192.0.2.4:1", http.StatusOK}, {"192.0.2.1:5", http.StatusOK}} {
		if got := try(want.peer, key, 6); got.Code != want.code {
			t.Errorf("an API key from %s: %d, want %d", want.peer, got.Code, want.code)
		}
	}
	if got := try("192.0.2.1:6", key[:len(key)-1]+"_", 6); got.Code != http.StatusTooManyRequests {
		t.Errorf("a key that is nearly the good one: %d", got.Code)
	}
	for i := range 2 {
		try(fmt.Sprintf("[2001:db8:0:1::%d]:1", i), "guess", i)
	}
	if got := try("[2001:db8:0:1:ffff::1]:1", "guess", 6); got.Code != http.StatusTooManyRequests {
		t.Errorf("another address of the same network of 64 bits: %d", got.Code)
	}
	if got := try("[2001:db8:0:2::1]:1", "guess", 6); got.Code != http.StatusUnauthorized {
		t.Errorf("another network: %d", got.Code)
	}
	if got := try("192.0.2.2:1", "guess", 7); got.Code != http.StatusUnauthorized {
		t.Errorf("another address: %d", got.Code)
	}
	if got := try("192.0.2.3:1", good, 8); got.Code != http.StatusOK {
		t.Errorf("a good token from a third address: %d", got.Code)
	}
}

func TestPlatformAdministratorsKeepTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	platform := b.token(t, b.theirs, identity.PlatformAdmin)
	body := `{"id":"` + b.ours.TenantID.String() + `","name":"Example Ltd","limits":{"maxJobs":3,"maxRunning":7,"maxRunningByType":{"http":2},"jobTypes":["http"]},"allowedIps":["192.0.2.0/24"]}`
	made := b.do(t, request{method: "POST", path: base + "/tenants", token: platform, body: body})
	created := read[api.Tenant](t, made, http.StatusCreated)
	path := base + "/tenants/" + b.ours.TenantID.String()
	if made.header.Get("Location") != path || created.Status != "active" {
		t.Errorf("made %+v at %s", created, made.header.Get("Location"))
	}
	refused(t, b.do(t, request{method: "POST", path: base + "/tenants", token: platform, body: body}), http.StatusConflict, "CONFLICT")
	ours := b.token(t, b.ours, identity.Admin)
	own := read[api.TenantWithUsage](t, b.do(t, request{method: "GET", path: base + "/tenant", token: ours}), http.StatusOK)
	if n := own.Limits.MaxJobs; n == nil || *n != 3 || own.Name != "Example Ltd" || (*own.Limits.MaxRunningByType)["http"] != 2 {
		t.Errorf("the tenant sees %+v", own)
	}
	if n := own.Limits.RequestsPerSecond; n == nil || *n != 1_000_000 {
		t.Errorf("a limit that it has not is %+v, want that of the configuration", own)
	}
	raw := b.do(t, request{method: "GET", path: path, token: platform})
	if !strings.Contains(raw.body, `"requestsPerSecond":null`) {
		t.Errorf("a limit that is not set is not null: %s", raw.body)
	}
	kept := read[api.TenantWithUsage](t, raw, http.StatusOK)
	if n := kept.Limits.MaxJobs; n == nil || *n != 3 || kept.Limits.RequestsPerSecond != nil {
		t.Errorf("who keeps it sees %+v, want its own limits alone, as PUT takes them", kept)
	}
	for _, wrong := range []string{
		`{"name":"x","allowedIps":["192.0.2.1/24"]}`, `{"name":"x","allowedIps":["192.0.2.1"]}`, `{"name":"x","limits":{"maxRunningByType":{"shell":1}}}`,
		`{"name":"x","limits":{"maxJobs":-1}}`, `{"name":"x","limits":{"jobTypes":["shell"]}}`, `{"name":""}`, `{"name":"x","status":"suspended"}`,
	} {
		if got := b.do(t, request{method: "PUT", path: path, token: platform, body: wrong}); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", wrong, got.status, got.body)
		}
	}
	list := read[api.TenantPage](t, b.do(t, request{method: "GET", path: base + "/tenants?limit=1", token: platform}), http.StatusOK)
	if len(list.Items) != 1 || !list.HasMore {
		t.Errorf("the list is %+v", list)
	}
	suspended := read[api.Tenant](t, b.do(t, request{method: "POST", path: path + "/suspend", token: platform, body: `{"reason":"unpaid"}`}), http.StatusOK)
	if suspended.Status != "suspended" {
		t.Errorf("suspended: %+v", suspended)
	}
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs", token: ours}), http.StatusForbidden, "FORBIDDEN")
	refusedService(t, b.call(t, "POST", "create", webhook, b.ours), http.StatusForbidden, "FORBIDDEN")
	if found := read[api.TenantPage](t, b.do(t, request{method: "GET", path: base + "/tenants?status=suspended", token: platform}), http.StatusOK); len(found.Items) != 1 {
		t.Errorf("%d are suspended", len(found.Items))
	}
	read[api.Tenant](t, b.do(t, request{method: "POST", path: path + "/activate", token: platform}), http.StatusOK)
	if got := b.do(t, request{method: "GET", path: base + "/jobs", token: ours}); got.status != http.StatusOK {
		t.Errorf("active again: %d %s", got.status, got.body)
	}
	read[api.Tenant](t, b.do(t, request{method: "DELETE", path: path, token: platform}), http.StatusAccepted)
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs", token: ours}), http.StatusForbidden, "FORBIDDEN")
	refused(t, b.do(t, request{method: "POST", path: path + "/activate", token: platform}), http.StatusConflict, "CONFLICT")
	refused(t, b.do(t, request{method: "PUT", path: path, token: platform, body: `{"name":"x"}`}), http.StatusConflict, "CONFLICT")
	refused(t, b.do(t, request{method: "GET", path: base + "/tenants/" + uuid.NewString(), token: platform}), http.StatusNotFound, "TENANT_NOT_FOUND")
	refused(t, b.do(t, request{method: "DELETE", path: base + "/tenants/" + b.theirs.TenantID.String(), token: platform}), http.StatusConflict, "CONFLICT")
	for _, role := range []identity.Role{identity.Viewer, identity.Admin} {
		refused(t, b.do(t, request{method: "GET", path: path, token: b.token(t, b.theirs, role)}), http.StatusForbidden, "FORBIDDEN")
	}
}

// Where tenants are not made by their first token, a platform administrator
// makes them, and needs none of his own for it. He reads no tenant's jobs by that.
func TestAPlatformAdministratorNeedsNoTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	closed := b.deps
	closed.Tenants = tenant.NewStore(b.db, false)
	b.handler = newHandler(t, closed)
	platform := b.token(t, b.theirs, identity.PlatformAdmin)
	body := `{"id":"` + b.ours.TenantID.String() + `","name":"the first"}`
	read[api.Tenant](t, b.do(t, request{method: "POST", path: base + "/tenants", token: platform, body: body}), http.StatusCreated)
	list := read[api.TenantPage](t, b.do(t, request{method: "GET", path: base + "/tenants", token: platform}), http.StatusOK)
	if len(list.Items) != 1 {
		t.Errorf("there are %d tenants, want the first alone: %+v", len(list.Items), list.Items)
	}
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs", token: platform}), http.StatusForbidden, "FORBIDDEN")
	refused(t, b.do(t, request{method: "POST", path: base + "/tenants", token: b.token(t, b.theirs, identity.Admin), body: body}), http.StatusForbidden, "FORBIDDEN")
	if got := b.do(t, request{method: "GET", path: base + "/jobs", token: b.token(t, b.ours, identity.Viewer)}); got.status != http.StatusOK {
		t.Errorf("the first tenant is answered %d %s", got.status, got.body)
	}
}
