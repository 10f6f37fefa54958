package config_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/config"
)

const (
	database = "postgres://app:hunter2pw@db:5432/scheduler"
	redis    = "redis://:redispw@cache:6379/0"
	signing  = "k3V9xQ0bT7mZ2wLr8YpN4sHd6JfGcAuE"
)

// env is a lookup that holds what every process needs, changed by pairs of
// name and value.
func env(pairs ...string) func(string) (string, bool) {
	set := map[string]string{"DATABASE_URL": database, "DATABASE_OWNER_URL": database, "REDIS_URL": redis, "JWT_SECRET": signing}
	for i := 0; i+1 < len(pairs); i += 2 {
		set[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) {
		text, ok := set[name]
		return text, ok
	}
}

func empty(string) (string, bool) { return "", false }

func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	api, err := config.Load[config.API](env())
	if err != nil {
		t.Fatal(err)
	}
	worker, err := config.Load[config.Worker](env())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{
		"level": api.LogLevel, "metrics": api.MetricsAddr(), "addr": api.HTTPAddr, "backend": api.QueueBackend,
		"create": api.TenantAutoCreate, "life": api.MaxLifetime, "database": api.DatabaseURL.Reveal(),
		"secret": api.JWTSecret.Reveal(), "slots": worker.Slots, "timeout": api.JobTimeout, "lease": worker.Lease,
		"drain": worker.DrainTimeout, "egress": len(worker.EgressAllow),
	}
	want := map[string]any{
		"level": slog.LevelInfo, "metrics": ":9464", "addr": ":3009", "backend": "auto",
		"create": false, "life": 24, "database": database,
		"secret": signing, "slots": 100, "timeout": 5 * time.Minute,
		"lease": config.Lease{Heartbeat: 2 * time.Second, Fence: 7 * time.Second, TTL: 10 * time.Second},
		"drain": 25 * time.Second, "egress": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestValuesReachTheirFields(t *testing.T) {
	t.Parallel()
	worker, err := config.Load[config.Worker](env("LOG_LEVEL", "Debug", "METRICS_ENABLED", "false",
		"SCHEDULER_MAX_CONCURRENT_JOBS", "7", "EGRESS_ALLOW", "10.0.0.0/8, fd00::/8", "WORKER_JOB_TYPES", "http, http",
		"SCHEDULER_DRAIN_TIMEOUT_MS", "", "SCHEDULER_HEARTBEAT_MS", "20", "SCHEDULER_FENCE_MS", "70", "SCHEDULER_LEASE_TTL_MS", "100"))
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	if worker.LogLevel != slog.LevelDebug || worker.MetricsAddr() != "" || worker.Slots != 7 {
		t.Errorf("got %+v", worker)
	}
	if worker.DrainTimeout != 25*time.Second {
		t.Errorf("an empty variable is not the default: %v", worker.DrainTimeout)
	}
	if diff := cmp.Diff(want, worker.EgressAllow, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"http"}, worker.JobTypes); diff != "" {
		t.Error(diff)
	}
	if worker.Lease.TTL != 100*time.Millisecond {
		t.Errorf("lease %v", worker.Lease)
	}
}

func TestAllProblemsAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := config.Load[config.Standalone](env(
		"DATABASE_URL", "mysql://app:hunter2pw@db/scheduler",
		"REDIS_URL", "redis://user:redis/pw@cache:6379",
		"QUEUE_BACKEND", "kafka",
		"JWT_SECRET", "short",
		"HTTP_ADDR", "3009",
		"LOG_LEVEL", "loud",
		"METRICS_ENABLED", "maybe",
		"PROMETHEUS_PORT", "99999",
		"TENANT_AUTO_CREATE", "on",
		"SCHEDULER_MAX_CONCURRENT_JOBS", "0",
		"SCHEDULER_JOB_TIMEOUT_MS", "5m",
		"EGRESS_ALLOW", "10.0.0.1/8,nonsense", "WORKER_JOB_TYPES", " , ",
	))
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if got, want := lines[0], "configuration of standalone has 13 problem(s):"; got != want {
		t.Errorf("got %q, want %q\n%v", got, want, err)
	}
	for _, want := range []string{
		"DATABASE_URL: has a scheme other than postgres, postgresql; give a URL such as postgres://",
		"REDIS_URL: does not parse as a URL",
		`QUEUE_BACKEND: "kafka" is not known; give auto or redis or postgres`,
		"JWT_SECRET: has 5 bytes; give at least 32 random bytes",
		`HTTP_ADDR: "3009" is not an address; give host:port or :port`,
		`LOG_LEVEL: "loud" is no level; give debug, info, warn or error`,
		`METRICS_ENABLED: "maybe" is neither true nor false`,
		"PROMETHEUS_PORT: 99999 is out of bounds; give a whole number from 1 to 65535",
		"SCHEDULER_MAX_CONCURRENT_JOBS: 0 is out of bounds; give a whole number from 1 to 10000",
		`SCHEDULER_JOB_TIMEOUT_MS: "5m" is not a whole number; give a whole number of milliseconds from 1000`,
		`EGRESS_ALLOW: "10.0.0.1/8" has bits set behind its mask, 10.0.0.0/8 has not, "nonsense" is no network`,
		`WORKER_JOB_TYPES: names nothing; give one word or several, separated by commas`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in\n%v", want, err)
		}
	}
	for _, leak := range []string{"hunter2pw", "redis/pw", "short"} {
		if strings.Contains(err.Error(), leak) {
			t.Errorf("%q leaked into\n%v", leak, err)
		}
	}
}

