package schedctl

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// profile is an installation and who asks there.
type profile struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// profiles are what the program keeps between two runs, in a file that only its owner
// reads.
type profiles struct {
	Chosen string             `json:"chosen"`
	Known  map[string]profile `json:"profiles"`
}

func (s *session) profilesFile() string { return filepath.Join(s.env.Home, "profiles.yaml") }

func (s *session) readProfiles() (profiles, error) {
	all := profiles{Known: map[string]profile{}}
	text, err := os.ReadFile(s.profilesFile())
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return all, err
	}
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return all, fmt.Errorf("%s: %w", s.profilesFile(), err)
	}
	if all.Known == nil {
		all.Known = map[string]profile{}
	}
	return all, nil
}

// writeProfiles replaces the file as a whole, so that none is ever half written.
func (s *session) writeProfiles(all profiles) error {
	text, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.env.Home, 0o700); err != nil {
		return err
	}
	next := s.profilesFile() + ".new"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, s.profilesFile())
}

// target is where to ask and as whom: flags before the environment before the profile.
func (s *session) target() (profile, error) {
	env := func(name string) string { value, _ := s.env.Lookup(name); return value }
	p := profile{URL: cmp.Or(s.url, env("SCHEDULER_URL")), Token: cmp.Or(s.token, env("SCHEDULER_TOKEN"))}
	if p.URL != "" && p.Token != "" {
		return p, nil
	}
	all, err := s.readProfiles()
	if err != nil {
		return p, err
	}
	name := cmp.Or(s.profile, env("SCHEDULER_PROFILE"), all.Chosen)
	kept, known := all.Known[name]
	if !known && (s.profile != "" || name != "") {
		return p, misuse("there is no profile %q; schedctl profile list shows them", name)
	}
	p = profile{URL: cmp.Or(p.URL, kept.URL), Token: cmp.Or(p.Token, kept.Token)}
	if p.URL == "" || p.Token == "" {
		return p, misuse("where is the service, and who asks? Set SCHEDULER_URL and SCHEDULER_TOKEN, or: schedctl profile set NAME --url URL --token TOKEN")
	}
	return p, nil
}

func (s *session) profileCommand() *cobra.Command {
	parent := &cobra.Command{Use: "profile", Short: "Keep addresses and tokens under names", Args: known("profile"), RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	parent.AddCommand(
		&cobra.Command{
			Use: "set NAME", Short: "Keep --url and --token under a name, and choose it", Args: exactly(1),
			RunE: func(_ *cobra.Command, args []string) error { return s.setProfile(args[0]) },
		},
		&cobra.Command{
			Use: "use NAME", Short: "Choose a profile", Args: exactly(1),
			RunE: func(_ *cobra.Command, args []string) error { return s.useProfile(args[0]) },
		},
		&cobra.Command{
			Use: "list", Short: "List profiles; the chosen one has a star", Args: exactly(0),
			RunE: func(*cobra.Command, []string) error { return s.listProfiles() },
		},
		&cobra.Command{
			Use: "delete NAME", Short: "Forget a profile", Args: exactly(1),
			RunE: func(_ *cobra.Command, args []string) error { return s.deleteProfile(args[0]) },
		},
	)
	return parent
}

func (s *session) setProfile(name string) error {
	if s.url == "" || s.token == "" {
		return misuse("a profile needs --url and --token")
	}
	all, err := s.readProfiles()
	if err != nil {
		return err
	}
	all.Known[name], all.Chosen = profile{URL: s.url, Token: s.token}, name
	return s.writeProfiles(all)
}

func (s *session) useProfile(name string) error {
	all, err := s.readProfiles()
	if err != nil {
		return err
	}
	if _, known := all.Known[name]; !known {
		return misuse("there is no profile %q; schedctl profile list shows them", name)
	}
	all.Chosen = name
	return s.writeProfiles(all)
}

func (s *session) listProfiles() error {
	all, err := s.readProfiles()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all.Known)) {
		star := " "
		if name == all.Chosen {
			star = "*"
		}
		fmt.Fprintf(s.env.Out, "%s %s  %s\n", star, plain(name), plain(all.Known[name].URL))
	}
	return nil
}

func (s *session) deleteProfile(name string) error {
	all, err := s.readProfiles()
	if err != nil {
		return err
	}
	if _, known := all.Known[name]; !known {
		return misuse("there is no profile %q", name)
	}
	delete(all.Known, name)
	if all.Chosen == name {
		all.Chosen = ""
	}
	return s.writeProfiles(all)
}

// exactly wants so many arguments.
func exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return misuse("schedctl %s: %d arguments, not %d", c.Use, n, len(args))
		}
		return nil
	}
}
