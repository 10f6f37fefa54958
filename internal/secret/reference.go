package secret

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// opening is how a reference begins: {{secret:name}}.
const opening = "{{secret:"

// reference is a whole one.
var reference = regexp.MustCompile(`\{\{secret:([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})\}\}`)

// holders are the members of a configuration that may hold references: what
// is sent, not what decides where to and how.
var holders = []string{"url", "headers", "body", "parameters", "environment"}

// Refers tells, without reading it, whether a JSON value may hold references.
func Refers(raw json.RawMessage) bool { return bytes.Contains(raw, []byte(opening)) }

// use is a secret that is named, and where.
type use struct{ name, path string }

// references lists the secrets that a JSON value names, by name, and what is
// wrong with how it does, at paths below path. Only the members within may name
// some; nil: all of them.
func references(path string, raw json.RawMessage, within []string) (uses []use, faults []fault.Field) {
	if !Refers(raw) {
		return nil, nil
	}
	wrong := func(at spot, rule, message string) {
		faults = append(faults, fault.Field{Path: path + "." + at.path, Rule: rule, Message: message})
	}
	_, err := rewrite(raw, func(at spot, text string) string {
		found := reference.FindAllStringSubmatch(text, -1)
		for _, match := range found {
			uses = append(uses, use{name: match[1], path: path + "." + at.path})
		}
		switch {
		case strings.Count(text, opening) > len(found):
			wrong(at, "reference", "holds {{secret: without a name of 1 to 64 letters, digits, _, . and - and }} after it")
		case len(found) > 0 && within != nil && !slices.Contains(within, at.top):
			wrong(at, "place", "may not refer to a secret; these may: "+strings.Join(within, ", "))
		case len(found) > 0 && within != nil && at.path == "url" && !pastHost(text):
			wrong(at, "place", "may refer to a secret in the path and in the query only")
		}
		return text
	})
	if err != nil {
		return nil, nil // what reads the configuration itself says so
	}
	slices.SortFunc(uses, func(a, b use) int { return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.path, b.path)) })
	slices.SortFunc(faults, func(a, b fault.Field) int { return strings.Compare(a.Path, b.Path) })
	return uses, faults
}

// namesOf lists each name once.
func namesOf(uses []use) []string {
	names := []string{}
	for _, u := range uses {
		names = append(names, u.name)
	}
	return slices.Compact(names)
}

// pastHost tells whether all references of a URL stand in its path and query.
func pastHost(text string) bool {
	_, rest, ok := strings.Cut(text, "://")
	if !ok {
		return false
	}
	begin := strings.IndexAny(rest, "/?")
	if begin < 0 {
		return false
	}
	host, rest := rest[:begin], rest[begin:]
	rest, fragment, _ := strings.Cut(rest, "#")
	return !strings.Contains(host, opening) && !strings.Contains(fragment, opening) && strings.Contains(rest, opening)
}

// fill puts the texts of secrets where they are referred to. In a URL they are
// escaped, so that none can change its host, path or parameters otherwise.
func fill(raw json.RawMessage, texts map[string]keyring.Text) (json.RawMessage, error) {
	return rewrite(raw, func(at spot, text string) string {
		if at.path != "url" {
			return replace(text, texts, func(s string) string { return s })
		}
		path, query, found := strings.Cut(text, "?")
		path = replace(path, texts, func(s string) string {
			return strings.ReplaceAll(url.PathEscape(s), "%2F", "/") // a hook's path is often the secret
		})
		if !found {
			return path
		}
		return path + "?" + replace(query, texts, url.QueryEscape)
	})
}

func replace(text string, texts map[string]keyring.Text, escape func(string) string) string {
	if !strings.Contains(text, opening) {
		return text
	}
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		name := found[len(opening) : len(found)-len("}}")]
		if value, ok := texts[name]; ok {
			return escape(value.Reveal())
		}
		return found
	})
}
