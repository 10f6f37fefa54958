// Package parameters is what job types share that hand a JSON object to code: how a manual
// trigger changes the object, and what it may be.
package parameters

import (
	"encoding/json"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault"
)

// maxParameters bounds the parameters of a job, in bytes of JSON.
const maxParameters = 256 << 10

// Merge sets the parameters of a manual trigger over those of the job, name by name.
// Both are objects, or absent; where there are none it answers nil. Most runs have none.
func Merge(under, over json.RawMessage) (json.RawMessage, error) {
	if isAbsent(over) {
		if isAbsent(under) {
			return nil, nil
		}
		return under, nil
	}
	members := map[string]json.RawMessage{}
	for _, part := range []json.RawMessage{under, over} {
		if isAbsent(part) {
			continue
		}
		if err := json.Unmarshal(part, &members); err != nil {
			return nil, err
		}
		if members == nil {
			members = map[string]json.RawMessage{}
		}
	}
	return json.Marshal(members)
}

func isAbsent(parameters json.RawMessage) bool {
	return len(parameters) == 0 || string(parameters) == "null"
}

// CheckOver lists what is wrong with the overrides of a manual trigger: by themselves,
// and set over the job's own.
func CheckOver(own, over json.RawMessage) []fault.Field {
	if faults := Check("parameters", over); len(faults) > 0 {
		return faults
	}
	merged, err := Merge(own, over)
	if err != nil {
		return []fault.Field{{Path: "parameters", Rule: "type", Message: "must be an object"}}
	}
	return Check("parameters", merged)
}

// Check lists what is wrong with parameters that any object of bounded size
// may be.
func Check(path string, parameters json.RawMessage) []fault.Field {
	switch {
	case isAbsent(parameters):
		return nil
	case len(parameters) > maxParameters:
		return []fault.Field{{Path: path, Rule: "length", Message: "must have at most 262144 bytes"}}
	}
	return executor.ReadMap(path, parameters).Faults()
}