func TestMissingVariablesAreNamed(t *testing.T) {
	t.Parallel()
	_, api := config.Load[config.API](empty)
	_, promoter := config.Load[config.Promoter](empty)
	_, worker := config.Load[config.Worker](empty)
	if _, err := config.Load[config.Standalone](empty); err != nil {
		t.Errorf("standalone makes what it is not given, but: %v", err)
	}
	if _, err := config.Load[config.Migrate](empty); err != nil {
		t.Errorf("each task of migrate says what it needs, but: %v", err)
	}
	tests := []struct {
		name string
		err  error
		want []string
	}{
		{"api", api, []string{"DATABASE_URL", "JWT_SECRET"}},
		{"promoter", promoter, []string{"DATABASE_URL"}},
		{"worker", worker, []string{"DATABASE_URL"}},
	}
	for _, tt := range tests {
		if tt.err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		var got []string
		for _, line := range strings.Split(tt.err.Error(), "\n")[1:] {
			name, _, _ := strings.Cut(strings.TrimSpace(line), ": is not set; give ")
			got = append(got, name)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestStandalone(t *testing.T) {
	t.Parallel()
	lookup := env("DATABASE_URL", "", "DATABASE_OWNER_URL", "", "REDIS_URL", "")
	got, err := config.Load[config.Standalone](lookup)
	if err != nil {
		t.Fatal(err)
	}
	if !got.API.TenantAutoCreate || got.DataDir != ".data" || !got.API.DatabaseURL.IsZero() {
		t.Errorf("got %+v", got)
	}
	got, err = got.WithStores(database, "postgres:///x?host=/run/pg", redis)
	if err != nil {
		t.Fatal(err)
	}
	urls := []string{got.API.DatabaseURL.Reveal(), got.Promoter.DatabaseURL.Reveal(), got.Worker.DatabaseURL.Reveal(), got.Migrate.DatabaseURL.Reveal(), got.Worker.RedisURL.Reveal(), got.Migrate.OwnerURL.Reveal()}
	if diff := cmp.Diff([]string{database, database, database, database, redis, "postgres:///x?host=/run/pg"}, urls); diff != "" {
		t.Error(diff)
	}
	if _, err := config.Load[config.Standalone](env("DATABASE_OWNER_URL", "")); err == nil || !strings.Contains(err.Error(), "belong together") {
		t.Errorf("a server without its owner was accepted: %v", err)
	}
}

func TestRedisIsNeededWhereHintsAreAllThereIs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		backend, url string
		ok           bool
		redis        string
	}{
		{"", "", true, ""},
		{"", redis, true, redis},
		{"auto", "", true, ""},
		{"postgres", "", true, ""},
		{"postgres", redis, true, ""},
		{"redis", redis, true, redis},
		{"redis", "", false, ""},
	}
	for _, tt := range tests {
		lookup := env("QUEUE_BACKEND", tt.backend, "REDIS_URL", tt.url)
		worker, err := config.Load[config.Worker](lookup)
		_, promoter := config.Load[config.Promoter](lookup)
		_, api := config.Load[config.API](lookup)
		for _, err := range []error{err, promoter, api} {
			if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "REDIS_URL: is not set; give a URL such as redis://") {
				t.Errorf("%q with %q: %v", tt.backend, tt.url, err)
			}
		}
		if err == nil && worker.Redis() != tt.redis {
			t.Errorf("%q with %q: uses %q", tt.backend, tt.url, worker.Redis())
		}
		standalone, err := config.Load[config.Standalone](lookup)
		if err != nil || standalone.Worker.NeedsRedis() != (tt.backend != "postgres") {
			t.Errorf("standalone, %q with %q: %v", tt.backend, tt.url, err)
		}
	}
}

