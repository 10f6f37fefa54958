package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// Masked is what is shown in the place of a secret or a credential.
const Masked = "***"

const (
	// leastMasked is the shortest text, in bytes, that is searched for in what
	// an attempt left behind: a shorter one stands in every text.
	leastMasked = 4
	// leastCut is the shortest beginning of a secret that counts as one at the
	// end of a text, where it was cut.
	leastCut = 8
)

// Mask takes texts out of what an attempt left behind. The zero value takes
// out nothing.
type Mask struct {
	forms    []string // of every text, the longest first
	replacer *strings.Replacer
}

// newMask makes the mask of texts, in the forms in which a target usually
// returns what it was sent.
func newMask(texts []keyring.Text) Mask {
	var m Mask
	for _, text := range texts {
		m.forms = append(append(m.forms, formsOf(text.Reveal())...), linesOf(text.Reveal())...)
	}
	slices.SortFunc(m.forms, func(a, b string) int { return len(b) - len(a) })
	m.forms = slices.Compact(m.forms)
	pairs := make([]string, 0, 2*len(m.forms))
	for _, form := range m.forms {
		pairs = append(pairs, form, Masked)
	}
	if len(pairs) > 0 {
		m.replacer = strings.NewReplacer(pairs...)
	}
	return m
}

// formsOf is a text as it stands, without its surroundings of white space, and
// as JSON, URLs, hexadecimal and base64 write it.
func formsOf(text string) []string {
	var forms []string
	add := func(form string) {
		if len(form) >= leastMasked {
			forms = append(forms, form)
		}
	}
	for _, t := range slices.Compact([]string{text, strings.TrimSpace(text)}) {
		add(t)
		for _, escapeHTML := range []bool{true, false} {
			once := inJSON(t, escapeHTML)
			add(once)
			add(inJSON(once, escapeHTML))
		}
		add(url.QueryEscape(t))
		add(url.PathEscape(t))
		add(hex.EncodeToString([]byte(t)))
		for before := range 3 {
			add(inBase64(t, before))
			add(strings.NewReplacer("+", "-", "/", "_").Replace(inBase64(t, before)))
		}
	}
	return forms
}

// linesOf are the lines of a text that has several, such as the key in a PEM file: what a run
// writes comes line by line, and one report need not have all of them. Each is masked as it
// stands alone. The lines that only say what a PEM file holds are no secret.
func linesOf(text string) (lines []string) {
	if !strings.Contains(strings.TrimSpace(text), "\n") {
		return nil
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); len(line) >= leastCut && !strings.HasPrefix(line, "-----") {
			lines = append(lines, line)
		}
	}
	return lines
}

// inJSON is a text as the inside of a JSON string.
func inJSON(text string, escapeHTML bool) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(escapeHTML)
	if err := encoder.Encode(text); err != nil {
		return text
	}
	return strings.Trim(strings.TrimSuffix(out.String(), "\n"), `"`)
}

// inBase64 is the part of base64 that a text alone decides, where so many bytes
// stand before it in its group of three, such as a user's name. Empty where
// that part is short.
func inBase64(text string, before int) string {
	if len(text) < leastCut {
		return ""
	}
	encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), text...))
	skip := (before*8 + 5) / 6
	end := (before + len(text)) * 8 / 6
	return encoded[skip:end]
}

// Text is a text without what is masked; what it was cut in counts too.
func (m Mask) Text(text string) string {
	if m.replacer == nil || text == "" {
		return text
	}
	text = m.replacer.Replace(text)
	for _, form := range m.forms {
		for n := min(len(form)-1, len(text)); n >= leastCut; n-- {
			if strings.HasSuffix(text, form[:n]) {
				return text[:len(text)-n] + Masked
			}
		}
	}
	return text
}

// JSON is a JSON value with every text in it masked, names of members
// included. A body that a result keeps in base64 is looked into.
func (m Mask) JSON(raw json.RawMessage) json.RawMessage {
	if m.replacer == nil || len(raw) == 0 {
		return raw
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var tree any
	if decoder.Decode(&tree) != nil {
		return json.RawMessage(`{"omitted":"the result is not valid JSON"}`)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(m.tree(tree)) != nil {
		return nil
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}

func (m Mask) tree(tree any) any {
	switch tree := tree.(type) {
	case string:
		return m.Text(tree)
	case json.Number:
		if masked := m.Text(tree.String()); masked != tree.String() {
			return masked
		}
	case []any:
		for i := range tree {
			tree[i] = m.tree(tree[i])
		}
	case map[string]any:
		clean := make(map[string]any, len(tree))
		for name, value := range tree {
			clean[m.Text(name)] = m.tree(value)
		}
		if body, ok := tree["body"].(string); ok && tree["bodyEncoding"] == "base64" {
			clean["body"] = m.encoded(body)
		}
		return clean
	}
	return tree
}

// encoded is a text in base64 without what is masked in its bytes.
func (m Mask) encoded(body string) string {
	raw, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return m.Text(body)
	}
	return base64.StdEncoding.EncodeToString([]byte(m.Text(string(raw))))
}

// Lines are lines without what is masked, as many as before: what has several lines is
// masked in each of them.
func (m Mask) Lines(lines []string) []string {
	if m.replacer == nil || len(lines) == 0 {
		return lines
	}
	text := strings.Join(lines, "\n")
	for _, form := range m.forms {
		if breaks := strings.Count(form, "\n"); breaks > 0 {
			text = strings.ReplaceAll(text, form, Masked+strings.Repeat("\n"+Masked, breaks))
		}
	}
	masked := strings.Split(text, "\n")
	for i := range masked {
		masked[i] = m.Text(masked[i])
	}
	return masked
}
