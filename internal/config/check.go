package config

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// check applies the rules that more than one variable takes part in. It runs
// only when each variable is right by itself, so that one slip is not
// reported twice.
func check(loaded any, found *problems) {
	switch loaded := loaded.(type) {
	case API:
		checkBackend(loaded.Stores, found)
		if loaded.Pooled() && loaded.EngineURL.IsZero() {
			found.add("DATABASE_ENGINE_URL", "is not set; with DATABASE_POOL_MODE=transaction give the address with a login that acts as scheduler_engine (docs/run/databases.md)")
		}
		checkPorts(loaded, found)
		checkDays("RETENTION_DAYS", loaded.RetentionDays, found)
		checkTokens(loaded.Tokens, found)
		checkSignIn(loaded, loaded.PublicURL.IsZero(), found)
		checkTLS(loaded, found)
	case Promoter:
		checkBackend(loaded.Stores, found)
		checkPromoter(loaded, found)
	case Worker:
		checkBackend(loaded.Stores, found)
		checkLease(loaded.Lease, found)
	case Standalone:
		checkPorts(loaded.API, found)
		checkTokens(loaded.API.Tokens, found)
		checkSignIn(loaded.API, false, found) // it has an address of its own
		checkTLS(loaded.API, found)
		checkLease(loaded.Worker.Lease, found)
		checkPromoter(loaded.Promoter, found)
		if loaded.API.DatabaseURL.IsZero() != loaded.Migrate.OwnerURL.IsZero() {
			found.add("DATABASE_URL", "and DATABASE_OWNER_URL belong together; give both, or neither for a private server")
		}
	}
}

func checkBackend(stores Stores, found *problems) {
	if stores.QueueBackend == backendRedis && stores.RedisURL.IsZero() {
		found.add("REDIS_URL", "is not set; give a URL such as "+example("redis")+", or another QUEUE_BACKEND than redis")
	}
}

func checkPromoter(loaded Promoter, found *problems) {
	checkDays("AUDIT_RETENTION_DAYS", loaded.AuditDays, found)
	checkDays("RETENTION_DAYS", loaded.RetentionDays, found)
}

// leastDays are the settings in days that may also be 0. least is the smallest number of
// days: the database refuses to remove younger rows. zero says what 0 does.
var leastDays = map[string]struct {
	least int
	zero  string
}{
	"AUDIT_RETENTION_DAYS": {30, "to keep the audit log for ever"},
	"RETENTION_DAYS":       {7, "to keep executions as RETENTION_MONTHS says"},
}

func checkDays(name string, days int, found *problems) {
	if err := enough(name, days); err != nil {
		found.add(name, err.Error())
	}
}

// enough judges the days of a setting; one without a rule may have any.
func enough(name string, days int) error {
	if rule := leastDays[name]; days != 0 && days < rule.least {
		return fmt.Errorf("is %d; give %d or more, or 0 %s", days, rule.least, rule.zero)
	}
	return nil
}

// checkAuthority finds that nothing says who signs tokens. Like a variable that
// is missing, and unlike the other rules, it is reported beside what is wrong
// with single variables.
func checkAuthority(tokens Tokens, found *problems) {
	if tokens.JWTSecret.Reveal() == "" && tokens.JWKSURL.IsZero() && !found.name("JWT_SECRET") && !found.name("JWT_JWKS_URL") {
		found.add("JWT_SECRET", "is not set; give it, or JWT_JWKS_URL")
	}
}

// checkTokens wants one way to verify tokens.
func checkTokens(tokens Tokens, found *problems) {
	switch {
	case tokens.JWKSURL.IsZero():
	case tokens.JWTSecret.Reveal() != "":
		found.add("JWT_JWKS_URL", "and JWT_SECRET are both set; give one of them, so that there is one way to sign a token")
	case tokens.CursorSecret.Reveal() == "":
		found.add("CURSOR_SECRET", "is not set; with JWT_JWKS_URL give at least 32 random bytes, such as `openssl rand -base64 48` prints")
	}
}

