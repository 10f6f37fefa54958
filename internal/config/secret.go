package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
)

// dots is what is printed for a value that must not be seen. Dots need no
// escaping inside a URL.
const dots = "......"

// Secret is a text that no way of printing shows. The text stands behind a
// pointer, because fmt prints the unexported fields of other structs without
// asking this type's methods.
type Secret struct{ text *string }

func newSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal is the text itself; empty when none was set. The result must
// not be logged.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// String is dots, or empty when no secret was set.
func (s Secret) String() string {
	if s.text == nil {
		return ""
	}
	return dots
}

// GoString answers %#v.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// Format answers every other verb of fmt, such as %x and %d.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue answers slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText answers encoding/json, and maps and attributes made of it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// URL is an address that may hold a password. Every way of printing shows it
// with dots in the password's place.
type URL struct {
	whole Secret
	shown string
}

// Reveal is the address as it was given; empty when none was set. The result
// returns must not be logged.
func (u URL) Reveal() string { return u.whole.Reveal() }

// IsZero says that no address was set.
func (u URL) IsZero() bool { return u.whole.text == nil }

// String is the address without its passwords.
func (u URL) String() string { return u.shown }

// GoString answers %#v.
func (u URL) GoString() string { return fmt.Sprintf("%q", u.shown) }

// Format answers every other verb of fmt.
func (u URL) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, u.shown) }

// LogValue answers slog.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.shown) }

// MarshalText answers encoding/json.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.shown), nil }

// errURL stands for every failure to parse, since the parser's own text
// repeats parts of the address, which may be parts of the password.
var errURL = errors.New("does not parse as a URL (a character such as / @ : # % in a password must be percent-encoded)")

func parseURL(text string) (URL, error) {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme == "" || parsed.Opaque != "" {
		return URL{}, errURL
	}
	return URL{whole: newSecret(text), shown: withoutPasswords(parsed)}, nil
}

// withoutPasswords prints an address with dots for the password before the
// host and for every parameter whose name speaks of one, as libpq and Redis
// clients accept them in the query too.
func withoutPasswords(parsed *url.URL) string {
	shown := *parsed
	if _, has := parsed.User.Password(); has {
		shown.User = url.UserPassword(parsed.User.Username(), dots)
	}
	query := parsed.Query()
	for name := range query {
		lower := strings.ToLower(name)
		if strings.Contains(lower, "pass") || strings.Contains(lower, "secret") || strings.Contains(lower, "token") {
			query.Set(name, dots)
		}
	}
	shown.RawQuery = query.Encode()
	return shown.String()
}
