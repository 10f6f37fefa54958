package arch_test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// waits are the packages that wait by a timer, each with the reason why what
// waits there is no line of a table of passes (package loop).
var waits = map[string]string{
	"clock":                 "the sleep that ends with its context",
	"loop":                  "the runner of passes",
	"api/functions":         "a function that gives no sign of life is ended",
	"api/client":            "a refused or lost request is sent again after a while",
	"app":                   "standalone waits once until its own API answers",
	"devstack":              "a server that is started is waited for",
	"devstack/child":        "a program that is started is waited for",
	"executor/command":      "a program has a second to end politely",
	"executor/function":     "a built-in function that sleeps when a tenant asks it to",
	"lease":                 "a lease is extended while its work runs, at a third of its own time",
	"notification/send":     "while attempts are under way, messages of others become due",
	"postgres":              "a migration waits for the locks of live requests, and tries again; a pool that gave way grows back",
	"postgres/calls":        "notifications keep a distance, and a session that ended is opened again after a rest",
	"monitor/intake":        "pings are stored as they come, and the same goroutine says that they can be",
	"queue":                 "asynq's poller is slowed down while Redis is away, and handlers are waited for",
	"rest":                  "the notice before the port closes, and the heartbeat of streams",
	"schedctl":              "a command looks again at what it waits for or shows",
	"trace/root":            "timelines are read as executions finish, so many a second",
	"turn":                  "a request waits for its turn",
	"worker":                "polls, batches and claims follow events; the fence ends runs by a deadline",
	"cmd/exampleremote":     "an example of a tenant's program, which has no passes of ours",
	"executor/runner":       "a run is ended after its deadline, and an idle process after a while",
	"executor/runner/guest": "a script's timers, and its deadline",
	"output":                "output lingers for half a second, from the first line that waits; an outcome waits for its output, with a bound",
}

// TestLoopsAreLinesOfATable finds the packages that wait by a timer.
func TestLoopsAreLinesOfATable(t *testing.T) {
	t.Parallel()
	timers := []string{"NewTicker", "NewTimer", "After", "AfterFunc", "Tick"}
	used := make(map[string]bool)
	for _, s := range tree(t) {
		if s.test || s.generated || forTests(s.pkg) || strings.HasPrefix(s.pkg, "proof/") {
			continue
		}
		found := selectors(s.file, module+"internal/clock")
		found = slices.DeleteFunc(found, func(n *ast.SelectorExpr) bool { return n.Sel.Name != "Sleep" })
		for _, one := range selectors(s.file, "time") {
			if slices.Contains(timers, one.Sel.Name) {
				found = append(found, one)
			}
		}
		if len(found) == 0 {
			continue
		}
		used[s.pkg] = true
		if _, allowed := waits[s.pkg]; !allowed {
			t.Errorf("%s: %s waits by a timer: make a pass of it, a line of a table that package loop runs", s.at(found[0]), s.pkg)
		}
	}
	for pkg, reason := range waits {
		if !used[pkg] {
			t.Errorf("%s may wait by a timer (%s) and does not: take it off the list", pkg, reason)
		}
	}
}
