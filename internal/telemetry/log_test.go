package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// logged is the one line that a call wrote, parsed, without its time.
func logged(t *testing.T, call func(*slog.Logger)) map[string]any {
	t.Helper()
	var out bytes.Buffer
	call(NewLogger(&out, slog.LevelInfo, false))
	if n := strings.Count(out.String(), "\n"); n != 1 || !strings.HasSuffix(out.String(), "\n") {
		t.Fatalf("%d lines: %q", n, out.String())
	}
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	delete(line, "time")
	return line
}

func TestLogCarriesTheIDsOfTheContext(t *testing.T) {
	t.Parallel()
	ctx := WithIDs(t.Context(), IDs{Request: "r1", Tenant: "t1"})
	ctx = WithIDs(ctx, IDs{Job: "j1", Execution: "e1", Trace: "x1"})
	if diff := cmp.Diff(IDs{"r1", "t1", "j1", "e1", "x1"}, IDsFrom(ctx)); diff != "" {
		t.Error(diff)
	}
	tests := []struct {
		name string
		call func(*slog.Logger)
		want map[string]any
	}{
		{
			"with ids", func(l *slog.Logger) { l.With("process", "api").InfoContext(ctx, "done", "n", 1) },
			map[string]any{"level": "INFO", "msg": "done", "n": 1., "process": "api", "request_id": "r1", "tenant_id": "t1", "job_id": "j1", "execution_id": "e1", "trace_id": "x1"},
		},
		{
			"named by the record", func(l *slog.Logger) { l.InfoContext(WithIDs(t.Context(), IDs{Job: "j1"}), "done", "job_id", "j2") },
			map[string]any{"level": "INFO", "msg": "done", "job_id": "j2"},
		},
		{
			"none", func(l *slog.Logger) { l.InfoContext(t.Context(), "done") },
			map[string]any{"level": "INFO", "msg": "done"},
		},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, logged(t, tt.call)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestLogLevelMayChangeWhileRunning(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	var level slog.LevelVar
	logger := NewLogger(&out, &level, false)
	logger.DebugContext(t.Context(), "no")
	level.Set(slog.LevelDebug)
	logger.DebugContext(t.Context(), "yes")
	if got := out.String(); strings.Contains(got, `"no"`) || !strings.Contains(got, `"yes"`) {
		t.Error(got)
	}
	SetLevel(logger.With("process", "api"), slog.LevelWarn)
	if level.Level() != slog.LevelWarn {
		t.Errorf("the level is %v", level.Level())
	}
	SetLevel(slog.New(slog.DiscardHandler), slog.LevelWarn) // changes nothing
}

// TestLogKeepsOneLine hands in what a caller would choose to forge a second
// line, or to colour a terminal.
func TestLogKeepsOneLine(t *testing.T) {
	t.Parallel()
	forged := "x\r\n{\"level\":\"ERROR\"}\u2028\x1b[31m\x00"
	line := logged(t, func(l *slog.Logger) {
		l.InfoContext(WithIDs(t.Context(), IDs{Request: forged}), forged, forged, forged, "err", errors.New(forged), "any", map[string]string{forged: forged})
	})
	if line["level"] != "INFO" || line["request_id"] != forged || line["err"] != forged {
		t.Errorf("got %q", line)
	}
}

func TestLogNeverShowsSecrets(t *testing.T) {
	t.Parallel()
	const (
		password = "hunter2pw"
		jwt      = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlc2lnbmF0dXJl"
		apiKey   = "sk_live_ab12cd34_0123456789abcdefghijklmnopqrstuvwxyz"
	)
	header := http.Header{"Authorization": {"Bearer " + password}, "X-Service-Token": {password}, "Accept": {"kept"}}
	type nested struct {
		Name     string
		Password string
		Deep     []map[string]string
	}
	tests := []struct {
		name string
		call func(*slog.Logger)
		kept string // what the line still has to show
	}{
		{"by key", func(l *slog.Logger) { l.Info("kept", "password", password, "DB_PASSWORD", password) }, "kept"},
		{"by key in other spellings", func(l *slog.Logger) {
			l.Info("kept", "apiKey", password, "x-api-key", password, "jwt_secret", password, "Set-Cookie", password, "refreshToken", password)
		}, "kept"},
		{"by key, any type", func(l *slog.Logger) { l.Info("kept", "token", []byte(password), "secret", errors.New(password)) }, "kept"},
		{"by group", func(l *slog.Logger) { l.Info("kept", slog.Group("credentials", "user", "x", "value", password)) }, "kept"},
		{"of the logger", func(l *slog.Logger) { l.With("authorization", password).WithGroup("g").Info("kept") }, "kept"},
		{"header", func(l *slog.Logger) { l.Info("m", "header", header) }, "kept"},
		{"struct", func(l *slog.Logger) {
			l.Info("m", "job", nested{"kept", password, []map[string]string{{"token": password}}})
		}, "kept"},
		{"URL in an error", func(l *slog.Logger) {
			l.Info("m", "err", errors.New("dial postgres://kept:"+password+"@db:5432/x: refused"))
		}, "postgres://kept:......@db:5432/x: refused"},
		{"password with an at", func(l *slog.Logger) { l.Info("redis://:" + password + "@" + password + "@kept:6379/0") }, "redis://:......@kept:6379/0"},
		{"connection string", func(l *slog.Logger) { l.Info("m", "err", errors.New("host=kept password="+password+" user=u")) }, "host=kept password=...... user=u"},
		{"query", func(l *slog.Logger) { l.Info("m", "url", "https://kept/x?access_token="+password+"&a=b") }, "https://kept/x?access_token=......&a=b"},
		{"JWT in a text", func(l *slog.Logger) { l.Info("m", "body", "got "+jwt+" kept") }, "got ...... kept"},
		{"bearer in the message", func(l *slog.Logger) { l.Info("header Bearer " + password + password + " kept") }, "kept"},
		{"API key in a map", func(l *slog.Logger) { l.Info("m", "q", map[string]any{"a": []any{"kept " + apiKey}}) }, "kept ......"},
		{"unmarshalable", func(l *slog.Logger) { l.Info("m", "c", struct{ F func() }{}, "n", "kept") }, "kept"},
	}
	for _, tt := range tests {
		text, err := json.Marshal(logged(t, tt.call))
		if err != nil {
			t.Fatal(err)
		}
		shown := strings.ReplaceAll(string(text), `\u0026`, "&")
		for _, leak := range []string{password, jwt, apiKey} {
			if strings.Contains(shown, leak) {
				t.Errorf("%s: leaked in %s", tt.name, shown)
			}
		}
		if !strings.Contains(shown, tt.kept) {
			t.Errorf("%s: %q is missing in %s", tt.name, tt.kept, shown)
		}
	}
}

// TestLogKeepsWhatIsNotSecret guards against taking out too much.
func TestLogKeepsWhatIsNotSecret(t *testing.T) {
	t.Parallel()
	want := map[string]any{"level": "INFO", "msg": "listening on http://[::1]:3009/api:v1", "url": "https://host:8443/a@b", "n": 3., "status": "basic check passed"}
	got := logged(t, func(l *slog.Logger) {
		l.Info("listening on http://[::1]:3009/api:v1", "url", "https://host:8443/a@b", "n", 3, "status", "basic check passed")
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// On a terminal lines are text, and durations are readable everywhere.
func TestLogForPeople(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	NewLogger(&out, slog.LevelInfo, true).Info("waited", "took", 1500*time.Millisecond, "password", "hunter2")
	if line := out.String(); !strings.Contains(line, "msg=waited took=1.5s") || strings.Contains(line, "hunter2") || strings.HasPrefix(line, "{") {
		t.Error(line)
	}
	if line := logged(t, func(l *slog.Logger) { l.Info("waited", "took", 1500*time.Millisecond) }); line["took"] != "1.5s" {
		t.Error(line)
	}
}
