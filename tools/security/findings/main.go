// Command findings runs gosec over the product and fails for every finding that nobody
// has judged. It uses gosec's rules and not its command, which brings the clients of
// four language models along. `findings DIR` is told the root of the repository.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/securego/gosec/v2"
	"github.com/securego/gosec/v2/analyzers"
	"github.com/securego/gosec/v2/issue"
	"github.com/securego/gosec/v2/rules"
)

// judged is what gosec finds and what is no fault, with the reason. in is the beginning
// of a path; an entry that fits nothing is an error too.
var judged = []struct{ rule, in, reason string }{
	{"G101", "internal/fault/code.go", "names of error codes, one of which speaks of a secret"},
	{"G102", "internal/devstack/port.go", "looks for a port that is free on every address"},
	{"G103", "internal/app/confirm.go", "asks the terminal, by the call that the system has for it"},
	{"G103", "internal/executor/sandbox", "the last steps before another program begins may allocate nothing, so they are calls of the system"},
	{"G103", "internal/executor/command", "reads what waitid of the system answers, for which no library has a type"},
	{"G104", "internal/app/worker.go", "processes that run nothing are ended, with this one"},
	{"G104", "internal/schedule", "a hash never refuses bytes, as its documentation says"},
	{"G115", "", "numbers are bounded where they come in (configuration, contract, schema), long before they are narrowed for a column"},
	{"G124", "internal/rest/sign_in.go", "setCookie of session.go adds what these cookies lack"},
	{"G101", "internal/identity/signin/signintest/issuer.go", "the client's secret at an issuer that tests make"},
	{"G124", "internal/rest/session.go", "the cookie of a page without encryption, on this machine, could not be Secure; behind encryption it is"},
	{"G204", "internal/devstack", "starts the servers that it finds on this machine, of which no caller says anything"},
	{"G301", "internal/executor/command", "a control group, which everybody may read"},
	{"G301", "internal/devstack", "another account, which PostgreSQL runs as, has to reach what is in them"},
	{"G302", "internal/executor/command", "programs of other accounts pass through the directory and cannot list it; a directory that is removed has to be read first"},
	{"G302", "internal/devstack", "the same of a file"},
	{"G304", "internal/app", "files that the operator names, or of DATA_DIR"},
	{"G304", "internal/certificate", "files that the operator names"},
	{"G304", "internal/devstack", "files of its own folder, and of /proc"},
	{"G304", "internal/executor/command", "files of /proc and of control groups, and directories that the operator names"},
	{"G304", "internal/schedctl", "files that the user of the command line names"},
	{"G304", "internal/rest/contract/responses", "a generator, run by developers"},
	{"G125", "api/client", "the caller's own path; a command line escapes the ids in it"},
	{"G306", "internal/devstack", "another account, which PgBouncer runs as, reads it, and it holds no secret"},
	{"G306", "internal/rest/contract/responses", "source code, which everybody may read"},
	{"G402", "internal/app/guide.go", "asks this very process whether it is ready, and sends nothing"},
	{"G402", "deploy/probe", "the same"},
	{"G404", "internal/loop", "jitter, which nobody gains by guessing"},
	{"G404", "internal/breaker", "the same"},
	{"G404", "internal/callback", "the same"},
	{"G404", "internal/dispatch", "where a search begins, which nobody gains by guessing"},
	{"G404", "internal/executor/command", "a name that differs from others on this machine"},
	{"G404", "internal/executor/runner/guest", "Math.random of a script, which promises no secrecy"},
	{"G404", "internal/maintenance", "where a sample begins, which nobody gains by guessing"},
	{"G404", "internal/monitor/intake", "jitter, which nobody gains by guessing"},
	{"G404", "internal/postgres", "the same"},
	{"G404", "internal/queue", "the same"},
	{"G404", "internal/worker", "the same"},
	{"G602", "internal/notification", "the index is that of the loop over the same list"},
	{"G703", "internal/rest/contract/responses", "a generator, run by developers"},
	{"G704", "api/client", "calls the address that its user gives it"},
	{"G704", "deploy/probe", "calls the address that the operator gives it"},
	{"G704", "internal/egress", "calls what tenants name, which is its task: its own checks decide about addresses, and have their tests"},
}

// left are folders that no process is built from.
var left = []string{"tools", filepath.Join("internal", "proof"), "api/typescript"}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "findings:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("give the root of the repository")
	}
	root, err := filepath.Abs(os.Args[1])
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	found, err := scan(root)
	if err != nil {
		return err
	}
	used, unjudged := make([]bool, len(judged)), 0
	for _, f := range found {
		path, _ := filepath.Rel(root, f.File)
		at := slices.IndexFunc(judged, func(j struct{ rule, in, reason string }) bool {
			return j.rule == f.RuleID && strings.HasPrefix(filepath.ToSlash(path), j.in)
		})
		if at >= 0 {
			used[at] = true
			continue
		}
		unjudged++
		fmt.Printf("%s:%s: %s: %s\n", path, f.Line, f.RuleID, f.What)
	}
	for i, ok := range used {
		if !ok {
			unjudged++
			fmt.Printf("tools/security/findings: nothing fits %s in %q any more: take it off the list\n", judged[i].rule, judged[i].in)
		}
	}
	if unjudged > 0 {
		return fmt.Errorf("%d to mend, or to judge in tools/security/findings", unjudged)
	}
	fmt.Printf("gosec: %d findings, each judged before\n", len(found))
	return nil
}

func scan(root string) ([]*issue.Issue, error) {
	a := gosec.NewAnalyzer(gosec.NewConfig(), false, true, false, runtime.GOMAXPROCS(0), log.New(io.Discard, "", 0))
	of := rules.Generate(false)
	a.LoadRules(of.RulesInfo())
	a.LoadAnalyzers(analyzers.Generate(false).AnalyzersInfo())
	var without []*regexp.Regexp
	for _, dir := range append(left, "node_modules") {
		without = append(without, gosec.ExcludedDirsRegExp([]string{dir})...)
	}
	paths, err := gosec.PackagePaths(filepath.Join(root, "..."), without)
	if err != nil {
		return nil, err
	}
	if err := a.Process(nil, paths...); err != nil {
		return nil, err
	}
	found, _, failed := a.Report()
	for file, errs := range failed {
		return nil, fmt.Errorf("%s: %v", file, errs)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("gosec found nothing at all, so it did not look")
	}
	return found, nil
}
