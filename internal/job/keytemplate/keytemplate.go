// Package keytemplate is the key by which runs of one tenant exclude one
// another.
//
// It owns the template of a job's concurrencyKey: its syntax, its bounds, and
// what it renders to for one run. It refuses to compute anything (there are no
// functions in a template) and to count what runs (the worker's claim does, in
// PostgreSQL).
package keytemplate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// The bounds of a template, in characters, and of a key, in bytes.
const (
	maxTemplate     = 200
	maxKey          = 256
	maxPlaceholders = 10
)

// jobFields are the fields of a job that a template may name.
var jobFields = []string{"id", "name", "jobType"}

// Template is a concurrencyKey as a job has it. The zero value names no key.
type Template struct{ parts []part }

// part is either text or a placeholder.
type part struct {
	text string
	root string   // config, parameters or job; empty: text
	path []string // below the root
}

// Parse reads a template: text with placeholders such as {{config.body.id}}.
// The error says what is wrong with it, for the tenant.
func Parse(text string) (Template, error) {
	if n := utf8.RuneCountInString(text); n > maxTemplate {
		return Template{}, fmt.Errorf("is %d characters long; at most %d are allowed", n, maxTemplate)
	}
	if strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text) {
		return Template{}, fmt.Errorf("contains a control character or no valid UTF-8")
	}
	var t Template
	placeholders := 0
	for text != "" {
		before, rest, found := strings.Cut(text, "{{")
		if strings.Contains(before, "}}") {
			return Template{}, fmt.Errorf("has a }} without its {{")
		}
		if before != "" {
			t.parts = append(t.parts, part{text: before})
		}
		if !found {
			break
		}
		inner, after, closed := strings.Cut(rest, "}}")
		if !closed {
			return Template{}, fmt.Errorf("has a {{ without its }}")
		}
		p, err := placeholder(strings.TrimSpace(inner))
		if err != nil {
			return Template{}, err
		}
		if placeholders++; placeholders > maxPlaceholders {
			return Template{}, fmt.Errorf("has more than %d placeholders", maxPlaceholders)
		}
		t.parts = append(t.parts, p)
		text = after
	}
	return t, nil
}

func placeholder(text string) (part, error) {
	names := strings.Split(text, ".")
	for _, name := range names {
		if name == "" || strings.ContainsFunc(name, foreign) {
			return part{}, fmt.Errorf("has the placeholder {{%s}}, which is no path such as {{config.body.id}}: names of letters, digits, _ and -, separated by dots", text)
		}
	}
	p := part{root: names[0], path: names[1:]}
	switch p.root {
	case "job":
		if len(p.path) != 1 || !slices.Contains(jobFields, p.path[0]) {
			return part{}, fmt.Errorf("has the placeholder {{%s}}; of a job there are %s", text, strings.Join(jobFields, ", "))
		}
	case "config", "parameters":
		if len(p.path) == 0 {
			return part{}, fmt.Errorf("has the placeholder {{%s}}, which names no field of it", text)
		}
	default:
		return part{}, fmt.Errorf("has the placeholder {{%s}}, which begins with none of config, parameters and job", text)
	}
	return p, nil
}

// foreign says that a character is not one of a name.
func foreign(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-'
}

// Run is what a key may depend on.
type Run struct {
	JobID      uuid.UUID
	JobName    string
	JobType    string
	Config     json.RawMessage // of the job
	Parameters json.RawMessage // of the run; nil: none
}

// Render is the key of one run, at most 256 bytes long: of a longer one the end
// is replaced by a hash of the whole. A placeholder that finds no text, number
// or boolean renders to nothing. Empty means that no limit applies.
func (t Template) Render(r Run) string {
	var key strings.Builder
	documents := map[string]any{}
	for _, p := range t.parts {
		switch p.root {
		case "":
			key.WriteString(p.text)
		case "job":
			key.WriteString(r.job(p.path[0]))
		default:
			document, read := documents[p.root]
			if !read {
				document = r.document(p.root)
				documents[p.root] = document
			}
			key.WriteString(textAt(document, p.path))
		}
	}
	return bounded(strings.ReplaceAll(key.String(), "\x00", ""))
}

func (r Run) job(field string) string {
	switch field {
	case "id":
		return r.JobID.String()
	case "name":
		return r.JobName
	default:
		return r.JobType
	}
}

// document is what a root holds; nil when it holds nothing that can be read.
func (r Run) document(root string) (document any) {
	raw := r.Config
	if root == "parameters" {
		raw = r.Parameters
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // 12345678901234567 stays as it was written
	if err := decoder.Decode(&document); err != nil {
		return nil
	}
	return document
}

func textAt(at any, path []string) string {
	for _, name := range path {
		switch inside := at.(type) {
		case map[string]any:
			at = inside[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(inside) {
				return ""
			}
			at = inside[i]
		default:
			return ""
		}
	}
	switch found := at.(type) {
	case string:
		return found
	case json.Number:
		return found.String()
	case bool:
		return strconv.FormatBool(found)
	default:
		return ""
	}
}

// bounded shortens a key without making two of one.
func bounded(key string) string {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	tail := "#" + hex.EncodeToString(sum[:])
	return strings.ToValidUTF8(key[:maxKey-len(tail)], "") + tail
}
