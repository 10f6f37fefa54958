package telemetry

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
)

// dots stands where something secret was.
const dots = "......"

// secretNames are what the name of a secret contains, without the separators
// that people put into names.
var secretNames = []string{
	"authorization", "password", "passwd", "passphrase", "secret", "token",
	"cookie", "apikey", "credential", "privatekey", "signingkey",
}

// secretForms find secrets that give themselves away inside a longer text,
// such as the error of a client library; what the first group holds stays.
var secretForms = []*regexp.Regexp{
	// the password of a URL, up to the last @ before the path
	regexp.MustCompile(`(://[^/\s:@?#]*:)[^\s/]*@`),
	// password=…, in a query or a connection string
	regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret|token|api_?key)=)[^\s&;,"')]+`),
	// Authorization: Bearer …
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[a-z0-9._~+/=-]{16,}`),
	// a JWT, and an API key of ours, wherever they stand
	regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),
	regexp.MustCompile(`()\bsk_[a-z]+_[A-Za-z0-9_]{16,}`),
}

// redact is slog's ReplaceAttr: it takes out what is secret by its name, by
// the name of a group around it, or by its form.
func redact(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) == 0 && (attr.Key == slog.TimeKey || attr.Key == slog.LevelKey) {
		return attr
	}
	if secretName(attr.Key) || slices.ContainsFunc(groups, secretName) {
		return slog.String(attr.Key, dots)
	}
	switch attr.Value.Kind() {
	case slog.KindString:
		return slog.String(attr.Key, redactText(attr.Value.String()))
	case slog.KindAny:
		return slog.Any(attr.Key, redactAny(attr.Value.Any()))
	default:
		return attr
	}
}

func secretName(name string) bool {
	plain := strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(name))
	return slices.ContainsFunc(secretNames, func(part string) bool { return strings.Contains(plain, part) })
}

func redactText(text string) string {
	for i, form := range secretForms {
		instead := "${1}" + dots
		if i == 0 {
			instead += "@"
		}
		text = form.ReplaceAllString(text, instead)
	}
	return text
}

// redactAny turns a value that slog would hand to encoding/json into what
// that makes of it, without its secrets.
func redactAny(value any) any {
	if err, ok := value.(error); ok {
		return redactText(err.Error())
	}
	text, err := json.Marshal(value)
	if err != nil {
		return redactText(fmt.Sprintf("%+v", value))
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return dots
	}
	return redactTree(tree)
}

func redactTree(tree any) any {
	switch tree := tree.(type) {
	case string:
		return redactText(tree)
	case []any:
		for i := range tree {
			tree[i] = redactTree(tree[i])
		}
	case map[string]any:
		for name := range tree {
			if secretName(name) {
				tree[name] = dots
				continue
			}
			tree[name] = redactTree(tree[name])
		}
	}
	return tree
}
