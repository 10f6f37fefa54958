// Package config is what an operator may set, as one validated value per
// process.
//
// It owns the names, defaults, bounds and meanings of every environment
// variable, and the types Secret and URL, which do not show what they hold. It
// refuses to read the environment itself (package main of each process hands
// in os.LookupEnv), to stop at the first mistake (a process with three wrong
// variables names all three), and variables that no code obeys. Its callers
// are the mains under cmd, the wiring in package app, and package live, which
// changes some of the values while a process runs: the tag live names their unit.
//
// A variable set to the empty text counts as not set, because compose files
// and charts pass on what the operator left out as empty.
//
// The loader is written here rather than taken from a library because its
// errors must name the variable, say what would be right and never repeat a
// value that may hold a password.
package config

import (
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Process is what every long-running process has, whatever it does.
type Process struct {
	LogLevel       slog.Level `env:"LOG_LEVEL" live:"level" default:"info" doc:"least level of the log lines that are written"`
	LogFormat      string     `env:"LOG_FORMAT" default:"auto" oneof:"auto,json,text" doc:"how log lines are written, on standard error; auto: text on a terminal, and json elsewhere"`
	MetricsEnabled bool       `env:"METRICS_ENABLED" default:"true" doc:"serve Prometheus metrics on their own port"`
	PrometheusPort int        `env:"PROMETHEUS_PORT" default:"9464" min:"1" max:"65535" doc:"port of /metrics, on every interface"`
	TracesURL      URL        `env:"OTEL_EXPORTER_OTLP_ENDPOINT" scheme:"http,https" default:"" doc:"address of an OpenTelemetry collector that takes OTLP over HTTP, such as http://collector:4318; spans go to /v1/traces below it; empty: there are no traces (docs/run/traces.md)"`
	TracesHeads    Secret     `env:"OTEL_EXPORTER_OTLP_HEADERS" default:"" form:"pairs" doc:"headers of the calls to the collector, such as authorization=Bearer%20…"`
	TracesSampler  string     `env:"OTEL_TRACES_SAMPLER" default:"parentbased_always_on" oneof:"always_on,always_off,traceidratio,parentbased_always_on,parentbased_always_off,parentbased_traceidratio" doc:"which traces are kept; an execution's by its id, so that all processes agree; with parentbased a request whose caller sends a trace is kept if the caller keeps it; the same in every process"`
	TracesRatio    string     `env:"OTEL_TRACES_SAMPLER_ARG" default:"1" form:"share" doc:"how many traces traceidratio keeps, such as 0.01 for one of a hundred; the same in every process"`
	ServiceName    string     `env:"OTEL_SERVICE_NAME" default:"" doc:"service.name of the spans; empty: scheduler- and the name of the process"`
	ResourceText   string     `env:"OTEL_RESOURCE_ATTRIBUTES" default:"" form:"pairs" doc:"attributes of the process for its spans, such as deployment.environment.name=prod"`
	TracesOff      bool       `env:"OTEL_SDK_DISABLED" default:"false" doc:"true: no traces, also where a collector is named"`
}

// Level is the least level of the log lines that are written.
func (p Process) Level() slog.Level { return p.LogLevel }

// Format is how log lines are written: auto, json or text.
func (p Process) Format() string { return p.LogFormat }

// MetricsAddr is the address to serve metrics on, or the empty text when they
// are off, as telemetry.Serve takes it.
func (p Process) MetricsAddr() string {
	if !p.MetricsEnabled {
		return ""
	}
	return net.JoinHostPort("", strconv.Itoa(p.PrometheusPort))
}

// HasTraces says that spans go somewhere.
func (p Process) HasTraces() bool { return !p.TracesURL.IsZero() && !p.TracesOff }

// TracesHeaders are the headers of the calls to the collector.
func (p Process) TracesHeaders() map[string]string {
	headers, _ := pairs(p.TracesHeads.Reveal()) // it was read once already
	return headers
}

// Resource are attributes of the process for its spans.
func (p Process) Resource() map[string]string {
	attributes, _ := pairs(p.ResourceText)
	return attributes
}

// TracesShare is how many traces are kept, from 0 to 1.
func (p Process) TracesShare() float64 {
	switch {
	case strings.HasSuffix(p.TracesSampler, "always_off"):
		return 0
	case strings.HasSuffix(p.TracesSampler, "always_on"):
		return 1
	}
	share, _ := strconv.ParseFloat(p.TracesRatio, 64)
	return share
}

// TrustsCallers says that a request is traced where its caller says so.
func (p Process) TrustsCallers() bool { return strings.HasPrefix(p.TracesSampler, "parentbased_") }

// Stores says where the truth (PostgreSQL) and the hints (Redis) are kept. In
// standalone both URLs may be left out: it then starts private ones, as far as
// they are used.
type Stores struct {
	DatabaseURL      URL    `env:"DATABASE_URL" scheme:"postgres,postgresql" standalone:"" doc:"PostgreSQL, as the login of the processes, which owns nothing; migrate makes that login ready when this is set, and standalone starts a private server when it is not"`
	DatabasePoolMode string `env:"DATABASE_POOL_MODE" default:"session" oneof:"session,transaction" doc:"how a pooler that stands before PostgreSQL lends its connections; session also where there is none; transaction needs a login for each role, with settings of its own (docs/run/databases.md)"`
	DirectURL        URL    `env:"DATABASE_DIRECT_URL" scheme:"postgres,postgresql" default:"" doc:"PostgreSQL itself, or a pooler that keeps sessions, with the login and the database of DATABASE_URL: where no Redis is used, promoters, workers and API processes with SECRETS_KEYS listen there, in one session each, for what wakes them up; empty: DATABASE_URL where DATABASE_POOL_MODE is session, and where it is transaction the process does not listen and polls"`
	RedisURL         URL    `env:"REDIS_URL" scheme:"redis,rediss,unix,redis-socket" default:"" doc:"Redis, which carries hints and holds no truth; required where QUEUE_BACKEND is redis; standalone starts a private one when this is not set"`
	QueueBackend     string `env:"QUEUE_BACKEND" default:"auto" oneof:"auto,redis,postgres" doc:"whether hints go through Redis, so that runs start sooner: redis demands REDIS_URL, postgres never uses it, auto uses it where it is set; workers poll PostgreSQL in any case; the same in every process, and may change at any restart"`
}

// The values of Stores.QueueBackend.
const (
	backendRedis    = "redis"
	backendPostgres = "postgres"
)

// Engine is the address by which an API process acts as the engine.
func (c API) Engine() string {
	if c.EngineURL.IsZero() {
		return c.DatabaseURL.Reveal()
	}
	return c.EngineURL.Reveal()
}

// Pooled says that each transaction may have another connection to PostgreSQL.
func (s Stores) Pooled() bool { return s.DatabasePoolMode == "transaction" }

// ListensAt is the address of PostgreSQL at which a process listens for what wakes it up. It
// is empty where Redis carries that, and where nothing but a pooler that lends connections for
// one transaction is known.
func (s Stores) ListensAt() string {
	switch {
	case s.Redis() != "":
		return ""
	case !s.DirectURL.IsZero():
		return s.DirectURL.Reveal()
	case s.Pooled():
		return ""
	}
	return s.DatabaseURL.Reveal()
}

// Redis is the address of the Redis to use, and empty where none is.
func (s Stores) Redis() string {
	if s.QueueBackend == backendPostgres {
		return ""
	}
	return s.RedisURL.Reveal()
}

// NeedsRedis says that a Redis belongs to the process, named or not.
func (s Stores) NeedsRedis() bool { return s.QueueBackend != backendPostgres }

// Tokens says which JWTs are believed. An empty issuer or audience is not
// checked.
type Tokens struct {
	JWTSecret    Secret `env:"JWT_SECRET" min:"32" default:"" doc:"key of the HS256 tokens that tenants present; the auth service signs with the same; this or JWT_JWKS_URL is needed, and not both; standalone makes one below DATA_DIR when neither is set"`
	JWKSURL      URL    `env:"JWT_JWKS_URL" scheme:"https,http" default:"" doc:"address of the auth service's public keys (RFC 7517), for tokens of RS256, ES256 and EdDSA; redirects are not followed; http only inside a network that is trusted"`
	JWTIssuer    string `env:"JWT_ISSUER" default:"" doc:"the iss that a token must carry; empty: any"`
	JWTAudience  string `env:"JWT_AUDIENCE" default:"" doc:"the aud that a token must carry; empty: any"`
	MaxLifetime  int    `env:"JWT_MAX_LIFETIME_HOURS" default:"24" standalone:"720" min:"0" max:"8760" doc:"how long a token may be good for, from iat to exp, or from now where it has no iat; 0: any time; standalone admits its own token of 30 days"`
	CursorSecret Secret `env:"CURSOR_SECRET" min:"32" default:"" doc:"key that the cursors of lists are sealed with, the same in every API process; empty: JWT_SECRET; needed with JWT_JWKS_URL"`
}

// Cursors is the key of the cursors of lists.
func (t Tokens) Cursors() string {
	if key := t.CursorSecret.Reveal(); key != "" {
		return key
	}
	return t.JWTSecret.Reveal()
}

// signIn says at which OpenID Connect issuer people sign in to the console. Without an issuer they
// do with a token or an API key alone.
type signIn struct {
	SignInIssuer URL    `env:"CONSOLE_OIDC_ISSUER" scheme:"https,http" default:"" doc:"OpenID Connect issuer at which people sign in to the console, exactly as it names itself, such as https://auth.example.com/realms/main; needs JWT_JWKS_URL, PUBLIC_URL and CONSOLE_OIDC_CLIENT_ID; empty: sign-in by token or API key alone (docs/run/sign-in.md)"`
	ClientID     string `env:"CONSOLE_OIDC_CLIENT_ID" default:"" doc:"name of the console at CONSOLE_OIDC_ISSUER"`
	ClientSecret Secret `env:"CONSOLE_OIDC_CLIENT_SECRET" min:"16" default:"" doc:"secret of the console at CONSOLE_OIDC_ISSUER; empty: it is a public client there, by PKCE alone"`
	SignInScopes string `env:"CONSOLE_OIDC_SCOPES" default:"openid" doc:"what the console asks CONSOLE_OIDC_ISSUER for, separated by spaces; openid has to be among them, and some issuers give a refresh token for offline_access alone"`
}

// Lease is the rhythm by which a worker proves that it lives. Three
// heartbeats fit into the fence and the fence into the lease, so that a
// worker survives two lost heartbeats, and stops itself before the database
// gives its work to another.
type Lease struct {
	Heartbeat time.Duration `env:"SCHEDULER_HEARTBEAT_MS" default:"2000" min:"10" max:"60000" doc:"distance between the heartbeats of a worker; three must fit into SCHEDULER_FENCE_MS"`
	Fence     time.Duration `env:"SCHEDULER_FENCE_MS" default:"7000" min:"40" max:"300000" doc:"a worker stops itself this long after it sent its last good heartbeat; below SCHEDULER_LEASE_TTL_MS"`
	TTL       time.Duration `env:"SCHEDULER_LEASE_TTL_MS" default:"10000" min:"50" max:"600000" doc:"a worker not heard of for this long is dead and its executions are reassigned"`
}

// Commands says whether jobs of type command run, and within which bounds.
type Commands struct {
	CommandJobs    string `env:"COMMAND_JOBS" default:"off" oneof:"off,sandbox,unsafe" doc:"whether jobs may run programs: sandbox keeps each in namespaces of bubblewrap and the worker does not start without them, unsafe does without, for a worker in a container of its own, off refuses such jobs; the API takes them where it is not off, and a worker runs them by its own setting; a tenant needs command among its jobTypes too"`
	CommandMemory  int    `env:"COMMAND_MEMORY_MB" default:"512" min:"8" max:"1048576" doc:"MiB of memory that a command may ask for at most; the same for API and worker"`
	CommandNetwork bool   `env:"COMMAND_NETWORK" default:"false" doc:"commands may ask for the network; they then reach all that the worker's machine reaches, because the guard of http jobs does not see their calls; the same for API and worker"`
}

// API is the configuration of cmd/api.
type API struct {
	Process
	Stores
	Tokens
	signIn
	Commands
	EngineURL        URL            `env:"DATABASE_ENGINE_URL" scheme:"postgres,postgresql" default:"" doc:"the same PostgreSQL with a login that may act as scheduler_engine, by which the API stores pings of monitors and what targets report; empty: DATABASE_URL; needed with DATABASE_POOL_MODE=transaction, where a login acts as one role"`
	SecretsKeys      Secret         `env:"SECRETS_KEYS" default:"" form:"keys" doc:"keys of secrets, of credentials in jobs and of what is secret in notifications, the first one encrypts; the same for API, worker and promoter; without any, these are refused; standalone makes one below DATA_DIR"`
	PublicURL        URL            `env:"PUBLIC_URL" scheme:"https,http" default:"" doc:"address at which the targets of calls reach the API, such as https://scheduler.example.com; with SECRETS_KEYS it lets jobs complete by callback, and with OIDC_KEYS verify who calls; the same for API and worker; standalone: its own address where this is empty"`
	OIDCKeys         Secret         `env:"OIDC_KEYS" default:"" form:"keys" doc:"keys of the tokens by which targets verify who calls (ES256), at most 4, the first one signs and all are published; needs PUBLIC_URL; the same for API and worker; without any, jobs with auth are refused; standalone makes one below DATA_DIR"`
	InternalAddr     string         `env:"INTERNAL_ADDR" default:"" form:"address" doc:"address that /internal is served on, and then only there; empty: on HTTP_ADDR"`
	ServiceTokens    []Secret       `env:"INTERNAL_SERVICE_TOKEN" default:"" min:"32" max:"2" doc:"what other services of the platform send as X-Service-Token where SERVICE_TOKENS does not name them: they may act for every tenant; two while the token is changed; without both variables, /internal answers 401, and standalone makes a token below DATA_DIR"`
	PeerTokens       Secret         `env:"SERVICE_TOKENS" default:"" form:"services" doc:"the other services of the platform by name, each with its X-Service-Token and, if they are to be bounded, the tenants that it may act for, the networks that it calls from and its calls a second; a name may come twice while its token is changed"`
	HTTPAddr         string         `env:"HTTP_ADDR" default:":3009" form:"address" doc:"address that the REST API listens on"`
	TLSCertFile      string         `env:"TLS_CERT_FILE" default:"" doc:"file with the certificate of HTTP_ADDR and INTERNAL_ADDR and those between it and the root, in PEM, with TLS_KEY_FILE; TLS 1.3 is spoken then and nothing else; the files are looked at every 5 s; empty: TLS is the proxy's"`
	TLSKeyFile       string         `env:"TLS_KEY_FILE" default:"" doc:"file with the certificate's private key, in PEM, which not everybody may read"`
	JobTimeout       time.Duration  `env:"SCHEDULER_JOB_TIMEOUT_MS" default:"300000" min:"1000" max:"86400000" doc:"time limit of one attempt of a job that names none, in whole seconds"`
	TenantMaxRunning int            `env:"TENANT_MAX_RUNNING" live:"executions" default:"1000" min:"0" max:"1000000" doc:"executions that one tenant may run at once, on all workers together, where the tenant has no limit of its own; 0: any number; the same in every process"`
	EgressAllow      []netip.Prefix `env:"EGRESS_ALLOW" default:"" doc:"networks that jobs and notifications may reach although they are private; the same for API, worker and promoter"`
	ShutdownNotice   time.Duration  `env:"SHUTDOWN_NOTICE_MS" default:"3000" standalone:"200" min:"0" max:"60000" doc:"how long an API told to stop answers that it is not ready, and everything else as before, until it closes its port; longer than a load balancer takes to notice"`
	LockTTL          time.Duration  `env:"SCHEDULER_LOCK_TTL_MS" default:"30000" min:"1000" max:"600000" doc:"a lease by which one process at a time does something, such as maintenance, ends this long after its owner was last heard of"`
	RetentionMonths  int            `env:"RETENTION_MONTHS" live:"months" default:"13" min:"1" max:"120" doc:"how many calendar months of executions are kept beside the current one, counted by their scheduled times; what is older is removed a whole month at a time, and no backfill may begin earlier; the same for API and promoter"`
	RetentionDays    int            `env:"RETENTION_DAYS" live:"days" default:"0" min:"0" max:"3660" doc:"for how many days executions are kept, 7 and more, in the place of RETENTION_MONTHS; up to 45 the history has a partition a day, up to 400 one a week, else one a month; 0: RETENTION_MONTHS decides; the same for API and promoter, and for migrate, which makes the first partitions"`
	RunnerCacheDir   string         `env:"RUNNER_CACHE_DIR" default:"" doc:"folder for what is compiled of scripts' engine and of uploaded modules, which nobody else may write to; made if it is missing; standalone takes one below DATA_DIR; empty: each runner process compiles anew, which takes a second"`
	TenantMaxJobs    int            `env:"TENANT_MAX_JOBS" live:"jobs" default:"100000" min:"0" max:"10000000" doc:"jobs of a tenant that has no limit of its own; 0: any number"`
	TenantMaxWaiting int            `env:"TENANT_MAX_WAITING" live:"executions" default:"1000000" min:"0" max:"100000000" doc:"executions of one tenant that may wait, where the tenant has no limit of its own; 0: any number; the same for API and promoter"`
	JobMaxWaiting    int            `env:"JOB_MAX_WAITING" live:"executions" default:"100000" min:"0" max:"100000000" doc:"executions of one job that may wait, where the tenant has no limit of its own; 0: any number; the same for API and promoter"`
	VersionsKept     int            `env:"JOB_VERSIONS_KEPT" live:"versions" default:"1000" min:"100" max:"100000" doc:"versions of a job that are kept; the update after them removes the oldest, but none that an active execution or a running backfill needs"`
	TenantRequests   int            `env:"TENANT_REQUESTS_PER_SECOND" live:"requests a second" default:"1000" min:"1" max:"1000000" doc:"API requests a second, on all API processes together, of a tenant that has no limit of its own"`
	TenantMaxConns   int            `env:"TENANT_MAX_CONNECTIONS" default:"6" min:"5" max:"16" doc:"connections to the database that the requests of one tenant may hold at once, of the 18 that an API process has for requests; what comes beside waits a second and is then answered 429"`
	FailuresPerMin   int            `env:"AUTH_FAILURES_PER_MINUTE" live:"requests a minute" default:"60" min:"1" max:"1000000" doc:"requests without a good token that one address may make in a minute before more of them are answered 429; good tokens are not delayed"`
	CORSOrigins      []string       `env:"CORS_ORIGINS" default:"" doc:"origins whose pages may call the API from a browser, such as https://console.example.com; *: any; none: CORS is off; never with credentials"`
	TrustedProxies   []netip.Prefix `env:"TRUSTED_PROXIES" default:"" doc:"networks of the proxies whose X-Forwarded-For is believed; none: the address of the connection counts"`
	TenantAutoCreate bool           `env:"TENANT_AUTO_CREATE" default:"false" standalone:"true" doc:"a valid token of a tenant not known yet creates it with the default limits; otherwise it is answered 403, as is a call of another service for such a tenant always"`
}

// Promoter is the configuration of cmd/promoter.
type Promoter struct {
	Process
	Stores
	LockTTL          time.Duration  `env:"SCHEDULER_LOCK_TTL_MS" default:"30000" min:"1000" max:"600000" doc:"see API"`
	TenantMaxRunning int            `env:"TENANT_MAX_RUNNING" live:"executions" default:"1000" min:"0" max:"1000000" doc:"see API"`
	TenantMaxWaiting int            `env:"TENANT_MAX_WAITING" live:"executions" default:"1000000" min:"0" max:"100000000" doc:"see API"`
	JobMaxWaiting    int            `env:"JOB_MAX_WAITING" live:"executions" default:"100000" min:"0" max:"100000000" doc:"see API"`
	RetentionMonths  int            `env:"RETENTION_MONTHS" live:"months" default:"13" min:"1" max:"120" doc:"see API"`
	RetentionDays    int            `env:"RETENTION_DAYS" live:"days" default:"0" min:"0" max:"3660" doc:"see API"`
	MetricsDays      int            `env:"METRICS_RETENTION_DAYS" live:"days" default:"14" min:"1" max:"400" doc:"for how many days the history of GET /metrics is kept: six hours of them every half minute, then every five minutes"`
	OutputDays       int            `env:"OUTPUT_RETENTION_DAYS" live:"days" default:"30" min:"1" max:"4000" doc:"for how many days the output of executions is kept, and the messages of their progress; never longer than the executions"`
	AuditDays        int            `env:"AUDIT_RETENTION_DAYS" live:"days" default:"400" min:"0" max:"36500" doc:"for how many days entries of the audit log are kept, 30 and more; 0: for ever"`
	PartitionsAhead  int            `env:"PARTITION_MONTHS_AHEAD" default:"3" min:"1" max:"24" doc:"for how many months to come the tables of executions are made ahead, where each has a month; else 14 days or 5 weeks; the same for migrate and promoter"`
	SecretsKeys      Secret         `env:"SECRETS_KEYS" default:"" form:"keys" doc:"see API"`
	EgressAllow      []netip.Prefix `env:"EGRESS_ALLOW" default:"" doc:"see API"`
	EgressProxy      URL            `env:"EGRESS_PROXY" scheme:"http,https" default:"" doc:"proxy that all calls of jobs and of notifications go through; it decides which addresses may be reached, as the process then sees names only; empty: calls go out directly; the same for worker and promoter"`
	SMTPURL          URL            `env:"SMTP_URL" scheme:"smtp,smtps" default:"" doc:"mail server that notifications of kind email go through, such as smtps://user:password@mail.example.com:465; smtp turns to TLS first, unless it ends with ?tls=off; empty: they are not sent"`
	SMTPFrom         string         `env:"SMTP_FROM" default:"" doc:"address that notifications of kind email come from; needed with SMTP_URL"`
	CatchupPerSecond int            `env:"SCHEDULER_CATCHUP_PER_SECOND" live:"executions a second" default:"200" min:"1" max:"100000" doc:"late executions of one tenant that one promoter lets start in a second after an outage"`
}

// Worker is the configuration of cmd/worker.
type Worker struct {
	Process
	Stores
	Lease
	Commands
	SecretsKeys      Secret         `env:"SECRETS_KEYS" default:"" form:"keys" doc:"see API"`
	PublicURL        URL            `env:"PUBLIC_URL" scheme:"https,http" default:"" doc:"see API"`
	OIDCKeys         Secret         `env:"OIDC_KEYS" default:"" form:"keys" doc:"see API"`
	Slots            int            `env:"SCHEDULER_MAX_CONCURRENT_JOBS" default:"100" min:"1" max:"10000" doc:"executions that one worker runs at once"`
	TenantMaxRunning int            `env:"TENANT_MAX_RUNNING" live:"executions" default:"1000" min:"0" max:"1000000" doc:"see API"`
	JobTypes         []string       `env:"WORKER_JOB_TYPES" default:"" doc:"job types that this worker runs, the others are left to other workers; empty: all"`
	RunnerMemory     int            `env:"RUNNER_MEMORY_MB" default:"1024" min:"128" max:"1048576" doc:"megabytes that the processes of this worker which run scripts and uploaded modules may take together; one takes up to 96 for a script; what finds no room waits, as part of its timeout"`
	RunnerCacheDir   string         `env:"RUNNER_CACHE_DIR" default:"" doc:"see API"`
	DrainTimeout     time.Duration  `env:"SCHEDULER_DRAIN_TIMEOUT_MS" default:"25000" min:"0" max:"600000" doc:"how long a worker told to stop lets running executions finish before it ends and releases them"`
	EgressAllow      []netip.Prefix `env:"EGRESS_ALLOW" default:"" doc:"see API"`
	CommandPaths     []string       `env:"COMMAND_PATHS" default:"" doc:"files and directories that commands may read beside /usr, such as /opt/tools"`
	CommandDir       string         `env:"COMMAND_DIR" default:"/tmp" doc:"where COMMAND_JOBS=unsafe makes the private directories of commands; sandbox keeps them in memory"`
	EgressProxy      URL            `env:"EGRESS_PROXY" scheme:"http,https" default:"" doc:"see Promoter"`
}

// Migrate is the configuration of cmd/migrate, which runs once and ends. With
// DatabaseURL it also creates the login named there, where it is missing, and
// makes it a member of the roles that the processes act as.
type Migrate struct {
	LogLevel        slog.Level `env:"LOG_LEVEL" default:"info" doc:"least level of the log lines that are written"`
	LogFormat       string     `env:"LOG_FORMAT" default:"auto" oneof:"auto,json,text" doc:"see Process"`
	OwnerURL        URL        `env:"DATABASE_OWNER_URL" scheme:"postgres,postgresql" default:"" doc:"PostgreSQL, as the owner of the schema; for migrating and for migrate index-history, the other tasks of migrate need none; in standalone set together with DATABASE_URL"`
	DatabaseURL     URL        `env:"DATABASE_URL" scheme:"postgres,postgresql" default:"" doc:"see Stores"`
	SecretsKeys     Secret     `env:"SECRETS_KEYS" default:"" form:"keys" doc:"see API"`
	RetentionDays   int        `env:"RETENTION_DAYS" default:"0" min:"0" max:"3660" doc:"see API"`
	PartitionsAhead int        `env:"PARTITION_MONTHS_AHEAD" default:"3" min:"1" max:"24" doc:"see Promoter"`
	JWTSecret       Secret     `env:"JWT_SECRET" min:"32" default:"" doc:"see Tokens"`
	JWTIssuer       string     `env:"JWT_ISSUER" default:"" doc:"see Tokens"`
	JWTAudience     string     `env:"JWT_AUDIENCE" default:"" doc:"see Tokens"`
	MaxLifetime     int        `env:"JWT_MAX_LIFETIME_HOURS" default:"24" standalone:"720" min:"0" max:"8760" doc:"see Tokens"`
}

// Level is the least level of the log lines that are written.
func (m Migrate) Level() slog.Level { return m.LogLevel }

// Format is how log lines are written: auto, json or text.
func (m Migrate) Format() string { return m.LogFormat }

// Standalone is the configuration of cmd/standalone: the other processes in
// one, each with the value that it would get alone. Variables in common
// is the same in each.
type Standalone struct {
	API      API
	Promoter Promoter
	Worker   Worker
	Migrate  Migrate
	DataDir  string `env:"DATA_DIR" default:".data" doc:"folder of the private PostgreSQL and Redis that are started when their URLs are left out"`
	EchoAddr string `env:"ECHO_ADDR" default:"" form:"address" doc:"address of the echo endpoint, for first jobs to call; empty: 127.0.0.1:3010, or where that is taken at the first start a free port, which stays"`
}

// Level is the least level of the log lines that are written.
func (s Standalone) Level() slog.Level { return s.API.LogLevel }

// Format is how log lines are written: auto, json or text.
func (s Standalone) Format() string { return s.API.LogFormat }

// WithJWTSecret returns the configuration with the signing key that standalone
// made.
func (s Standalone) WithJWTSecret(key string) Standalone {
	s.API.JWTSecret = newSecret(key)
	return s
}

// WithServiceToken returns the configuration with the service token that
// standalone made.
func (s Standalone) WithServiceToken(token string) Standalone {
	s.API.ServiceTokens = []Secret{newSecret(token)}
	return s
}

// WithSecretsKeys returns the configuration with the keys of secrets that
// standalone made, in each of its processes.
func (s Standalone) WithSecretsKeys(keys string) Standalone {
	made := newSecret(keys)
	s.API.SecretsKeys, s.Promoter.SecretsKeys, s.Worker.SecretsKeys, s.Migrate.SecretsKeys = made, made, made, made
	return s
}

// WithOIDCKeys returns the configuration with the keys of calls that standalone made, in
// each of its processes that needs them.
func (s Standalone) WithOIDCKeys(keys string) Standalone {
	made := newSecret(keys)
	s.API.OIDCKeys, s.Worker.OIDCKeys = made, made
	return s
}

// WithRunnerCache returns the configuration with the folder for compiled code that
// standalone chose, where none is named.
func (s Standalone) WithRunnerCache(dir string) Standalone {
	if s.API.RunnerCacheDir == "" {
		s.API.RunnerCacheDir, s.Worker.RunnerCacheDir = dir, dir
	}
	return s
}

// WithPublicURL returns the configuration with the address at which the API is reached,
// in each of its processes that needs it.
func (s Standalone) WithPublicURL(address string) Standalone {
	public, _ := parseURL(address) // we made it, and it parses
	s.API.PublicURL, s.Worker.PublicURL = public, public
	return s
}

// WithStores returns the configuration with the addresses of the private
// stores that were started, in each of its processes. An empty redis is none.
func (s Standalone) WithStores(database, owner, redis string) (Standalone, error) {
	databaseURL, err := parseURL(database)
	if err != nil {
		return s, err
	}
	ownerURL, err := parseURL(owner)
	if err != nil {
		return s, err
	}
	var redisURL URL
	if redis != "" {
		if redisURL, err = parseURL(redis); err != nil {
			return s, err
		}
	}
	s.Migrate.OwnerURL, s.Migrate.DatabaseURL = ownerURL, databaseURL
	for _, stores := range []*Stores{&s.API.Stores, &s.Promoter.Stores, &s.Worker.Stores} {
		stores.DatabaseURL, stores.RedisURL = databaseURL, redisURL
	}
	return s, nil
}