func TestRulesBetweenVariables(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		pairs []string
		want  string
	}{
		{"three heartbeats fill the fence", []string{"SCHEDULER_HEARTBEAT_MS", "2500", "SCHEDULER_FENCE_MS", "7500"}, "SCHEDULER_HEARTBEAT_MS: 2500 times three is not below SCHEDULER_FENCE_MS, 7500"},
		{"the fence is the lease", []string{"SCHEDULER_FENCE_MS", "10000"}, "SCHEDULER_FENCE_MS: 10000 is not below SCHEDULER_LEASE_TTL_MS, 10000"},
		{"one port twice", []string{"HTTP_ADDR", "0.0.0.0:9464"}, "PROMETHEUS_PORT: 9464 is the port of HTTP_ADDR too"},
		{"a certificate without its key", []string{"TLS_CERT_FILE", "tls.crt"}, "TLS_CERT_FILE: and TLS_KEY_FILE belong together"},
		{"a key without its certificate", []string{"TLS_KEY_FILE", "tls.key"}, "TLS_CERT_FILE: and TLS_KEY_FILE belong together"},
		{"both", []string{"TLS_CERT_FILE", "tls.crt", "TLS_KEY_FILE", "tls.key"}, ""},
		{"one port, metrics off", []string{"HTTP_ADDR", "0.0.0.0:9464", "METRICS_ENABLED", "false"}, ""},
	}
	for _, tt := range tests {
		_, err := config.Load[config.Standalone](env(tt.pairs...))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestSigningKeys(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, key string
		ok        bool
	}{
		{"base64", "2Yh0pTzq8W1nq4m0m3c2fYb1kqE7r9xJx0b5v6d8H3s=", true},
		{"hexadecimal", "9f86d081884c7d659a2feaa0c55ad015", true},
		{"one character", strings.Repeat("a", 40), false},
		{"a block again and again", strings.Repeat("abX9!kQ2", 4), false},
		{"a block and a part of it", strings.Repeat("abX9!kQ2zz", 4)[:37], false},
		{"counting up", "abcdefghijklmnopqrstuvwxyz0123456789", false},
		{"says secret", "my-super-Secret-key-for-signing-tokens", false},
		{"says changeme", "ChangeMe-8f7d6s5a4f3d2s1a0f9d8s7a6", false},
		{"31 bytes", "k3V9xQ0bT7mZ2wLr8YpN4sHd6JfGcAu", false},
		{"a line end", signing + "\n", false},
	}
	for _, tt := range tests {
		_, err := config.Load[config.API](env("JWT_SECRET", tt.key))
		if (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want ok %v", tt.name, err, tt.ok)
		}
		if err != nil && strings.Contains(err.Error(), tt.key) {
			t.Errorf("%s: the key leaked into %v", tt.name, err)
		}
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	rows := make(map[string]config.Variable)
	for _, row := range config.Variables() {
		if _, twice := rows[row.Name]; twice {
			t.Errorf("%s is listed twice", row.Name)
		}
		if row.Meaning == "" || row.Bounds == "" || len(row.Processes) == 0 {
			t.Errorf("%s has an empty column: %+v", row.Name, row)
		}
		rows[row.Name] = row
	}
	want := config.Variable{
		Name: "TENANT_AUTO_CREATE", Processes: []string{"api", "standalone"}, Default: "false; standalone: true",
		Bounds: "true or false", Meaning: rows["TENANT_AUTO_CREATE"].Meaning,
	}
	if diff := cmp.Diff(want, rows["TENANT_AUTO_CREATE"]); diff != "" {
		t.Error(diff)
	}
	if got := rows["DATABASE_URL"].Default; got != "required; migrate: none; standalone: none" {
		t.Errorf("DATABASE_URL: %q", got)
	}
	if got := rows["SCHEDULER_HEARTBEAT_MS"].Bounds; got != "ms, 10–60000" {
		t.Errorf("SCHEDULER_HEARTBEAT_MS: %q", got)
	}
}

// TestEveryVariableIsAskedFor loads each process with a lookup that records,
// so that the table of variables cannot name one that nothing reads.
func TestEveryVariableIsAskedFor(t *testing.T) {
	t.Parallel()
	asked := make(map[string]bool)
	record := func(name string) (string, bool) {
		asked[name] = true
		return env()(name)
	}
	if _, err := config.Load[config.Standalone](record); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load[config.Migrate](record); err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for _, row := range config.Variables() {
		listed[row.Name] = true
	}
	if diff := cmp.Diff(listed, asked); diff != "" {
		t.Errorf("listed (-) against asked for (+): %s", diff)
	}
}

func TestTokensAreVerifiedInOneWay(t *testing.T) {
	t.Parallel()
	const keys = "https://auth.example.com/keys"
	for _, test := range []struct {
		name  string
		pairs []string
		wrong string // the variable that is named; empty: none
	}{
		{"a secret", nil, ""},
		{"both", []string{"JWT_JWKS_URL", keys, "CURSOR_SECRET", signing}, "JWT_JWKS_URL"},
		{"neither", []string{"JWT_SECRET", ""}, "JWT_SECRET"},
		{"keys", []string{"JWT_SECRET", "", "JWT_JWKS_URL", keys, "CURSOR_SECRET", signing}, ""},
		{"keys without a secret for cursors", []string{"JWT_SECRET", "", "JWT_JWKS_URL", keys}, "CURSOR_SECRET"},
		{"keys in a file", []string{"JWT_SECRET", "", "JWT_JWKS_URL", "file:///etc/keys", "CURSOR_SECRET", signing}, "JWT_JWKS_URL"},
	} {
		loaded, err := config.Load[config.API](env(test.pairs...))
		if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), "1 problem(s):\n  "+test.wrong+":") {
			t.Errorf("%s: %v", test.name, err)
		}
		if err == nil && loaded.Cursors() != signing {
			t.Errorf("%s: the key of cursors is %q", test.name, loaded.Cursors())
		}
	}
}

