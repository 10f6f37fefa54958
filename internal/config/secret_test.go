package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/config"
)

// printed is a value in every way that Go prints one.
func printed(t *testing.T, value any) string {
	t.Helper()
	var all bytes.Buffer
	hidden := struct{ inner any }{value}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
		fmt.Fprintf(&all, verb+"\n", value)
		fmt.Fprintf(&all, verb+"\n", hidden)
		fmt.Fprintf(&all, verb+"\n", &value)
	}
	asJSON, err := json.Marshal(map[string]any{"value": value})
	if err != nil {
		t.Fatal(err)
	}
	all.Write(asJSON)
	slog.New(slog.NewJSONHandler(&all, nil)).Info("it", "value", value)
	slog.New(slog.NewTextHandler(&all, nil)).Info("it", "value", value)
	return all.String()
}

func TestNothingPrintsWhatIsSecret(t *testing.T) {
	t.Parallel()
	lookup := env("REDIS_URL", "rediss://cache:6379/0?password=redispw&protocol=3")
	got, err := config.Load[config.Standalone](lookup)
	if err != nil {
		t.Fatal(err)
	}
	// A field without a name outside its struct is where fmt asks no method.
	private := struct {
		secret config.Secret
		url    config.URL
	}{got.API.JWTSecret, got.API.DatabaseURL}
	dump, err := json.Marshal(fmt.Sprint(config.Dump(got)))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, value := range []any{got, got.API.JWTSecret, got.API.DatabaseURL, got.API.RedisURL, private, &private} {
		text.WriteString(printed(t, value))
	}
	text.Write(dump)
	for _, leak := range []string{signing, "hunter2pw", "redispw", fmt.Sprintf("%x", signing), fmt.Sprintf("%X", signing), fmt.Sprintf("%x", "hunter2pw")} {
		if at := strings.Index(text.String(), leak); at >= 0 {
			t.Errorf("%q leaked: …%s", leak, text.String()[max(0, at-80):min(text.Len(), at+80)])
		}
	}
}

func TestDumpNamesEveryVariableOnce(t *testing.T) {
	t.Parallel()
	got, err := config.Load[config.Standalone](env("EGRESS_ALLOW", "10.0.0.0/8"))
	if err != nil {
		t.Fatal(err)
	}
	var line bytes.Buffer
	slog.New(slog.NewJSONHandler(&line, nil)).LogAttrs(t.Context(), slog.LevelInfo, "configuration", config.Dump(got)...)
	for _, row := range config.Variables() {
		if n := strings.Count(line.String(), `"`+row.Name+`":`); n != 1 {
			t.Errorf("%s stands %d times in %s", row.Name, n, line.String())
		}
	}
	for _, want := range []string{
		`"DATABASE_URL":"postgres://app:......@db:5432/scheduler"`, `"REDIS_URL":"redis://:......@cache:6379/0"`,
		`"JWT_SECRET":"set"`, `"SCHEDULER_JOB_TIMEOUT_MS":300000`, `"EGRESS_ALLOW":"[10.0.0.0/8]"`, `"LOG_LEVEL":"INFO"`,
	} {
		if !strings.Contains(line.String(), want) {
			t.Errorf("missing %s in %s", want, line.String())
		}
	}
}
