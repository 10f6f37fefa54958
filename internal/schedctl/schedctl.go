// Package schedctl is the command line of the API.
//
// It owns how a call of the contract looks on a terminal: its name, its flags, the table
// that its answer becomes, and the exit code. A call is one row of commands.go; a test
// holds each row against the contract. It knows nothing that the API does not say, and
// stores nothing but profiles.
package schedctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scheduler-service/scheduler/api/client"
	"github.com/scheduler-service/scheduler/internal/version"
)

// The exit codes. A script branches on them; the text is for people.
const (
	exitDone       = 0
	exitFailed     = 1  // the service refused, or was not reached
	exitDiffers    = 2  // a plan or a comparison found differences
	exitEnded      = 3  // what was waited for ended, and not well
	exitNotFound   = 4  // there is no such object
	exitNotAllowed = 5  // the token is not good, or not good for this
	exitLimit      = 6  // a limit is met; later it may go
	exitMisuse     = 64 // wrong arguments
)

// Env is the world around the program.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	// Lookup reads a variable of the environment.
	Lookup func(name string) (string, bool)
	// Home is the directory of the profiles.
	Home string
	// Terminal: Err is one, and a bar may move there.
	Terminal bool
	// Zone is the one in which tables show times; nil: UTC.
	Zone *time.Location
}

// code is an end that has an exit code of its own. A nil cause says nothing more.
type code struct {
	exit  int
	cause error
}

func (c code) Error() string {
	if c.cause == nil {
		return ""
	}
	return c.cause.Error()
}

func (c code) Unwrap() error { return c.cause }

// misuse is an error of the arguments.
func misuse(format string, args ...any) error {
	return code{exitMisuse, fmt.Errorf(format, args...)}
}

// Main runs the program and returns its exit code.
func Main(ctx context.Context, args []string, env Env) int {
	if env.Zone == nil {
		env.Zone = time.UTC
	}
	s := &session{env: env}
	root := s.root()
	root.SetArgs(args)
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	var own code
	if errors.As(err, &own) && own.cause == nil {
		return own.exit
	}
	s.complain(err)
	return exitOf(err)
}

func exitOf(err error) int {
	var own code
	var refusal *client.Error
	switch {
	case errors.As(err, &own):
		return own.exit
	case !errors.As(err, &refusal):
		return exitFailed
	case refusal.Status == http.StatusNotFound:
		return exitNotFound
	case refusal.Status == http.StatusUnauthorized || refusal.Status == http.StatusForbidden:
		return exitNotAllowed
	case refusal.Status == http.StatusTooManyRequests || refusal.Limit != nil:
		return exitLimit
	default:
		return exitFailed
	}
}

// complain writes an error as a person reads it: what, then each field, then the way
// to the log.
func (s *session) complain(err error) {
	var refusal *client.Error
	if !errors.As(err, &refusal) {
		fmt.Fprintf(s.env.Err, "schedctl: %s\n", plain(err.Error()))
		return
	}
	fmt.Fprintf(s.env.Err, "schedctl: %s (%s, status %d)\n", plain(refusal.Message), refusal.Code, refusal.Status)
	for _, d := range refusal.Details {
		if len(refusal.Details) == 1 && strings.Contains(refusal.Message, d.Message) {
			break // it stands above
		}
		fmt.Fprintf(s.env.Err, "  %s: %s\n", plain(d.Field), plain(d.Message))
	}
	if refusal.RequestID != "" {
		fmt.Fprintf(s.env.Err, "  request %s\n", plain(refusal.RequestID))
	}
}

// session is one run of the program.
type session struct {
	env     Env
	url     string
	token   string
	profile string
	output  string
	utc     bool
}

func (s *session) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "schedctl",
		Short: "Works with jobs and their executions from a terminal",
		Long: `Works with jobs and their executions from a terminal.

The address and the token come from --url and --token, from SCHEDULER_URL and
SCHEDULER_TOKEN, or from a profile ("schedctl profile set").

Exit codes: 0 done, 1 refused or not reached, 2 a plan or a comparison found
differences, 3 what was waited for ended and not well, 4 not found, 5 not
allowed, 6 a limit is met, 64 wrong arguments.`,
		Version:       version.String(),
		SilenceErrors: true, SilenceUsage: true,
		Args: known("schedctl"),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&s.url, "url", "", "address of the API, such as http://localhost:3009")
	flags.StringVar(&s.token, "token", "", "a JWT or an API key; the environment keeps it out of the list of processes")
	flags.StringVar(&s.profile, "profile", "", "the profile to use (default: the one chosen last)")
	flags.StringVarP(&s.output, "output", "o", "table", "table, json, yaml, or jsonpath=EXPRESSION")
	flags.BoolVar(&s.utc, "utc", false, "show times in UTC instead of the zone of this terminal")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return code{exitMisuse, err} })
	for _, g := range groups {
		root.AddCommand(s.group(g))
	}
	root.AddCommand(s.setCommands()...)
	root.AddCommand(s.profileCommand(), s.doctor(), s.importCommand())
	return root
}

// known refuses what stands where a command should.
func known(parent string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return misuse("%q is no command of %s; %s --help lists them", args[0], parent, c.CommandPath())
		}
		return nil
	}
}

// reach makes the client of the API.
func (s *session) reach() (*client.Client, error) {
	p, err := s.target()
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: p.URL, Token: p.Token})
}
