package secret

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// Names of headers, parameters and members whose values are credentials: those
// that contain one of the first, whatever their case and separators, and those
// that are one of the second.
var (
	tellingParts = []string{
		"authorization", "password", "passwd", "passphrase", "secret", "token", "cookie", "apikey", "credential",
		"privatekey", "signingkey", "accesskey", "signature", "subscriptionkey", "functionskey", "sharedkey", "masterkey", "jwt", "sessionid",
	}
	tellingNames = []string{"key", "sig", "pwd", "pass", "auth", "xauth", "code"}
)

// schemes may stand before a reference in a header of credentials.
var schemes = []string{"", "bearer", "basic", "token", "apikey", "key", "digest", "negotiate"}

// telling reports whether what a name holds is a credential. A short name
// tells only in a URL and in headers: a member "code" is anything.
func telling(name string, short bool) bool {
	plain := strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(name))
	return slices.ContainsFunc(tellingParts, func(part string) bool { return strings.Contains(plain, part) }) ||
		short && slices.Contains(tellingNames, plain)
}

// refersOnly tells whether a text is placeholders and nothing that is secret
// itself, so that it may be shown.
func refersOnly(text string) bool {
	rest := placeholder.ReplaceAllString(text, "")
	return rest == "" || rest != text && slices.Contains(schemes, strings.ToLower(strings.TrimSpace(rest)))
}

// found is a credential in a configuration.
type found struct {
	key  string // names its place among those of the same configuration
	path string // for people
	text keyring.Text
	kept bool // Masked stands there: that of the version before is meant
}

// split takes the credentials out of a configuration. Anything that it cannot read comes
// back as it is: the check of configurations says so.
func split(config json.RawMessage) (masked json.RawMessage, credentials []found) {
	note := func(key, path, text string) string {
		credentials = append(credentials, found{key: key, path: path, text: keyring.NewText(text), kept: text == Masked})
		return Masked
	}
	masked, err := rewrite(config, func(at spot, text string) string {
		switch {
		case at.path == "url":
			return splitURL(text, note)
		case at.name == at.top || text == "" || refersOnly(text) || !telling(at.name, at.top == "headers"):
			return text
		default:
			return note(at.key, at.path, text)
		}
	})
	if err != nil || len(credentials) == 0 {
		return config, nil
	}
	slices.SortFunc(credentials, func(a, b found) int { return strings.Compare(a.key, b.key) })
	return masked, credentials
}

// splitURL takes the credentials out of a URL's query, as they are escaped in
// it. A user and a password before the host are refused by package egress.
func splitURL(text string, note func(key, path, text string) string) string {
	target, query, hasQuery := strings.Cut(text, "?")
	if !hasQuery {
		return text
	}
	query, fragment, hasFragment := strings.Cut(query, "#")
	parameters := strings.Split(query, "&")
	for i, parameter := range parameters {
		name, value, _ := strings.Cut(parameter, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil || value == "" || refersOnly(value) || !telling(plain, true) {
			continue
		}
		if value == url.QueryEscape(Masked) {
			value = Masked
		}
		nth := 0
		for _, before := range parameters[:i] {
			if same, _, _ := strings.Cut(before, "="); same == name {
				nth++
			}
		}
		parameters[i] = name + "=" + note("\x00url\x00?"+name+"\x00"+strconv.Itoa(nth), "url", value)
	}
	text = target + "?" + strings.Join(parameters, "&")
	if hasFragment {
		text += "#" + fragment
	}
	return text
}

// restore puts credentials back where split took them from.
func restore(masked json.RawMessage, credentials map[string]string) (json.RawMessage, error) {
	return rewrite(masked, func(at spot, text string) string {
		if at.path == "url" {
			return splitURL(text, func(key, _, text string) string { return back(credentials, key, text) })
		}
		if text != Masked {
			return text
		}
		return back(credentials, at.key, text)
	})
}

func back(credentials map[string]string, key, text string) string {
	if whole, ok := credentials[key]; ok && text == Masked {
		return whole
	}
	return text
}

// Inline lists the credentials among the overrides of a trigger. They are
// refused: the overrides stay with the execution, for all who may read it.
func Inline(parameters json.RawMessage) []fault.Field {
	if len(parameters) == 0 || string(parameters) == "null" {
		return nil
	}
	var fields []fault.Field
	_, err := rewrite(parameters, func(at spot, text string) string {
		if text != "" && at.top != "" && !refersOnly(text) && telling(at.name, at.top == "headers") {
			fields = append(fields, fault.Field{
				Path: "parameters." + at.path, Rule: "credential", Message: "holds a credential, and parameters are kept with the execution; store it as a secret and write {{secret:name}}",
			})
		}
		return text
	})
	if err != nil {
		return nil
	}
	slices.SortFunc(fields, func(a, b fault.Field) int { return strings.Compare(a.Path, b.Path) })
	return fields
}
