package command_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/executor/command"
	"github.com/scheduler-service/scheduler/internal/fault"
)

func rules(faults []fault.Field) []string {
	var short []string
	for _, f := range faults {
		short = append(short, f.Path+" "+f.Rule)
	}
	return short
}

func TestValidate(t *testing.T) {
	t.Parallel()
	e := command.NewChecker(command.Config{Level: command.Sandbox, Memory: 512})
	long := strings.Repeat("a", 128<<10)
	for _, test := range []struct {
		name, config string
		want         []string
	}{
		{"the least", `{"command":"true"}`, nil},
		{"all", `{"command":"/usr/bin/env","args":["a","ü",""],"workingDirectory":"a/../b","environment":{"A":"1"},"timeout":0.5,"network":false,
			"retryOnExitCodes":[1,255],"limits":{"memoryMb":512,"cpuSeconds":1,"processes":1,"fileSizeMb":1024,"openFiles":16}}`, nil},
		{"nothing", `{}`, []string{"config.command required"}},
		{"types", `{"command":1,"args":"a","environment":[],"workingDirectory":1,"timeout":"1","network":1,"retryOnExitCodes":1,"limits":[]}`, []string{
			"config.command type", "config.args type", "config.environment type", "config.workingDirectory type", "config.timeout type", "config.network type",
			"config.retryOnExitCodes type", "config.limits type",
		}},
		{"a line of shell", `{"command":"ls | wc"}`, []string{"config.command form"}},
		{"a relative path", `{"command":"./a"}`, []string{"config.command form"}},
		{"an empty name", `{"command":""}`, []string{"config.command length"}},
		{"NUL", `{"command":"a\u0000b","args":["\u0000"],"environment":{"A":"\u0000"},"workingDirectory":"a\u0000"}`, []string{
			"config characters", "config.command length", "config.args[0] characters", "config.environment characters", "config.workingDirectory form",
		}},
		{"out of the directory", `{"command":"a","workingDirectory":"a/../../b"}`, []string{"config.workingDirectory form"}},
		{"an absolute directory", `{"command":"a","workingDirectory":"/etc"}`, []string{"config.workingDirectory form"}},
		{"long arguments", `{"command":"a","args":["` + long + `"]}`, []string{"config.args length"}},
		{"a long environment", `{"command":"a","environment":{"A":"` + long + `"}}`, []string{"config.environment length"}},
		{"names of variables", `{"command":"a","environment":{"1A":"","A=B":""}}`, []string{"config.environment form", "config.environment form"}},
		{"network", `{"command":"a","network":true}`, []string{"config.network off"}},
		{"limits", `{"command":"a","limits":{"memoryMb":513,"cpuSeconds":0,"processes":1025,"fileSizeMb":-1,"openFiles":1.5,"x":1}}`, []string{
			"config.limits.x unknown", "config.limits.memoryMb range", "config.limits.cpuSeconds range", "config.limits.processes range",
			"config.limits.fileSizeMb range", "config.limits.openFiles type",
		}},
		{"exit codes", `{"command":"a","retryOnExitCodes":[0,256]}`, []string{"config.retryOnExitCodes[0] range", "config.retryOnExitCodes[1] range"}},
		{"twice", `{"command":"a","limits":{"processes":1,"processes":2}}`, []string{"config.limits.processes duplicate", "config.limits.processes duplicate"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, rules(e.Validate(json.RawMessage(test.config)))); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateWhereCommandsAreOff(t *testing.T) {
	t.Parallel()
	e := command.NewChecker(command.Config{Level: command.Off, Memory: 512})
	faults := e.Validate(json.RawMessage(`{"command":"true"}`))
	if len(faults) != 1 || faults[0].Path != "jobType" || !strings.Contains(faults[0].Message, "COMMAND_JOBS") {
		t.Errorf("faults %+v", faults)
	}
}

func TestValidateParameters(t *testing.T) {
	t.Parallel()
	e := command.NewChecker(command.Config{Level: command.Sandbox, Memory: 512})
	for _, test := range []struct {
		name, parameters string
		want             []string
	}{
		{"none", `null`, nil},
		{"both", `{"args":[],"environment":{"B":"1"}}`, nil},
		{"the program", `{"command":"rm"}`, []string{"parameters.command unknown"}},
		{"types", `{"args":[1],"environment":{"A":1}}`, []string{"parameters.args type", "parameters.environment type"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := rules(e.ValidateParameters(json.RawMessage(`{"command":"a","environment":{"A":"1"}}`), json.RawMessage(test.parameters)))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
			for _, secret := range []string{"{{secret:a}}", "***"} {
				got := e.ValidateParameters(json.RawMessage(`{"command":"a","environment":{"PASSWORD":"`+secret+`"}}`), json.RawMessage(test.parameters))
				if (len(got) == 0) != (test.parameters == "null") {
					t.Errorf("beside %s: %v", secret, got)
				}
			}
		})
	}
}
