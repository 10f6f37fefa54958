// Package strictjson reads a JSON text of which every reader makes the same.
//
// It owns what encoding/json lets pass and an API must not: repeated names,
// text after the value, nesting and numbers without bound, and characters that
// PostgreSQL cannot store (U+0000, half a surrogate pair, invalid UTF-8). It
// knows no schema and refuses to bind to types: which names are known is the
// contract's business, and since it hands on names exactly as written, the
// contract compares them exactly.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/scheduler-service/scheduler/internal/fault"
)

// The bounds of a text that is read.
const (
	MaxDepth = 32     // objects and arrays inside one another
	MaxNames = 10_000 // names of all objects together, where nobody says otherwise
	// maxNumber bounds the characters of one number, and maxExponent what may
	// follow its e: both lie far within PostgreSQL's numeric.
	maxNumber   = 100
	maxExponent = 400
	// maxFaults bounds how many repeated names are reported.
	maxFaults = 50
)

// Decode reads one value with at most maxNames names: nil, bool, string,
// json.Number, []any or map[string]any. When anything is wrong it returns the faults instead; their
// paths are relative to the text, and "body" for the whole of it.
func Decode(raw []byte, maxNames int) (any, []fault.Field) {
	if !utf8.Valid(raw) {
		return nil, whole("encoding", "is not valid UTF-8")
	}
	if problem := scan(raw); problem != nil {
		return nil, problem
	}
	if err := json.Unmarshal(raw, new(json.RawMessage)); err != nil {
		return nil, whole("syntax", describe(err))
	}
	r := reader{decoder: json.NewDecoder(bytes.NewReader(raw)), maxNames: maxNames}
	r.decoder.UseNumber()
	value := r.value("")
	if len(r.faults) > 0 {
		return nil, r.faults
	}
	return value, nil
}

func whole(rule, message string) []fault.Field {
	return []fault.Field{{Path: "body", Rule: rule, Message: message}}
}

func describe(err error) string {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("is not valid JSON at byte %d: %s", syntax.Offset, strings.TrimPrefix(syntax.Error(), "json: "))
	}
	return "is not valid JSON"
}

// scan looks at the bytes before any parser recurses into them: at how deep
// brackets nest, and at the escapes inside strings.
func scan(raw []byte) []fault.Field {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{', '[':
			if depth++; depth > MaxDepth {
				return whole("depth", fmt.Sprintf("nests deeper than %d levels", MaxDepth))
			}
		case '}', ']':
			depth--
		case '"':
			end, bad := skipString(raw, i+1)
			if bad {
				return whole("characters", "holds an escaped U+0000 or half a surrogate pair, which cannot be stored")
			}
			i = end
		}
	}
	return nil
}

// skipString finds the quote that ends a string, and whether the string holds
// an escape that cannot be stored. A string that does not end is left to the
// parser.
func skipString(raw []byte, i int) (end int, bad bool) {
	for ; i < len(raw) && raw[i] != '"'; i++ {
		if raw[i] != '\\' {
			continue
		}
		unit, ok := escape(raw[i:])
		switch {
		case !ok:
			i++ // a short escape, such as \" or \n
		case unit == 0, unit >= 0xDC00 && unit < 0xE000:
			return i, true
		case unit >= 0xD800 && unit < 0xDC00:
			low, ok := escape(raw[i+6:])
			if !ok || low < 0xDC00 || low >= 0xE000 {
				return i, true
			}
			i += 11
		default:
			i += 5
		}
	}
	return i, false
}

// escape reads \uXXXX at the beginning of raw.
func escape(raw []byte) (unit uint64, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return unit, err == nil
}

// reader builds the value of a text that is known to be valid and not too
// deep, so the decoder's tokens cannot fail.
type reader struct {
	decoder         *json.Decoder
	names, maxNames int
	faults          []fault.Field
}

func (r *reader) fault(path, rule, message string) {
	if len(r.faults) >= maxFaults {
		return
	}
	if path == "" {
		path = "body"
	}
	r.faults = append(r.faults, fault.Field{Path: path, Rule: rule, Message: message})
}

func (r *reader) value(path string) any {
	token, _ := r.decoder.Token()
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return r.object(path)
		}
		return r.array(path)
	case json.Number:
		r.number(path, token.String())
		return token
	default:
		return token
	}
}

func (r *reader) object(path string) map[string]any {
	object := map[string]any{}
	for r.decoder.More() {
		token, _ := r.decoder.Token()
		name, _ := token.(string)
		child := Join(path, name)
		if r.names++; r.names == r.maxNames+1 {
			r.fault("", "names", fmt.Sprintf("has more than %d names", r.maxNames))
		}
		_, twice := object[name]
		if twice {
			r.fault(child, "duplicate", "stands more than once")
		}
		object[name] = r.value(child)
	}
	_, _ = r.decoder.Token()
	return object
}

func (r *reader) array(path string) []any {
	array := []any{}
	for r.decoder.More() {
		array = append(array, r.value(fmt.Sprintf("%s[%d]", path, len(array))))
	}
	_, _ = r.decoder.Token()
	return array
}

// number refuses what a float64 or PostgreSQL's numeric cannot hold.
func (r *reader) number(path, text string) {
	if len(text) > maxNumber {
		r.fault(path, "range", fmt.Sprintf("is a number of more than %d characters", maxNumber))
		return
	}
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		exponent, err := strconv.Atoi(text[at+1:])
		if err != nil || exponent > maxExponent || exponent < -maxExponent {
			r.fault(path, "range", "is a number out of range")
			return
		}
	}
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		r.fault(path, "range", "is a number out of range")
	}
}

// Join names a member of the object at path, as faults do. A name longer than
// 60 bytes is cut.
func Join(path, name string) string {
	if len(name) > 60 {
		name = strings.ToValidUTF8(name[:60], "") + "…"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}
