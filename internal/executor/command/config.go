package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault"
)

// The bounds of a configuration.
const (
	maxArgs     = 1000
	maxText     = 128 << 10 // of all arguments, and of the whole environment
	maxVariable = 200       // variables of the environment
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// limits are what the program may use.
type limits struct {
	MemoryMB, CPUSeconds, Processes, FileSizeMB, OpenFiles int
}

// settings is a job's configuration, read and with its defaults.
type settings struct {
	command     string
	args        []string
	dir         string
	environment map[string]string
	timeout     time.Duration
	network     bool
	retryOn     []int // exit codes
	limits      limits
}

// parse reads a configuration and lists everything that is wrong with it.
func (e *Executor) parse(config json.RawMessage) (*settings, []fault.Field) {
	object := executor.ReadObject("config", config,
		"command", "args", "workingDirectory", "environment", "timeout", "network", "retryOnExitCodes", "limits")
	s := &settings{environment: map[string]string{}}
	if object.Require("command", &s.command, "a text") {
		s.checkCommand(object)
	}
	s.readArgs(object)
	s.readEnvironment(object)
	if object.Read("workingDirectory", &s.dir, "a text") && (path.IsAbs(s.dir) || len(s.dir) > 1000 || escapes(s.dir) || hasNUL(s.dir)) {
		object.Fault("workingDirectory", "form", "must be a path below the job's own directory, such as data/in")
	}
	s.timeout = object.Seconds("timeout")
	if object.Read("network", &s.network, "true or false") && s.network && !e.c.Network {
		object.Fault("network", "off", "programs have no network in this installation; its operator allows it with COMMAND_NETWORK")
	}
	if object.Read("retryOnExitCodes", &s.retryOn, "a list of exit codes") {
		for i, code := range s.retryOn {
			if code < 1 || code > 255 {
				object.Fault(fmt.Sprintf("retryOnExitCodes[%d]", i), "range", "must be from 1 to 255")
			}
		}
	}
	s.readLimits(object, config, e.c.Memory)
	return s, object.Faults()
}

func (s *settings) checkCommand(object *executor.Object) {
	switch {
	case s.command == "" || len(s.command) > 1000 || hasNUL(s.command):
		object.Fault("command", "length", "must have 1 to 1000 bytes, none of them NUL")
	case strings.Contains(s.command, "/") && !path.IsAbs(s.command):
		object.Fault("command", "form", "must be the name of a program, or a path that begins with /")
	case strings.ContainsAny(s.command, " \t\n|&;<>$`"):
		object.Fault("command", "form", "is a program without its arguments, and no shell reads it: put the arguments into args; for a line of shell use the command sh with args [\"-c\", \"…\"]")
	}
}

// readArgs reads the arguments, which may be given again by a trigger.
func (s *settings) readArgs(object *executor.Object) {
	var args []string
	if !object.Read("args", &args, "a list of texts") {
		return
	}
	size := 0
	for i, arg := range args {
		size += len(arg) + 1
		if hasNUL(arg) {
			object.Fault(fmt.Sprintf("args[%d]", i), "characters", "must not hold NUL")
		}
	}
	if len(args) > maxArgs || size > maxText {
		object.Fault("args", "length", "must be at most 1000 texts and 131072 bytes together")
	}
	s.args = args
}

// readEnvironment reads variables, over those that are there.
func (s *settings) readEnvironment(object *executor.Object) {
	var given map[string]string
	if !object.Read("environment", &given, "an object of texts") {
		return
	}
	maps.Copy(s.environment, given)
	size := 0
	for name, value := range s.environment {
		size += len(name) + len(value) + 2
		if !variable.MatchString(name) {
			object.Fault("environment", "form", fmt.Sprintf("has the name %.60q; a name is made of letters, digits and _, and begins with no digit", name))
		}
		if hasNUL(value) {
			object.Fault("environment", "characters", fmt.Sprintf("holds NUL in %.60q", name))
		}
	}
	if len(s.environment) > maxVariable || size > maxText {
		object.Fault("environment", "length", "must be at most 200 variables and 131072 bytes together")
	}
}

// readLimits reads limits within the bounds of the installation.
func (s *settings) readLimits(object *executor.Object, config json.RawMessage, memory int) {
	s.limits = limits{MemoryMB: min(256, memory), Processes: 64, FileSizeMB: 64, OpenFiles: 256}
	var whole struct {
		Limits json.RawMessage `json:"limits"`
	}
	if json.Unmarshal(config, &whole) != nil || len(whole.Limits) == 0 || string(whole.Limits) == "null" {
		return
	}
	inner := executor.ReadObject("config.limits", whole.Limits, "memoryMb", "cpuSeconds", "processes", "fileSizeMb", "openFiles")
	for _, one := range []struct {
		name      string
		into      *int
		low, high int
		hint      string
	}{
		{"memoryMb", &s.limits.MemoryMB, 8, memory, " (the operator's COMMAND_MEMORY_MB)"},
		{"cpuSeconds", &s.limits.CPUSeconds, 1, 86_400, ""},
		{"processes", &s.limits.Processes, 1, 1024, ""},
		{"fileSizeMb", &s.limits.FileSizeMB, 1, 1024, ""},
		{"openFiles", &s.limits.OpenFiles, 16, 4096, ""},
	} {
		if inner.Read(one.name, one.into, "a whole number") && (*one.into < one.low || *one.into > one.high) {
			inner.Fault(one.name, "range", fmt.Sprintf("must be from %d to %d%s", one.low, one.high, one.hint))
		}
	}
	object.Add(inner.Faults()...)
}

// override applies the parameters of a manual trigger, and lists what is wrong with
// them.
func (s *settings) override(parameters json.RawMessage) []fault.Field {
	if len(parameters) == 0 || string(parameters) == "null" {
		return nil
	}
	object := executor.ReadObject("parameters", parameters, "args", "environment")
	s.readArgs(object)
	s.readEnvironment(object)
	return object.Faults()
}

// escapes says whether a relative path leaves its directory.
func escapes(dir string) bool {
	clean := path.Clean(dir)
	return clean == ".." || strings.HasPrefix(clean, "../")
}

func hasNUL(text string) bool { return strings.ContainsRune(text, 0) }
