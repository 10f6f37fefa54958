package function

import (
	"encoding/json"
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
	functions := e.functions(s.ModulePath)
	if hasModule && len(functions) == 0 {
		object.Fault("modulePath", "unknown", "is not a module of a worker; the modules are: "+strings.Join(e.moduleNames(), ", "))
	}
	if hasFunction && len(functions) > 0 {
		var known bool
		if s.definition, known = e.definition(s.ModulePath, s.FunctionName); !known {
			object.Fault("functionName", "unknown", "is not a function of this module; its functions are: "+strings.Join(functions, ", "))
		}
		object.Add(s.definition.check("config.parameters", s.Parameters)...)
	}
	return s, object.Faults()
}

// functions are the names of a module's functions: of those that are compiled in, or
// else of those that a worker published.
func (e *Executor) functions(module string) []string {
	if compiled, ok := e.modules[module]; ok || e.published == nil {
		return slices.Sorted(maps.Keys(compiled))
	}
	return e.published.Functions(module)
}

func (e *Executor) moduleNames() []string {
	all := slices.Collect(maps.Keys(e.modules))
	if e.published != nil {
		all = append(all, e.published.Modules()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// definition finds a function. One that a worker published can be checked, not run.
func (e *Executor) definition(module, name string) (Definition, bool) {
	if compiled, ok := e.modules[module]; ok || e.published == nil {
		d, ok := compiled[name]
		return d, ok
	}
	schema, known := e.published.Parameters(module, name)
	return Definition{Parameters: schema}, known
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
	var faults []fault.Field
	if d.Parameters != nil {
		faults = d.Parameters.Check(path, parameters)
	}
	if d.Check != nil {
		faults = append(faults, d.Check(path, parameters)...)
	}
	return faults
}

func notObject(path string) []fault.Field {
	return []fault.Field{{Path: path, Rule: "type", Message: "must be an object"}}
}
