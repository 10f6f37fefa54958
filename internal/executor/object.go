package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/fault/suggest"
)

// maxFaults bounds the list that one bad configuration can cause.
const maxFaults = 50

// Object reads one JSON object strictly and gathers everything that is wrong
// with it: names that are not known (exactly as written, unlike
// encoding/json), names that stand twice at any depth, values of the wrong
// type, and what PostgreSQL could not store.
type Object struct {
	path    string
	members map[string]json.RawMessage
	faults  []fault.Field
}

// ReadObject splits raw into its members, which must be among the known names.
// Faults carry paths below path.
func ReadObject(path string, raw json.RawMessage, known ...string) *Object {
	o := ReadMap(path, raw)
	for _, name := range slices.Sorted(maps.Keys(o.members)) {
		if !slices.Contains(known, name) {
			o.Fault(text(name, 60), "unknown", "is not a field here"+suggest.For(name, known)+"; the fields are: "+strings.Join(known, ", "))
		}
	}
	return o
}

// ReadMap is ReadObject for an object whose names are free.
func ReadMap(path string, raw json.RawMessage) *Object {
	o := &Object{path: path}
	if len(bytes.TrimSpace(raw)) == 0 {
		o.Fault("", "required", "is missing")
		return o
	}
	if !json.Valid(raw) || !utf8.Valid(raw) {
		o.Fault("", "syntax", "must be valid JSON in UTF-8")
		return o
	}
	found := survey(raw)
	if found.problem != "" {
		o.Fault("", "range", found.problem)
		return o
	}
	if len(found.escapes) > 0 {
		o.Fault("", "characters", "holds an escaped NUL or half a surrogate pair, which cannot be stored")
	}
	if err := json.Unmarshal(raw, &o.members); err != nil || o.members == nil {
		o.Fault("", "type", "must be an object")
		return o
	}
	if found.twins {
		o.findTwins(json.NewDecoder(bytes.NewReader(raw)), path)
	}
	return o
}

// Read decodes a member into a value and tells whether it is there and fits.
// A null counts as absent. The kind ("a text", "a number") is for the fault.
func (o *Object) Read(name string, into any, kind string) bool {
	raw, ok := o.members[name]
	if !ok || string(raw) == "null" {
		return false
	}
	if err := json.Unmarshal(raw, into); err != nil {
		o.Fault(name, "type", "must be "+kind)
		return false
	}
	return true
}

// Require is Read for a member that must be there.
func (o *Object) Require(name string, into any, kind string) bool {
	if raw, ok := o.members[name]; o.members != nil && (!ok || string(raw) == "null") {
		o.Fault(name, "required", "is missing; it must be "+kind)
		return false
	}
	return o.Read(name, into, kind)
}

// Seconds reads a time limit of 0.001 to 86,400 seconds; absent is 0.
func (o *Object) Seconds(name string) time.Duration {
	var seconds float64
	if !o.Read(name, &seconds, "a number of seconds") {
		return 0
	}
	if seconds < 0.001 || seconds > 86_400 {
		o.Fault(name, "range", "must be from 0.001 to 86400 seconds")
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// Fault notes something wrong with a member, or with the whole where name is
// empty.
func (o *Object) Fault(name, rule, message string) {
	path := o.path
	if name != "" {
		path += "." + name
	}
	o.Add(fault.Field{Path: path, Rule: rule, Message: message})
}

// Add notes faults that somebody else found.
func (o *Object) Add(faults ...fault.Field) {
	room := maxFaults - len(o.faults)
	o.faults = append(o.faults, faults[:min(room, len(faults))]...)
}

// Faults lists what was found wrong so far; none is nil. The list is cut at 50.
func (o *Object) Faults() []fault.Field { return o.faults }

// findTwins reads one value and notes the names that stand twice in an object:
// readers disagree about which of the two counts. The nesting is bounded by
// the survey before it.
func (o *Object) findTwins(decoder *json.Decoder, path string) {
	token, err := decoder.Token()
	if err != nil && !errors.Is(err, io.EOF) {
		o.Add(fault.Field{Path: path, Rule: "syntax", Message: "cannot be read"})
		return
	}
	switch token {
	case json.Delim('{'):
		seen := map[string]bool{}
		for decoder.More() {
			token, _ := decoder.Token() // the text is valid: this is a name
			name := fmt.Sprint(token)
			child := path + "." + text(name, 60)
			if seen[name] {
				o.Add(fault.Field{Path: child, Rule: "duplicate", Message: "stands more than once"})
			}
			seen[name] = true
			o.findTwins(decoder, child)
		}
	case json.Delim('['):
		for i := 0; decoder.More(); i++ {
			o.findTwins(decoder, fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		return
	}
	_, _ = decoder.Token() // the closing bracket
}
