package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// demoTenant is the tenant of the development token, the same at each start.
var demoTenant = uuid.MustParse("00000000-0000-4000-8000-00000000de30")

const (
	// tokenLife is how long a development token is believed, where
	// JWT_MAX_LIFETIME_HOURS allows that.
	tokenLife = 30 * 24 * time.Hour
	// startLimit bounds how long the standalone program waits to be ready.
	startLimit = time.Minute
)

// guide tells a person who started the standalone program what to do next.
type guide struct {
	config  config.Standalone
	api     net.Addr
	echo    string
	stores  string
	code    string // in the console's address
	started clock.Mark
}

// print waits until the service is ready and then says how to use it.
func (g guide) print(ctx context.Context, out io.Writer) error {
	base, err := g.base()
	if err != nil {
		return err
	}
	if err := untilReady(ctx, base+"/health/ready"); err != nil {
		return err
	}
	if !g.config.API.JWKSURL.IsZero() {
		_, err := fmt.Fprintf(out, guideKeysText, base, g.started.Elapsed().Seconds(), g.stores, base, g.config.API.JWKSURL, base)
		return err
	}
	file, err := g.keepTokens(base)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, guideText, base, g.started.Elapsed().Seconds(), g.stores, base+"/console/#sign-in="+g.code, inWords(g.tokenLife()), file, base)
	return err
}

// token is one of the demo tenant, for a user with the role.
func (g guide) token(role identity.Role) (string, error) {
	return identity.Mint([]byte(g.config.API.JWTSecret.Reveal()), identity.Claims{
		Subject: "demo", Tenant: demoTenant, Roles: []identity.Role{role}, Issuer: g.config.API.JWTIssuer, Audience: g.config.API.JWTAudience,
	}, clock.Now(), g.tokenLife())
}

// shellWords are what a person would type again and again: a call of the API, and the
// id in its answer.
const shellWords = `api() { path=$1; shift; curl -sS "$API$path" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' "$@" && echo; }
id() { sed 's/.*"id":"\([^"]*\)".*/\1/'; }
`

// keepTokens writes the addresses, a token of every role, the service token and
// shellWords into a file for a shell to read, which is the owner's alone.
func (g guide) keepTokens(base string) (path string, err error) {
	var lines strings.Builder
	lines.WriteString("# Read by a shell, with a dot. $TOKEN is the administrator's, and the one that api sends.\n")
	fmt.Fprintf(&lines, "export API=%s/api/v1/scheduler ECHO=%s\n", base, g.echo)
	for _, role := range []identity.Role{identity.Viewer, identity.Operator, identity.Developer, identity.Admin, identity.PlatformAdmin} {
		token, err := g.token(role)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&lines, "export %s_TOKEN=%s\n", strings.ReplaceAll(strings.ToUpper(string(role)), "-", "_"), token)
	}
	lines.WriteString("export TOKEN=$ADMIN_TOKEN\n")
	for _, token := range g.config.API.ServiceTokens[:min(1, len(g.config.API.ServiceTokens))] {
		fmt.Fprintf(&lines, "export SERVICE_TOKEN='%s' TENANT=%s\n", strings.ReplaceAll(token.Reveal(), "'", `'\''`), demoTenant)
	}
	lines.WriteString(shellWords)
	if path, err = filepath.Abs(filepath.Join(g.config.DataDir, "tokens")); err != nil {
		return "", fmt.Errorf("keep the tokens: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("keep the tokens: %w", err)
	}
	// A shell that reads the file meanwhile reads the old one or the new one.
	if err := os.WriteFile(path+".new", []byte(lines.String()), 0o600); err != nil {
		return "", fmt.Errorf("keep the tokens: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return "", fmt.Errorf("keep the tokens: %w", err)
	}
	return path, nil
}

// tokenLife is how long the development token is good for: as long as the
// API believes one, and 30 days at most.
func (g guide) tokenLife() time.Duration {
	if hours := g.config.API.MaxLifetime; hours > 0 {
		return min(tokenLife, time.Duration(hours)*time.Hour)
	}
	return tokenLife
}

// inWords is a number of whole hours for a person.
func inWords(life time.Duration) string {
	const day = 24 * time.Hour
	switch hours := int(life.Hours()); {
	case life >= 2*day && life%day == 0:
		return fmt.Sprintf("%d days", hours/24)
	case hours == 1:
		return "an hour"
	default:
		return fmt.Sprintf("%d hours", hours)
	}
}

// guideText is complete commands: each can be pasted as it stands, and all at once.
const guideText = `
The scheduler is ready at %s (started in %.1f s).
Stores: %s

The console (this address signs you in once; after that use a token): %s

In another terminal (the tokens in that file are good for %s):

  . %s
  JOB=$(api /jobs -d '{"name":"hello","interval":"5s","jobType":"http","config":{"url":"'$ECHO'"}}' | id)
  RUN=$(api /jobs/$JOB/trigger -d '{}' | id)
  until api /executions/$RUN | grep '"completed"'; do sleep 1; done  # "result" is what the echo endpoint answered
  api "/jobs/$JOB/executions?limit=3"                              # those of the interval too
  api /jobs/$JOB -X DELETE

"api" is curl with the address and a token of an administrator; the file says which others there are.
Jobs may call a service of your own on this machine once that is allowed:  EGRESS_ALLOW=127.0.0.0/8 make run

The whole API, to read and to try out: %s/docs
Ctrl-C stops it; the data stays for the next start.
`

// guideKeysText is for tokens that only the auth service can sign.
const guideKeysText = `
The scheduler is ready at %s (started in %.1f s).
Stores: %s

The API is at %s/api/v1/scheduler and believes the tokens whose keys stand at %s.
The console: %s/console/

Ctrl-C stops it; the data stays for the next start.
`

// base is the address that a person on this machine reaches the API at.
func (g guide) base() (string, error) {
	host, port, err := net.SplitHostPort(g.api.String())
	if err != nil {
		return "", fmt.Errorf("read the API's address: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http://"
	if g.config.API.TLSCertFile != "" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port), nil
}

// untilReady asks until the answer is 200.
func untilReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errors.New("the service did not become ready within a minute: see the log above"))
	defer cancel()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	client := &http.Client{Transport: &http.Transport{
		Proxy: nil, DisableKeepAlives: true,
		// It asks this very process whether it is ready, and sends nothing; the
		// certificate is for other names than localhost.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
	}}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("ask whether the service is ready: %w", err)
		}
		if answer, err := client.Do(request); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.Canceled) {
				return nil // stopped before it was ready
			}
			return context.Cause(ctx)
		}
	}
}