func TestSignInAtAnIssuer(t *testing.T) {
	t.Parallel()
	const issuer = "https://auth.example.com/realms/main"
	all := []string{
		"JWT_SECRET", "", "JWT_JWKS_URL", "https://auth.example.com/keys", "CURSOR_SECRET", signing, "PUBLIC_URL", "https://scheduler.example.com",
		"CONSOLE_OIDC_ISSUER", issuer, "CONSOLE_OIDC_CLIENT_ID", "console", "CONSOLE_OIDC_CLIENT_SECRET", "q7Zr2Vb9Lx4Nw8Tk",
	}
	for _, test := range []struct {
		name  string
		pairs []string
		wrong []string // the variables that are named
	}{
		{"all", nil, nil},
		{"a public client", []string{"CONSOLE_OIDC_CLIENT_SECRET", ""}, nil},
		{"the same issuer twice", []string{"JWT_ISSUER", issuer}, nil},
		{"no issuer", []string{"CONSOLE_OIDC_ISSUER", ""}, []string{"CONSOLE_OIDC_ISSUER"}},
		{"two issuers", []string{"JWT_ISSUER", issuer + "/"}, []string{"JWT_ISSUER"}},
		{"an issuer with a query", []string{"CONSOLE_OIDC_ISSUER", issuer + "?a=b"}, []string{"CONSOLE_OIDC_ISSUER"}},
		{"a short secret", []string{"CONSOLE_OIDC_CLIENT_SECRET", "short"}, []string{"CONSOLE_OIDC_CLIENT_SECRET"}},
		{
			"nothing that belongs to it",
			[]string{"CONSOLE_OIDC_CLIENT_ID", "", "CONSOLE_OIDC_SCOPES", "profile", "JWT_JWKS_URL", "", "JWT_SECRET", signing, "PUBLIC_URL", ""},
			[]string{"CONSOLE_OIDC_CLIENT_ID", "CONSOLE_OIDC_SCOPES", "JWT_JWKS_URL", "PUBLIC_URL"},
		},
	} {
		loaded, err := config.Load[config.API](env(append(slices.Clone(all), test.pairs...)...))
		if (err == nil) != (test.wrong == nil) || err != nil && strings.Count(err.Error(), "\n") != len(test.wrong) {
			t.Errorf("%s: %v", test.name, err)
		}
		for _, name := range test.wrong {
			if err != nil && !strings.Contains(err.Error(), "\n  "+name+": ") {
				t.Errorf("%s: %s is not named: %v", test.name, name, err)
			}
		}
		if printed := fmt.Sprintf("%v %+v %#v %v", loaded, config.Dump(loaded), loaded, err); strings.Contains(printed, "q7Zr2Vb9Lx4Nw8Tk") {
			t.Errorf("%s: the secret is printed", test.name)
		}
	}
}

