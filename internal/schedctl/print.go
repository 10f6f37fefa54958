package schedctl

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/ohler55/ojg/jp"
	"sigs.k8s.io/yaml"
)

// cell bounds the runes of one cell of a table.
const cell = 60

// printer is the way of showing that --output asks for.
func (s *session) printer() (func(answer any, columns []column) error, error) {
	zone := s.env.Zone
	if s.utc {
		zone = time.UTC
	}
	expression, isPath := strings.CutPrefix(s.output, "jsonpath=")
	switch {
	case s.output == "table":
		return func(answer any, columns []column) error { return table(s.env.Out, zone, answer, columns) }, nil
	case s.output == "json":
		return func(answer any, _ []column) error { return writeJSON(s.env.Out, answer) }, nil
	case s.output == "yaml":
		return func(answer any, _ []column) error { return writeYAML(s.env.Out, answer) }, nil
	case isPath:
		path, err := jp.ParseString(expression)
		if err != nil {
			return nil, misuse("--output jsonpath: %w", err)
		}
		return func(answer any, _ []column) error { return writePath(s.env.Out, path, answer) }, nil
	}
	return nil, misuse("--output %q is not one of table, json, yaml, jsonpath=EXPRESSION", s.output)
}

func writeJSON(out io.Writer, answer any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(answer)
}

func writeYAML(out io.Writer, answer any) error {
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	if text, err = yaml.JSONToYAML(text); err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// writePath writes what an expression finds, one a line: texts as they are, others as
// JSON.
func writePath(out io.Writer, path jp.Expr, answer any) error {
	for _, found := range path.Get(answer) {
		if text, ok := found.(string); ok {
			fmt.Fprintln(out, text)
			continue
		}
		text, err := json.Marshal(found)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, string(text))
	}
	return nil
}

// table writes the items of a list below one another, and anything else as the names
// and values of its fields.
func table(out io.Writer, zone *time.Location, answer any, columns []column) error {
	object, _ := answer.(map[string]any)
	items, isList := object["items"].([]any)
	if !isList || len(columns) == 0 {
		return fields(out, zone, answer)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	fmt.Fprintln(w, strings.Join(titles, "\t"))
	for _, item := range items {
		row := make([]string, len(columns))
		for i, c := range columns {
			row[i] = short(text(zone, first(item, c.path)))
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if next, _ := object["nextCursor"].(string); next != "" {
		fmt.Fprintln(out, "(there are more; --limit 0 shows all)")
	}
	return nil
}

// first is the first value that is there of those that path names, divided by "|".
func first(item any, path string) any {
	object, _ := item.(map[string]any)
	for name := range strings.SplitSeq(path, "|") {
		if value := object[name]; value != nil && value != "" {
			return value
		}
	}
	return nil
}

// fields writes an object field by field, id and name first, the others in the order of
// their names. Objects and lists within it are YAML, moved to the right.
func fields(out io.Writer, zone *time.Location, answer any) error {
	object, ok := answer.(map[string]any)
	if !ok {
		return writeYAML(out, answer)
	}
	names := make([]string, 0, len(object))
	for name, value := range object {
		if value != nil {
			names = append(names, name)
		}
	}
	place := func(name string) string {
		switch name {
		case "id":
			return "\x00"
		case "name":
			return "\x01"
		}
		return name
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(place(a), place(b)) })
	for _, name := range names {
		value := object[name]
		switch value.(type) {
		case map[string]any, []any:
			inner, err := json.Marshal(value)
			if err != nil {
				return err
			}
			block, err := yaml.JSONToYAML(inner)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s:\n", plain(name))
			for line := range strings.Lines(string(block)) {
				fmt.Fprintf(out, "  %s\n", plain(strings.TrimSuffix(line, "\n")))
			}
		default:
			fmt.Fprintf(out, "%s: %s\n", plain(name), text(zone, value))
		}
	}
	return nil
}

// text is a value for a person: times in a zone that is named, lists with commas.
func text(zone *time.Location, value any) string {
	switch v := value.(type) {
	case nil:
		return "-"
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil && len(v) >= len("2006-01-02T15:04:05Z") {
			return at.In(zone).Format("2006-01-02 15:04:05 MST")
		}
		return plain(v)
	case []any:
		parts := make([]string, len(v))
		for i, part := range v {
			parts[i] = text(zone, part)
		}
		return strings.Join(parts, ",")
	case map[string]any:
		inner, err := json.Marshal(v)
		if err != nil {
			return "?"
		}
		return plain(string(inner))
	default:
		return plain(fmt.Sprint(v))
	}
}

// short cuts a cell.
func short(s string) string {
	if s == "" {
		return "-"
	}
	if runes := []rune(s); len(runes) > cell {
		return string(runes[:cell-1]) + "…"
	}
	return s
}

// plain is a text without what would move a terminal's cursor or turn its direction:
// names and messages are those of strangers.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == unicode.ReplacementChar {
			return '\uFFFD'
		}
		return r
	}, s)
}
