package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// Settings change while the processes run: a promoter, a worker and a second API process
// follow the one that was asked, without a restart, and what is refused changes nothing.
func TestSettingsChangeWhileProcessesRun(t *testing.T) {
	t.Parallel()
	s := start(t, polled, 1)
	addr := freeAddr(t)
	other := "http://" + addr
	s.process("api", "HTTP_ADDR="+addr, "JWT_SECRET="+key, "TENANT_AUTO_CREATE=true")
	administrator := s.clientOf(s.tenant, identity.PlatformAdmin)
	put := func(name, value string) int {
		t.Helper()
		answer, err := administrator.PutSettingWithResponse(t.Context(), name, api.SettingValue{Value: value})
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode()
	}
	for name, value := range map[string]string{"LOG_LEVEL": "debug", "TENANT_MAX_JOBS": "1", "TENANT_MAX_RUNNING": "1"} {
		if got := put(name, value); got != http.StatusOK {
			t.Fatalf("%s=%s is answered %d", name, value, got)
		}
	}
	if got := put("TENANT_MAX_JOBS", "no number"); got != http.StatusBadRequest {
		t.Errorf("a value that is no number is answered %d", got)
	}
	s.create(sleepJob(t, "the only one", 0)) // within the new limit
	mine := s.url
	s.url = other
	second, spec := s.clientOf(s.tenant, identity.Admin), sleepJob(t, "one too many", 0)
	spec.Trigger = new(api.JobSpecTriggerManual)
	s.eventually("the other API process refuses a second job", func() bool {
		answer, err := second.CreateJobWithResponse(t.Context(), nil, spec)
		return err == nil && answer.StatusCode() == http.StatusForbidden
	})
	s.url = mine
	for _, p := range s.started {
		if p.name == "migrate" {
			continue
		}
		s.eventually(p.name+" says that its level changed", func() bool {
			return strings.Contains(p.log.String(), "a setting changed") && strings.Contains(p.log.String(), "LOG_LEVEL")
		})
	}
	var recorded int
	s.query(&recorded, "SELECT count(*) FROM audit_log WHERE object_type = 'setting' AND actor = 'ada'")
	if recorded != 3 {
		t.Errorf("the audit log has %d entries of settings", recorded)
	}
}