func TestServiceTokens(t *testing.T) {
	t.Parallel()
	const second = "nE4xK9wQ1rB7vC0zY5tG8hJ2mF6pL3sD"
	for value, want := range map[string]int{"": 0, signing: 1, signing + "," + second: 2, signing + " , " + second: 2} {
		api, err := config.Load[config.API](env("INTERNAL_SERVICE_TOKEN", value))
		if err != nil || len(api.ServiceTokens) != want || want > 0 && api.ServiceTokens[0].Reveal() != signing {
			t.Errorf("%d tokens were read, %v; want %d", len(api.ServiceTokens), err, want)
		}
		if printed := fmt.Sprintf("%v %+v %#v", api.ServiceTokens, config.Dump(api), api); strings.Contains(printed, second) {
			t.Error("a token is printed")
		}
	}
	for _, value := range []string{"short", signing + ",short", signing + "," + second + "," + second + "x", strings.Repeat("a", 40)} {
		_, err := config.Load[config.API](env("INTERNAL_SERVICE_TOKEN", value))
		if err == nil || !strings.Contains(err.Error(), "INTERNAL_SERVICE_TOKEN: ") || strings.Contains(err.Error(), second) {
			t.Errorf("%.10s…: %v", value, err)
		}
	}
	if _, err := config.Load[config.API](env("INTERNAL_ADDR", "127.0.0.1:3009")); err == nil {
		t.Error("both listeners may have one port")
	}
}

func TestTraces(t *testing.T) {
	t.Parallel()
	load := func(pairs ...string) (config.Worker, error) { return config.Load[config.Worker](env(pairs...)) }
	off, err := load()
	if err != nil || off.HasTraces() {
		t.Fatalf("traces without an address: %v", err)
	}
	for sampler, want := range map[string]struct {
		share  float64
		trusts bool
	}{
		"": {1, true}, "always_on": {1, false}, "always_off": {0, false}, "parentbased_always_off": {0, true},
		"traceidratio": {0.25, false}, "parentbased_traceidratio": {0.25, true},
	} {
		c, err := load("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318", "OTEL_TRACES_SAMPLER", sampler, "OTEL_TRACES_SAMPLER_ARG", "0.25",
			"OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc, x-scope=a", "OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod")
		if err != nil {
			t.Fatal(err)
		}
		if !c.HasTraces() || c.TracesShare() != want.share || c.TrustsCallers() != want.trusts {
			t.Errorf("%q: %v %v %v", sampler, c.HasTraces(), c.TracesShare(), c.TrustsCallers())
		}
		if diff := cmp.Diff(map[string]string{"authorization": "Bearer abc", "x-scope": "a"}, c.TracesHeaders()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]string{"deployment.environment.name": "prod"}, c.Resource()); diff != "" {
			t.Error(diff)
		}
	}
	if c, err := load("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318", "OTEL_SDK_DISABLED", "true"); err != nil || c.HasTraces() {
		t.Errorf("disabled: %v", err)
	}
	_, err = load("OTEL_EXPORTER_OTLP_HEADERS", "authorization Bearer hunter2", "OTEL_RESOURCE_ATTRIBUTES", "=x", "OTEL_TRACES_SAMPLER_ARG", "2", "OTEL_TRACES_SAMPLER", "jaeger_remote")
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Fatalf("wrong values: %v", err)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER_ARG", "OTEL_TRACES_SAMPLER"} {
		if !strings.Contains(err.Error(), name+": ") {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
}

// Every setting that changes while the processes run is a number or a level, has a default
// that it takes, and the same bounds in each process.
func TestSettings(t *testing.T) {
	t.Parallel()
	loaded, err := config.Load[config.API](env("TENANT_MAX_WAITING", "12", "LOG_LEVEL", "WARN"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, s := range config.Settings(loaded) {
		n, err := s.Parse(s.Default)
		if err != nil || s.Written(n) != s.Default || s.Unit == "" || (s.Min == nil) != (len(s.OneOf) > 0) || strings.HasPrefix(s.Meaning, "see ") {
			t.Errorf("%+v: %v", s, err)
		}
		values[s.Name] = s.Value
	}
	for name, want := range map[string]string{"TENANT_MAX_WAITING": "12", "LOG_LEVEL": "warn", "RETENTION_MONTHS": "13", "METRICS_RETENTION_DAYS": ""} {
		if got, ok := values[name]; !ok || got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if _, ok := values["JWT_SECRET"]; ok || len(values) < 10 {
		t.Errorf("the settings are %v", values)
	}
}
