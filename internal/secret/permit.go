package secret

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// MayUse refuses a configuration that sends a secret where the stored one (nil:
// none) does not, to somebody who may not do that: a caller that chooses the target of
// a secret can read it there. A reference may stay where it stands, as long as
// the target does. The refusal is Forbidden and lists the references.
func MayUse(who tenant.Actor, stored, config json.RawMessage) error {
	if !who.NoSecrets || !Refers(config) {
		return nil
	}
	var granted []use
	if sameTarget(stored, config) {
		granted, _ = references("config", stored, nil)
	}
	wanted, _ := references("config", config, nil)
	return forbidden(slices.DeleteFunc(wanted, func(u use) bool { return slices.Contains(granted, u) }))
}

// MayPass is MayUse for the parameters of a trigger or backfill of a job with
// this configuration. Parameters that were meant for a configuration before
// (nil: new ones) may go to the same target again.
func MayPass(who tenant.Actor, before, config, parameters json.RawMessage) error {
	if !who.NoSecrets || before != nil && sameTarget(before, config) {
		return nil
	}
	uses, _ := references("parameters", parameters, nil)
	return forbidden(uses)
}

func forbidden(uses []use) error {
	if len(uses) == 0 {
		return nil
	}
	f := fault.New(fault.Forbidden, fault.CodeForbidden, "referring to a secret needs the permission secrets:use: ask for a role or an API key that has it. "+
		"Without it, references may stay as they stand while the target (the URL's scheme, host and port, the function, the script, or the command with its arguments and variables) stays too")
	for _, u := range uses {
		f.Fields = append(f.Fields, fault.Field{Path: u.path, Rule: "permission", Message: fmt.Sprintf("refers to the secret %q", u.name)})
	}
	return f
}

// sameTarget tells whether two configurations send what they send to the same
// place: scheme, host and port of a URL, the function, the script, or the command with
// all that decides what it does.
func sameTarget(a, b json.RawMessage) bool {
	at, ok := targetOf(a)
	to, also := targetOf(b)
	return ok && also && slices.Equal(at, to)
}

func targetOf(config json.RawMessage) ([]string, bool) {
	var c struct {
		URL          string `json:"url"`
		ModulePath   string `json:"modulePath"`
		FunctionName string `json:"functionName"`
		Source       string `json:"source"`
		Command      string `json:"command"`
		// A variable such as BASH_ENV decides as much as an argument.
		Args             []any          `json:"args"`
		Environment      map[string]any `json:"environment"`
		WorkingDirectory any            `json:"workingDirectory"`
		Network          any            `json:"network"`
	}
	if json.Unmarshal(config, &c) != nil {
		return nil, false
	}
	target, err := url.Parse(c.URL)
	if err != nil {
		return nil, false
	}
	how, err := json.Marshal([]any{c.Args, c.Environment, c.WorkingDirectory, c.Network})
	if err != nil {
		return nil, false
	}
	return []string{strings.ToLower(target.Scheme), strings.ToLower(target.Host), c.ModulePath, c.FunctionName, c.Source, c.Command, string(how)}, true
}
