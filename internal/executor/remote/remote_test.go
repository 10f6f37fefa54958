package remote_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/remote"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for config, want := range map[string][]string{
		`{"functionName":"send-invoice"}`:                   nil,
		`{"functionName":"a/b.c_d","parameters":{"a":[1]}}`: nil,
		`{}`:                                 {"config.functionName required"},
		`{"functionName":""}`:                {"config.functionName pattern"},
		`{"functionName":"/a"}`:              {"config.functionName pattern"},
		`{"functionName":"a b"}`:             {"config.functionName pattern"},
		`{"functionName":1,"parameters":[]}`: {"config.functionName type", "config.parameters type"},
		`{"functionName":"a","timeout":1}`:   {"config.timeout unknown"},
		`{"functionName":"a","parameters":{"a":"\u0000"},"b":"c"}`: {"config characters", "config.b unknown", "config.parameters characters"},
	} {
		var got []string
		for _, f := range (remote.Executor{}).Validate(json.RawMessage(config)) {
			got = append(got, f.Path+" "+f.Rule)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", config, diff)
		}
	}
	if faults := (remote.Executor{}).ValidateParameters(json.RawMessage(`{"functionName":"a"}`), json.RawMessage(`[]`)); len(faults) != 1 || faults[0].Path != "parameters" {
		t.Errorf("parameters of a trigger: %v", faults)
	}
	if out := (remote.Executor{}).Execute(t.Context(), executor.Run{}); out.Err == nil {
		t.Error("it runs something")
	}
}
