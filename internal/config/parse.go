package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parse turns the text of a variable into the value of its field. Errors say
// what is wrong and never repeat a URL or a secret.
func (v variable) parse(text string) (any, error) {
	switch v.kind {
	case reflect.TypeFor[Secret]():
		switch v.form {
		case "keys":
			return parseKeys(text)
		case "services":
			return checkPeers(text)
		case "pairs":
			if _, err := pairs(text); err != nil {
				return nil, err
			}
			return newSecret(text), nil
		}
		return parseSecret(text, int(v.min))
	case reflect.TypeFor[[]Secret]():
		return parseSecrets(text, int(v.min), int(v.max))
	case reflect.TypeFor[URL]():
		return v.parseScheme(text)
	case reflect.TypeFor[time.Duration]():
		ms, err := v.parseWhole(text)
		return time.Duration(ms) * time.Millisecond, err
	case reflect.TypeFor[int]():
		whole, err := v.parseWhole(text)
		return int(whole), err
	case reflect.TypeFor[bool]():
		return parseBool(text)
	case reflect.TypeFor[slog.Level]():
		return parseLevel(text)
	case reflect.TypeFor[[]netip.Prefix]():
		return parsePrefixes(text)
	case reflect.TypeFor[[]string]():
		return v.parseList(text)
	case reflect.TypeFor[string]():
		return v.parseText(text)
	default:
		return nil, fmt.Errorf("has a field of type %v, which no parser knows", v.kind)
	}
}

// right says what would be accepted, in words.
func (v variable) right() string {
	switch v.kind {
	case reflect.TypeFor[Secret]():
		if v.form == "keys" {
			return "id:key, or several separated by commas, each key as `openssl rand -base64 32` prints it"
		}
		if v.form == "services" {
			return "services separated by spaces, each like name=billing;token=…;tenants=UUID,UUID;addresses=10.0.0.0/8;rate=50, where tenants, addresses and rate may be left out"
		}
		if v.form == "pairs" {
			return rightPairs
		}
		return fmt.Sprintf("at least %d random bytes, such as `openssl rand -base64 48` prints", v.min)
	case reflect.TypeFor[[]Secret]():
		return fmt.Sprintf("at most %d texts separated by a comma, each at least %d random bytes, such as `openssl rand -hex 32` prints", v.max, v.min)
	case reflect.TypeFor[URL]():
		return "a URL such as " + example(v.schemes[0])
	case reflect.TypeFor[time.Duration]():
		return fmt.Sprintf("a whole number of milliseconds from %d to %d", v.min, v.max)
	case reflect.TypeFor[int]():
		return fmt.Sprintf("a whole number from %d to %d", v.min, v.max)
	case reflect.TypeFor[bool]():
		return "true or false"
	case reflect.TypeFor[slog.Level]():
		return "debug, info, warn or error"
	case reflect.TypeFor[[]netip.Prefix]():
		return "networks separated by commas, such as 10.0.0.0/8,fd00::/8"
	}
	switch {
	case v.kind == reflect.TypeFor[[]string]():
		return "one word or several, separated by commas"
	case v.form == "pairs":
		return rightPairs
	case v.form == "share":
		return "a number from 0 to 1"
	case v.form == "address":
		return "host:port or :port, such as :3009"
	case len(v.oneOf) > 0:
		return strings.Join(v.oneOf, " or ")
	}
	return "a text"
}

// bounds is right, short enough for a table.
func (v variable) bounds() string {
	switch v.kind {
	case reflect.TypeFor[Secret]():
		if v.form == "keys" {
			return "id:base64 of 32 bytes, comma-separated"
		}
		if v.form == "services" {
			return "`name=…;token=…;tenants=…;addresses=…;rate=…`, space-separated"
		}
		if v.form == "pairs" {
			return rightPairs
		}
		return fmt.Sprintf("≥ %d random bytes", v.min)
	case reflect.TypeFor[[]Secret]():
		return fmt.Sprintf("≥ %d random bytes each, comma-separated, at most %d", v.min, v.max)
	case reflect.TypeFor[URL]():
		return strings.Join(v.schemes, ":// or ") + "://"
	case reflect.TypeFor[time.Duration]():
		return fmt.Sprintf("ms, %d–%d", v.min, v.max)
	case reflect.TypeFor[int]():
		return fmt.Sprintf("%d–%d", v.min, v.max)
	case reflect.TypeFor[[]netip.Prefix]():
		return "CIDRs, comma-separated"
	}
	if v.form == "address" {
		return "host:port"
	}
	return v.right()
}

