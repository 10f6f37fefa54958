package function_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	e := with(nil)
	for _, test := range []struct {
		name, config string
		want         []string
	}{
		{"noop", `{"modulePath":"builtin","functionName":"noop"}`, nil},
		{"noop with parameters", `{"modulePath":"builtin","functionName":"noop","parameters":{"a":1},"timeout":5}`, nil},
		{"sleep", `{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":0}}`, nil},
		{"sleep an hour", `{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":3600000}}`, nil},
		{"registered", testF, nil},
		{"nothing", `{}`, []string{"config.modulePath required", "config.functionName required"}},
		{"unknown module", `{"modulePath":"os/exec","functionName":"Command"}`, []string{"config.modulePath unknown"}},
		{"unknown function", `{"modulePath":"builtin","functionName":"nope"}`, []string{"config.functionName unknown"}},
		{"case counts", `{"modulePath":"builtin","functionName":"NOOP"}`, []string{"config.functionName unknown"}},
		{
			"all at once", `{"modulePath":1,"functionName":"","timeout":-1,"more":1,"parameters":[]}`,
			[]string{"config.more unknown", "config.modulePath type", "config.timeout range"},
		},
		{"parameters of a list", `{"modulePath":"builtin","functionName":"noop","parameters":[1]}`, []string{"config.parameters type"}},
		{
			"large parameters", `{"modulePath":"builtin","functionName":"noop","parameters":{"a":"` + strings.Repeat("a", 256<<10) + `"}}`,
			[]string{"config.parameters length"},
		},
		{"sleep without parameters", `{"modulePath":"builtin","functionName":"sleep"}`, []string{"config.parameters.durationMs required"}},
		{"sleep too long", `{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":3600001}}`, []string{"config.parameters.durationMs range"}},
		{"sleep backwards", `{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":-1}}`, []string{"config.parameters.durationMs range"}},
		{
			"sleep a fraction", `{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":0.5,"x":1}}`,
			[]string{"config.parameters.x unknown", "config.parameters.durationMs type"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, rules(e.Validate(json.RawMessage(test.config)))); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateParameters(t *testing.T) {
	t.Parallel()
	e := with(nil)
	const sleep = `{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":5}}`
	for _, test := range []struct {
		name, config, parameters string
		want                     []string
	}{
		{"over", sleep, `{"durationMs":6}`, nil},
		{"beside", sleep, `{}`, nil},
		{"null", sleep, `null`, nil},
		{"too long", sleep, `{"durationMs":3600001}`, []string{"parameters.durationMs range"}},
		{"not known", sleep, `{"x":1}`, []string{"parameters.x unknown"}},
		{"twice", sleep, `{"durationMs":1,"durationMs":2}`, []string{"parameters.durationMs duplicate"}},
		{"not an object", sleep, `[]`, []string{"parameters type"}},
		{"NUL", testF, `{"a":"\u0000"}`, []string{"parameters characters"}},
		{"the job itself is wrong", `{"modulePath":"builtin"}`, `{}`, []string{"config.functionName required"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := e.ValidateParameters(json.RawMessage(test.config), json.RawMessage(test.parameters))
			if diff := cmp.Diff(test.want, rules(got)); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
		})
	}
}
