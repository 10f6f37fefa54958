package app

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
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
			text, ok := map[string]string{"JWT_SECRET": "k3V9xQ0bT7mZ2wLr8YpN4sHd6JfGcAuE", "JWT_MAX_LIFETIME_HOURS": bound}[name]
			return text, ok
		})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := (guide{config: c, api: listener.Addr(), started: clock.Start()}).print(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "valid for "+says+",") {
			t.Errorf("bound %q: %s", bound, out.String())
		}
		if run, list := strings.Index(out.String(), "/trigger"), strings.Index(out.String(), "/executions?"); run < 0 || list < run {
			t.Error("pasted at once, the list is read before anything can have run")
		}
		found := regexp.MustCompile(`TOKEN=(\S+)`).FindStringSubmatch(out.String())
		tokens, _, err := newTokens(c.API.Tokens, nil)
		if err != nil || found == nil {
			t.Fatal(err, out.String())
		}
		if _, err := tokens.Authenticate(t.Context(), http.Header{"Authorization": {"Bearer " + found[1]}}); err != nil {
			t.Errorf("bound %q: the token is refused: %v", bound, err)
		}
	}
}
