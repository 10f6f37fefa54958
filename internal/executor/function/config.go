package function

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault"
)

// maxParameters bounds the parameters, in bytes of JSON.
const maxParameters = 256 << 10

// settings is a job's configuration.
type settings struct {
	ModulePath   string          `json:"modulePath"`
	FunctionName string          `json:"functionName"`
	Parameters   json.RawMessage `json:"parameters"`
	Timeout      float64         `json:"timeout"` // seconds

	definition Definition // that parse found
}

// parse reads a configuration and lists everything that is wrong with it.
func (e *Executor) parse(config json.RawMessage) (settings, []fault.Field) {
	object := executor.ReadObject("config", config, "modulePath", "functionName", "parameters", "timeout")
	var s settings
	hasModule := object.Require("modulePath", &s.ModulePath, "a text")
	hasFunction := object.Require("functionName", &s.FunctionName, "a text")
	object.Read("parameters", &s.Parameters, "an object")
	object.Seconds("timeout")
	module, known := e.modules[s.ModulePath]
	if hasModule && !known {
		object.Fault("modulePath", "unknown", "is not a module of this worker; the modules are: "+names(e.modules))
	}
	if hasFunction && known {
		if s.definition, known = module[s.FunctionName]; !known {
			object.Fault("functionName", "unknown", "is not a function of this module; its functions are: "+names(module))
		}
		object.Add(s.definition.check("config.parameters", s.Parameters)...)
	}
	return s, object.Faults()
}

func names[V any](known map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

// check lists what is wrong with parameters: they are an object, of bounded
// size, that fits the function.
func (d Definition) check(path string, parameters json.RawMessage) []fault.Field {
	if len(parameters) > maxParameters {
		return []fault.Field{{Path: path, Rule: "length", Message: "must have at most 262144 bytes"}}
	}
	if len(parameters) > 0 && parameters[0] != '{' {
		return notObject(path)
	}
	if d.Check == nil {
		return nil
	}
	return d.Check(path, parameters)
}

func notObject(path string) []fault.Field {
	return []fault.Field{{Path: path, Rule: "type", Message: "must be an object"}}
}

// merge sets the members of over into those of under. Most runs have none.
func merge(under, over json.RawMessage) (json.RawMessage, error) {
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
	}
	if members == nil {
		return nil, errors.New("parameters are null")
	}
	return json.Marshal(members)
}

func isAbsent(parameters json.RawMessage) bool {
	return len(parameters) == 0 || string(parameters) == "null"
}
