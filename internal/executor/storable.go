package executor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxResult is the largest result, in bytes of JSON, that an execution keeps.
const MaxResult = 256 << 10

const (
	maxMessage = 4 << 10
	maxStack   = 16 << 10
	// maxDepth bounds the nesting of results and configurations. PostgreSQL's
	// own bound depends on its stack size; this one does not.
	maxDepth = 64
	// maxDigits bounds a number's digits and exponent. jsonb keeps numbers as
	// numeric and refuses those beyond 131,072 digits before and 16,383 after
	// the point.
	maxDigits = 1000
)

// storable makes a result one that PostgreSQL's jsonb takes, because a result
// that the database refuses would block the completion of an execution that
// has run. Escapes that stand for no storable character become U+FFFD; a
// result that cannot be kept is replaced by a note that says why.
func storable(result json.RawMessage) json.RawMessage {
	if len(result) > MaxResult {
		return tooLarge(len(result))
	}
	if !json.Valid(result) {
		return omitted("the result is not valid JSON")
	}
	if !utf8.Valid(result) {
		if result = bytes.ToValidUTF8(result, []byte("\uFFFD")); len(result) > MaxResult {
			return tooLarge(len(result))
		}
	}
	found := survey(result)
	if found.problem != "" {
		return omitted("the result " + found.problem)
	}
	if len(found.escapes) == 0 {
		return result
	}
	result = bytes.Clone(result)
	for _, at := range found.escapes {
		copy(result[at:], `\ufffd`)
	}
	return result
}

func tooLarge(size int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"omitted":"the result is larger than %d bytes","sizeBytes":%d}`, MaxResult, size))
}

// TooLarge stands for a result whose bytes beyond MaxResult were not counted.
func TooLarge() json.RawMessage {
	return omitted(fmt.Sprintf("the result is larger than %d bytes", MaxResult))
}

func omitted(why string) json.RawMessage {
	return json.RawMessage(`{"omitted":"` + why + `"}`)
}

// text makes a text storable: valid UTF-8, no NUL, at most limit bytes.
func text(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