func example(scheme string) string {
	switch scheme {
	case "postgres":
		return "postgres://user:password@host:5432/database"
	case "https":
		return "https://auth.example.com/.well-known/jwks.json"
	}
	return scheme + "://host:6379/0"
}

func (v variable) parseScheme(text string) (any, error) {
	parsed, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	scheme, _, _ := strings.Cut(text, ":")
	if !slices.Contains(v.schemes, strings.ToLower(scheme)) {
		return nil, fmt.Errorf("has a scheme other than %s", strings.Join(v.schemes, ", "))
	}
	return parsed, nil
}

func (v variable) parseWhole(text string) (int64, error) {
	whole, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number", text)
	case whole < v.min || whole > v.max:
		return 0, fmt.Errorf("%d is out of bounds", whole)
	}
	return whole, nil
}

// parseList takes words, each once.
func (v variable) parseList(text string) (any, error) {
	var words []string
	for _, word := range list(text) {
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return nil, errors.New("names nothing")
	}
	return words, nil
}

func (v variable) parseText(text string) (any, error) {
	if len(v.oneOf) > 0 && !slices.Contains(v.oneOf, text) {
		return nil, fmt.Errorf("%q is not known", text)
	}
	switch v.form {
	case "pairs":
		if _, err := pairs(text); err != nil {
			return nil, err
		}
	case "share":
		if share, err := strconv.ParseFloat(text, 64); err != nil || !(share >= 0 && share <= 1) {
			return nil, fmt.Errorf("%q is no number from 0 to 1", text)
		}
	}
	if v.form == "address" {
		_, port, err := net.SplitHostPort(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not an address", text)
		}
		if number, err := strconv.Atoi(port); err != nil || number < 0 || number > 65535 {
			return nil, fmt.Errorf("%q has no port from 0 to 65535", text)
		}
	}
	return text, nil
}

// rightPairs says in words what pairs takes.
const rightPairs = "name=value, comma-separated, percent-encoded"

// pairs reads what OpenTelemetry calls a list of headers or attributes. Its errors repeat
// no value, which may be a token.
func pairs(text string) (map[string]string, error) {
	found := make(map[string]string)
	for i, part := range list(text) {
		name, value, ok := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		plain, err := url.PathUnescape(value)
		if !ok || name == "" || err != nil {
			return nil, fmt.Errorf("part %d is no name=value", i+1)
		}
		found[name] = plain
	}
	return found, nil
}

func parseBool(text string) (any, error) {
	value, err := strconv.ParseBool(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("%q is neither true nor false", text)
	}
	return value, nil
}

// parseLevel refuses what slog itself would take, such as "info+3": nobody
// means it.
func parseLevel(text string) (any, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, ok := levels[strings.ToLower(strings.TrimSpace(text))]
	if !ok {
		return nil, fmt.Errorf("%q is no level", text)
	}
	return level, nil
}

// parsePrefixes refuses a network with bits behind its mask set, which is a
// slip in either the address or the mask.
func parsePrefixes(text string) (any, error) {
	var prefixes []netip.Prefix
	var errs []error
	for _, part := range list(text) {
		prefix, err := netip.ParsePrefix(part)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%q is no network in CIDR form", part))
		case prefix.Addr().Is4In6():
			errs = append(errs, fmt.Errorf("%q is an IPv4 network written as IPv6", part))
		case prefix != prefix.Masked():
			errs = append(errs, fmt.Errorf("%q has bits set behind its mask, %s has not", part, prefix.Masked()))
		default:
			prefixes = append(prefixes, prefix)
		}
	}
	if len(errs) > 0 {
		return nil, errors.New(strings.ReplaceAll(errors.Join(errs...).Error(), "\n", ", "))
	}
	return prefixes, nil
}
