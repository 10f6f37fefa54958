package secret

import (
	"encoding/json"
	"testing"

	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Somebody who may not use secrets changes nothing that decides where one goes.
func TestTargetsOfSecrets(t *testing.T) {
	t.Parallel()
	const command = `{"command":"sh","args":["-c","report"],"environment":{"KEY":"{{secret:k}}","MODE":"a"}}`
	for _, test := range []struct {
		name, stored, changed string
		may                   bool
	}{
		{"a path", `{"url":"https://a.example/x?k={{secret:k}}"}`, `{"url":"https://A.example/y?k={{secret:k}}"}`, true},
		{"a body", `{"url":"https://a.example/","body":"{{secret:k}}"}`, `{"url":"https://a.example/y","body":"{{secret:k}}"}`, true},
		{"a host", `{"url":"https://a.example/","body":"{{secret:k}}"}`, `{"url":"https://b.example/","body":"{{secret:k}}"}`, false},
		{"a script", `{"source":"a","parameters":{"k":"{{secret:k}}"}}`, `{"source":"b","parameters":{"k":"{{secret:k}}"}}`, false},
		{"parameters of a script", `{"source":"a","parameters":{"k":"{{secret:k}}"}}`, `{"source":"a","parameters":{"k":"{{secret:k}}","x":1}}`, true},
		{"limits of a command", command, `{"environment":{"MODE":"a","KEY":"{{secret:k}}"},"command":"sh","args":["-c","report"],"timeout":5,"limits":{"processes":1}}`, true},
		{"arguments", command, `{"command":"sh","args":["-c","echo $KEY"],"environment":{"KEY":"{{secret:k}}","MODE":"a"}}`, false},
		{"a variable", command, `{"command":"sh","args":["-c","report"],"environment":{"KEY":"{{secret:k}}","MODE":"b"}}`, false},
		{"one more variable", command, `{"command":"sh","args":["-c","report"],"environment":{"KEY":"{{secret:k}}","MODE":"a","BASH_ENV":"x"}}`, false},
		{"the network", command, `{"command":"sh","args":["-c","report"],"environment":{"KEY":"{{secret:k}}","MODE":"a"},"network":true}`, false},
	} {
		err := MayUse(tenant.Actor{NoSecrets: true}, json.RawMessage(test.stored), json.RawMessage(test.changed))
		if (err == nil) != test.may {
			t.Errorf("%s: %v", test.name, err)
		}
		if err := MayUse(tenant.Actor{}, json.RawMessage(test.stored), json.RawMessage(test.changed)); err != nil {
			t.Errorf("%s, by somebody who may: %v", test.name, err)
		}
	}
}
