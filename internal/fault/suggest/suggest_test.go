package suggest_test

import (
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/fault/suggest"
)

func TestOneOf(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"DELETE":                 `must be one of GET, POST, not "DELETE"`,
		"get":                    `must be one of GET, POST, not "get"; did you mean GET?`,
		"a\"\n":                  `must be one of GET, POST, not "a\"\n"`,
		strings.Repeat("é", 100): `must be one of GET, POST, not "` + strings.Repeat("é", 32) + `…"`,
	} {
		if got := suggest.OneOf(given, []string{"GET", "POST"}); got != want {
			t.Errorf("%q: %s, want %s", given, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"cronExpression", "maxRetries", "maxRetryDelayMs", "retryDelayMs", "name", "tags", "fire_once", "fire_all", "Europe/Berlin"}
	for given, want := range map[string]string{
		"cronExpresion": "cronExpression", "CRONEXPRESSION": "cronExpression", "cron_expression": "cronExpression", "maxretries": "maxRetries",
		"maxRetires": "maxRetries", "maxRetry": "maxRetries", "nmae": "name", "cron": "cronExpression", "fire": "", "nam": "name", "tag": "tags", "fire_onc": "fire_once", "europe/berlin": "Europe/Berlin", "Europe/Berln": "Europe/Berlin",
		"": "", "x": "", "qq": "", "color": "", "payload": "", "tenantId": "",
	} {
		if got := suggest.Nearest(given, known); got != want {
			t.Errorf("%q is taken for %q, want %q", given, got, want)
		}
	}
	if got := suggest.For("nmae", known); got != "; did you mean name?" {
		t.Errorf("the hint is %q", got)
	}
	if got := suggest.For("payload", known); got != "" {
		t.Errorf("the hint is %q", got)
	}
}
