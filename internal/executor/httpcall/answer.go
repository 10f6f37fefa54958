package httpcall

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/scheduler-service/scheduler/internal/executor"
)

const (
	keepBody    = 64 << 10 // bytes of a body that are kept
	readBody    = 10 << 20 // bytes of a body that are read before we hang up
	keepHeaders = 16 << 10 // bytes of headers that are kept
)

// answer is what is kept of a target's answer.
type answer struct {
	StatusCode int               `json:"statusCode"`
	Headers    map[string]string `json:"headers"`
	// HeadersTruncated is set where headers were left out for their size.
	HeadersTruncated bool   `json:"headersTruncated,omitempty"`
	Body             string `json:"body"`
	// BodyEncoding is "base64" for what is no text, else empty.
	BodyEncoding string `json:"bodyEncoding,omitempty"`
	// Truncated is set where the body is not kept whole.
	Truncated bool `json:"truncated"`
	// BodyBytes is how much of the body was received.
	BodyBytes  int64 `json:"bodyBytes"`
	DurationMs int64 `json:"durationMs"`

	raw []byte
}

// readAnswer reads a response. Beyond what is kept it reads on, so that a
// target is not cut off in its answer and the connection can be used again,
// but not without bound. An error means that the body ended early; what came
// is kept.
func readAnswer(resp *http.Response) (*answer, error) {
	a := &answer{StatusCode: resp.StatusCode}
	a.keepHeaders(resp.Header)
	body, err := io.ReadAll(io.LimitReader(resp.Body, keepBody+1))
	a.BodyBytes = int64(len(body))
	if len(body) > keepBody {
		a.Truncated = true
		body = body[:keepBody]
		var more int64
		more, err = io.CopyN(io.Discard, resp.Body, readBody-a.BodyBytes)
		a.BodyBytes += more
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	a.Truncated = a.Truncated || err != nil
	a.raw = body
	return a, err
}

// keepHeaders keeps headers as one text each. Cookies are how a target knows
// its sessions: readers of results must not see them.
func (a *answer) keepHeaders(header http.Header) {
	a.Headers = make(map[string]string, len(header))
	size := 0
	for _, name := range slices.Sorted(maps.Keys(header)) {
		value := strings.Join(header[name], ", ")
		if name == "Set-Cookie" {
			value = "[redacted]"
		}
		if size += len(name) + len(value); size > keepHeaders {
			a.HeadersTruncated = true
			return
		}
		a.Headers[name] = value
	}
}

// encode is the result as JSON. A body that is no text, or that JSON would
// blow up beyond the bound of a result, is kept in base64.
func (a *answer) encode() json.RawMessage {
	text := a.raw
	if a.Truncated {
		text = wholeRunes(text)
	}
	if utf8.Valid(text) && bytes.IndexByte(text, 0) < 0 {
		a.Body = string(text)
		if result := marshal(a); len(result) <= executor.MaxResult {
			return result
		}
	}
	a.Body, a.BodyEncoding = base64.StdEncoding.EncodeToString(a.raw), "base64"
	return marshal(a)
}

// wholeRunes takes off the character that a cut went through.
func wholeRunes(text []byte) []byte {
	for back := 1; back <= min(utf8.UTFMax, len(text)); back++ {
		start := len(text) - back
		if utf8.RuneStart(text[start]) {
			if !utf8.FullRune(text[start:]) {
				return text[:start]
			}
			break
		}
	}
	return text
}

// marshal leaves <, > and & as they are: HTML is a usual body, and escaping it
// for HTML makes it several times as long.
func marshal(a *answer) json.RawMessage {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(a); err != nil {
		return nil // texts and numbers always encode
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}
