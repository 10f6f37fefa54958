package schedctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/scheduler-service/scheduler/api/client"
)

const (
	// pageSize is how many items one request of a list asks for.
	pageSize = 100
	// listDefault is how many items a list shows unless asked for more.
	listDefault = 50
	// maxFile bounds a file that is read, as the API bounds a body.
	maxFile = 8 << 20
)

// group makes the command of a noun.
func (s *session) group(g group) *cobra.Command {
	parent := &cobra.Command{
		Use: g.name, Short: g.about,
		Args: known(g.name),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	for _, one := range g.calls {
		parent.AddCommand(s.command(one))
	}
	if g.name == "executions" {
		parent.AddCommand(s.waitCommand(), s.logsCommand())
	}
	return parent
}

// command makes the command of a call.
func (s *session) command(c call) *cobra.Command {
	wanted := strings.Fields(c.use)[1:]
	command := &cobra.Command{
		Use: c.use, Short: c.about,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != len(wanted) {
				return misuse("schedctl %s wants %d arguments (%s), not %d", strings.Fields(c.use)[0], len(wanted), strings.Join(wanted, " "), len(args))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error { return s.do(command, c, args) },
	}
	flags := command.Flags()
	for _, name := range c.query {
		flags.String(flagOf(name), "", "only what fits, or how: "+name+" of the contract")
	}
	for _, name := range c.fields {
		flags.String(flagOf(name), "", name+" of the contract")
	}
	for _, name := range c.values {
		flags.String(flagOf(name), "", name+" of the contract, as JSON")
	}
	if c.file {
		flags.StringP("file", "f", "", "the file, YAML or JSON; - reads from the standard input")
	}
	if c.key {
		flags.String("idempotency-key", "", "a key of your own: the same call with it is made once")
	}
	if c.match {
		flags.String("if-match", "", "refuse unless the object still has this ETag")
	}
	if c.items {
		flags.Int("limit", listDefault, "show at most so many; 0: all")
		flags.Bool("watch", false, "go on showing what is new or has another status")
	}
	if c.wait != nil {
		waitFlags(command)
	}
	return command
}

// do makes a call and shows its answer.
func (s *session) do(command *cobra.Command, c call, args []string) error {
	show, err := s.printer()
	if err != nil {
		return err
	}
	r, err := s.requestOf(command, c, args)
	if err != nil {
		return err
	}
	service, err := s.reach()
	if err != nil {
		return err
	}
	ctx := command.Context()
	if c.items {
		limit, _ := command.Flags().GetInt("limit") // it is defined above
		if watch, _ := command.Flags().GetBool("watch"); watch {
			return s.watch(ctx, service, r, limit, c.columns)
		}
		answer, err := list(ctx, service, r, limit)
		if err != nil {
			return err
		}
		return show(answer, c.columns)
	}
	text, err := service.Call(ctx, r.method, r.path, r.query, r.header, r.body)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(text)) == 0 { // 204
		fmt.Fprintln(s.env.Err, "done")
		return nil
	}
	answer, err := decode(text)
	if err != nil {
		return err
	}
	if wait, _ := command.Flags().GetBool("wait"); !wait {
		return show(answer, c.columns)
	}
	if answer, err = s.await(command, service, c, args, answer); err != nil {
		return err
	}
	if err := show(answer, c.columns); err != nil {
		return err
	}
	if !endedWell(answer) {
		return code{exit: exitEnded}
	}
	return nil
}

// request is what a command asks of the service.
type request struct {
	method, path string
	query        url.Values
	header       http.Header
	body         []byte
}

// argument is a name in braces in a path.
var argument = regexp.MustCompile(`\{[a-zA-Z]+\}`)

// requestOf reads the arguments and flags of a command.
func (s *session) requestOf(command *cobra.Command, c call, args []string) (request, error) {
	r := request{method: c.method, query: url.Values{}, header: http.Header{}}
	r.path = argument.ReplaceAllStringFunc(base+c.path, func(string) string {
		next := url.PathEscape(args[0])
		args = args[1:]
		return next
	})
	flag := func(name string) string { return command.Flag(flagOf(name)).Value.String() }
	for _, name := range c.query {
		if value := flag(name); value != "" {
			r.query.Set(name, value)
		}
	}
	if c.match && flag("ifMatch") != "" {
		r.header.Set("If-Match", flag("ifMatch"))
	}
	if c.key {
		key := client.Key()
		if own := flag("idempotencyKey"); own != "" {
			key = &own
		}
		r.header.Set("Idempotency-Key", *key)
	}
	var err error
	switch {
	case c.media != "":
		r.body, err = s.read(flag("file"))
	case c.file:
		r.body, err = s.readFile(flag("file"))
	case c.last != "":
		r.body, err = json.Marshal(map[string]string{c.last: args[0]})
	case len(c.fields)+len(c.values) > 0:
		r.body, err = bodyOf(c, flag)
	}
	if r.body != nil {
		r.header.Set("Content-Type", cmp.Or(c.media, "application/json"))
		if c.method == http.MethodPatch {
			r.header.Set("Content-Type", "application/merge-patch+json")
		}
	}
	return r, err
}

// bodyOf is the body that the flags of a command make; nil where none is set.
func bodyOf(c call, flag func(string) string) ([]byte, error) {
	body := map[string]json.RawMessage{}
	for _, name := range c.fields {
		if value := flag(name); value != "" {
			body[name], _ = json.Marshal(value) // a text always encodes
		}
	}
	for _, name := range c.values {
		value := flag(name)
		if value == "" {
			continue
		}
		if !json.Valid([]byte(value)) {
			return nil, misuse("--%s wants JSON, and this is none: %s", flagOf(name), value)
		}
		body[name] = json.RawMessage(value)
	}
	if len(body) == 0 {
		return nil, nil
	}
	return json.Marshal(body)
}

// readFile reads YAML or JSON and answers JSON.
func (s *session) readFile(name string) ([]byte, error) {
	text, err := s.read(name)
	if err != nil {
		return nil, err
	}
	body, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, misuse("%s: %w", name, err)
	}
	return body, nil
}

// list reads up to limit items page by page; 0 reads all.
func list(ctx context.Context, service *client.Client, r request, limit int) (any, error) {
	var items []any
	for {
		size := pageSize
		if limit > 0 {
			size = min(size, limit-len(items))
		}
		r.query.Set("limit", fmt.Sprint(size))
		text, err := service.Call(ctx, r.method, r.path, r.query, r.header, nil)
		if err != nil {
			return nil, err
		}
		page, err := decode(text)
		if err != nil {
			return nil, err
		}
		some, _ := page.(map[string]any)["items"].([]any)
		items = append(items, some...)
		next, more := page.(map[string]any)["nextCursor"].(string)
		if !more || limit > 0 && len(items) >= limit {
			return map[string]any{"items": items, "nextCursor": page.(map[string]any)["nextCursor"]}, nil
		}
		r.query.Set("cursor", next)
	}
}

// decode reads an answer and keeps numbers as they were written.
func decode(text []byte) (any, error) {
	reader := json.NewDecoder(bytes.NewReader(text))
	reader.UseNumber()
	var answer any
	if err := reader.Decode(&answer); err != nil {
		return nil, fmt.Errorf("the answer is not JSON; is this the address of the service? %w", err)
	}
	return answer, nil
}

// flagOf is the flag of a name of the contract: createdFrom is --created-from.
func flagOf(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
