package suggest_test

import (
	"testing"

	"github.com/scheduler-service/scheduler/internal/fault/suggest"
)

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
