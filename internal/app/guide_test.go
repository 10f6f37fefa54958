package app

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// The token that standalone prints is one that it believes, whatever bound it
// was given, and the words beside it say for how long.
func TestTheDevelopmentTokenIsBelieved(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ready := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second}
	go func() { _ = ready.Serve(listener) }()
	t.Cleanup(func() { _ = ready.Shutdown(context.Background()) })
	for bound, says := range map[string]string{"": "30 days", "1": "an hour", "24": "24 hours", "48": "2 days", "8760": "30 days", "0": "30 days"} {
		c, err := config.Load[config.Standalone](func(name string) (string, bool) {
			text, ok := map[string]string{"JWT_SECRET": "k3V9xQ0bT7mZ2wLr8YpN4sHd6JfGcAuE", "JWT_MAX_LIFETIME_HOURS": bound, "INTERNAL_SERVICE_TOKEN": "it's a service token of some length", "DATA_DIR": t.TempDir()}[name]
			return text, ok
		})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := (guide{config: c, api: listener.Addr(), started: clock.Start()}).print(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "good for "+says+")") {
			t.Errorf("bound %q: %s", bound, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "  ") && len(line) > 120 && !strings.HasPrefix(line, "  . ") {
				t.Errorf("a line to paste has %d bytes: %s", len(line), line)
			}
		}
		kept, err := os.ReadFile(filepath.Join(c.DataDir, "tokens"))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?m)^export ADMIN_TOKEN=(\S+)`).FindStringSubmatch(string(kept))
		tokens, _, _, err := newTokens(c.API, nil)
		if err != nil || found == nil {
			t.Fatal(err, out.String())
		}
		if _, err := tokens.Authenticate(t.Context(), http.Header{"Authorization": {"Bearer " + found[1]}}); err != nil {
			t.Errorf("bound %q: the token is refused: %v", bound, err)
		}
		believesKept(t, filepath.Join(c.DataDir, "tokens"), tokens)
	}
}

// believesKept reads the file of tokens, which is nobody else's to read: one of
// each role, and the service token.
func believesKept(t *testing.T, path string, tokens *identity.Tokens) {
	t.Helper()
	about, err := os.Stat(path)
	if err != nil || about.Mode().Perm() != 0o600 {
		t.Fatalf("the tokens: %v, %v", about, err)
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]identity.Role{
		"VIEWER": identity.Viewer, "OPERATOR": identity.Operator, "DEVELOPER": identity.Developer, "ADMIN": identity.Admin, "PLATFORM_ADMIN": identity.PlatformAdmin,
	} {
		found := regexp.MustCompile("(?m)^export " + name + `_TOKEN=(\S+)$`).FindSubmatch(kept)
		if found == nil {
			t.Fatalf("no token of %s: %s", role, kept)
		}
		who, err := tokens.Authenticate(t.Context(), http.Header{"Authorization": {"Bearer " + string(found[1])}})
		if err != nil || who.Actor.TenantID != demoTenant || !slices.Equal(who.Roles, []identity.Role{role}) {
			t.Errorf("the token of %s is one of %+v, %v", role, who, err)
		}
	}
	if !strings.Contains(string(kept), "export SERVICE_TOKEN='it'\\''s a service token of some length' TENANT="+demoTenant.String()) {
		t.Errorf("no service token: %s", kept)
	}
}
