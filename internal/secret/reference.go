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

// How the placeholders begin: {{secret:name}} refers to a secret, {{run:attempt}} is a
// value of the run.
const (
	opening    = "{{secret:"
	runOpening = "{{run:"
)

var (
	// reference is a whole one to a secret.
	reference = regexp.MustCompile(`\{\{secret:([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})\}\}`)
	// runValue is a whole one of the run.
	runValue = regexp.MustCompile(`\{\{run:(` + strings.Join(runNames, "|") + `)\}\}`)
	// placeholder is either.
	placeholder = regexp.MustCompile(reference.String() + "|" + runValue.String())
)

// runNames are the values of a run that a configuration may use.
var runNames = []string{"attempt", "executionId", "jobId", "scheduledAt", "tenantId"}

// holders are the members of a configuration that may hold placeholders: what
// is sent, not what decides where to and how.
var holders = []string{"url", "headers", "body", "parameters", "environment", "signingKeys"}

// Refers tells, without reading it, whether a JSON value may hold references.
func Refers(raw json.RawMessage) bool { return bytes.Contains(raw, []byte(opening)) }

// variable tells, without reading it, whether a JSON value may hold placeholders.
func variable(raw json.RawMessage) bool {
	return Refers(raw) || bytes.Contains(raw, []byte(runOpening))
}

// use is a secret that is named, and where.
type use struct{ name, path string }

// references lists the secrets that a JSON value names, by name, and what is
// wrong with how it does, at paths below path. Only the members within may name
// some; nil: all of them.
func references(path string, raw json.RawMessage, within []string) (uses []use, faults []fault.Field) {
	if !variable(raw) {
		return nil, nil
	}
	wrong := func(at spot, rule, message string) {
		faults = append(faults, fault.Field{Path: path + "." + at.path, Rule: rule, Message: message})
	}
	_, err := rewrite(raw, func(at spot, text string) string {
		found, values := reference.FindAllStringSubmatch(text, -1), len(runValue.FindAllString(text, -1))
		for _, match := range found {
			uses = append(uses, use{name: match[1], path: path + "." + at.path})
		}
		placed := len(found)+values > 0 && within != nil
		switch {
		case strings.Count(text, opening) > len(found):
			wrong(at, "reference", "holds {{secret: without a name of 1 to 64 letters, digits, _, . and - and }} after it")
		case strings.Count(text, runOpening) > values:
			wrong(at, "reference", "holds {{run: without one of these and }} after it: "+strings.Join(runNames, ", "))
		case placed && !slices.Contains(within, at.top):
			wrong(at, "place", "may not hold {{secret:…}} or {{run:…}}; these may: "+strings.Join(within, ", "))
		case placed && at.path == "url" && !pastHost(text):
			wrong(at, "place", "may hold {{secret:…}} and {{run:…}} in the path and in the query only")
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

// pastHost tells whether all placeholders of a URL stand in its path and query.
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
	return !placeholder.MatchString(host) && !placeholder.MatchString(fragment) && placeholder.MatchString(rest)
}

// fill puts secrets and values of the run where their placeholders stand. In a URL they
// are escaped, so that none can change its host, path or parameters otherwise. A
// placeholder in the text of a secret stays as it is.
func fill(raw json.RawMessage, texts map[string]keyring.Text) (json.RawMessage, error) {
	if !variable(raw) {
		return raw, nil
	}
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
	if !strings.Contains(text, "{{") {
		return text
	}
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		name := strings.TrimSuffix(strings.TrimPrefix(found, opening), "}}") // of a secret; of the run: {{run:name
		if value, ok := texts[name]; ok {
			return escape(value.Reveal())
		}
		return found
	})
}
