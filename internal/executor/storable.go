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
)

// storable makes a result one that PostgreSQL's jsonb takes, because a result
// that the database refuses would block the completion of an execution that
// has run. What cannot be kept is replaced by a note that says why.
func storable(result json.RawMessage) json.RawMessage {
	if len(result) > MaxResult {
		return json.RawMessage(fmt.Sprintf(`{"omitted":"the result is larger than %d bytes","sizeBytes":%d}`, MaxResult, len(result)))
	}
	if !json.Valid(result) {
		return json.RawMessage(`{"omitted":"the result is not valid JSON"}`)
	}
	if !utf8.Valid(result) {
		result = bytes.ToValidUTF8(result, []byte("\uFFFD"))
	}
	return result
}

// text makes a text storable: valid UTF-8, no NUL, at most limit bytes.
func text(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}