// checkSignIn wants either all settings of a sign-in at an issuer or none.
func checkSignIn(api API, nowhere bool, found *problems) {
	issuer := api.SignInIssuer.Reveal()
	if issuer == "" {
		if api.ClientID != "" || api.ClientSecret.Reveal() != "" {
			found.add("CONSOLE_OIDC_ISSUER", "is not set, and CONSOLE_OIDC_CLIENT_ID or CONSOLE_OIDC_CLIENT_SECRET is; give all, or none where nobody signs in at an issuer")
		}
		return
	}
	if parsed, err := url.Parse(issuer); err != nil || parsed.Host == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		found.add("CONSOLE_OIDC_ISSUER", "has no host, or has a user, a query or a fragment; give an address such as https://auth.example.com/realms/main")
	}
	if api.ClientID == "" {
		found.add("CONSOLE_OIDC_CLIENT_ID", "is not set; give the name that the console has at CONSOLE_OIDC_ISSUER")
	}
	if !slices.Contains(strings.Fields(api.SignInScopes), "openid") {
		found.add("CONSOLE_OIDC_SCOPES", "lacks openid; give scopes separated by spaces, such as openid profile")
	}
	if api.JWKSURL.IsZero() {
		found.add("JWT_JWKS_URL", "is not set; with CONSOLE_OIDC_ISSUER give the address of the issuer's keys, by which the API believes its tokens")
	}
	if api.JWTIssuer != "" && api.JWTIssuer != issuer {
		found.add("JWT_ISSUER", "is another than CONSOLE_OIDC_ISSUER; give the same, or the API believes no token of a sign-in")
	}
	if nowhere {
		found.add("PUBLIC_URL", "is not set; with CONSOLE_OIDC_ISSUER give the address at which browsers reach the console, such as https://scheduler.example.com")
	}
}

// checkTLS wants a certificate with its key. Whether the files are good, the process that
// opens them says.
func checkTLS(api API, found *problems) {
	if (api.TLSCertFile == "") != (api.TLSKeyFile == "") {
		found.add("TLS_CERT_FILE", "and TLS_KEY_FILE belong together; give both, or neither where a proxy encrypts")
	}
}

func checkLease(lease Lease, found *problems) {
	if 3*lease.Heartbeat >= lease.Fence {
		found.add("SCHEDULER_HEARTBEAT_MS", fmt.Sprintf("%d times three is not below SCHEDULER_FENCE_MS, %d; give less, so that a worker survives two lost heartbeats",
			lease.Heartbeat.Milliseconds(), lease.Fence.Milliseconds()))
	}
	if lease.Fence >= lease.TTL {
		found.add("SCHEDULER_FENCE_MS", fmt.Sprintf("%d is not below SCHEDULER_LEASE_TTL_MS, %d; give less, so that a worker stops before its work is reassigned",
			lease.Fence.Milliseconds(), lease.TTL.Milliseconds()))
	}
}

func checkPorts(api API, found *problems) {
	_, port, _ := net.SplitHostPort(api.HTTPAddr)
	_, internal, _ := net.SplitHostPort(api.InternalAddr)
	if api.InternalAddr != "" && internal == port && port != "0" {
		found.add("INTERNAL_ADDR", port+" is the port of HTTP_ADDR too; give another, or leave it out")
	}
	if api.MetricsEnabled && port == strconv.Itoa(api.PrometheusPort) {
		found.add("PROMETHEUS_PORT", port+" is the port of HTTP_ADDR too; give another, since metrics are not for tenants")
	}
}

// parseSecret takes a signing key of at least least bytes that does not look
// typed by a person: to guess it is to be every tenant's administrator.
func parseSecret(text string, least int) (any, error) {
	switch {
	case strings.TrimSpace(text) != text:
		return nil, errors.New("begins or ends with white space, which the other side may not send")
	case len(text) < least:
		return nil, fmt.Errorf("has %d bytes", len(text))
	case guessable(text):
		return nil, errors.New("can be guessed: it repeats itself, counts up or contains a word such as secret or changeme")
	}
	return newSecret(text), nil
}

// parseKeys takes keys that their only user can read.
func parseKeys(text string) (any, error) {
	if _, err := keyring.Parse(text); err != nil {
		return nil, err
	}
	return newSecret(text), nil
}

// parseSecrets takes several that all hold at once, as while one is changed.
func parseSecrets(text string, least, most int) (any, error) {
	var secrets []Secret
	for _, part := range list(text) {
		parsed, err := parseSecret(part, least)
		if err != nil {
			return nil, err
		}
		secret, _ := parsed.(Secret)
		secrets = append(secrets, secret)
	}
	if len(secrets) > most {
		return nil, fmt.Errorf("has %d texts", len(secrets))
	}
	return secrets, nil
}

// guessable finds what people type to fill a length. The words have six
// letters and more, so that a random key contains one about never; eight
// different bytes are fewer than 32 random hexadecimal digits ever have.
func guessable(text string) bool {
	lower := strings.ToLower(text)
	for _, word := range []string{"secret", "changeme", "change-me", "change_me", "password", "example", "default", "qwerty", "placeholder"} {
		if strings.Contains(lower, word) {
			return true
		}
	}
	different, steps := make(map[byte]bool), 0
	for i := range len(text) {
		different[text[i]] = true
		if i > 0 && text[i] == text[i-1]+1 {
			steps++
		}
	}
	return len(different) < 8 || steps > len(text)/2 || repeats(text)
}

// repeats says that the text is one block of at most 16 bytes written again
// and again.
func repeats(text string) bool {
	for size := 1; size <= 16 && size < len(text); size++ {
		block := []byte(text[:size])
		if strings.HasPrefix(string(bytes.Repeat(block, len(text)/size+1)), text) {
			return true
		}
	}
	return false
}
