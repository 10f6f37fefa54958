package keyring

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is what is printed for a text.
const redacted = "[redacted]"

// Text is a text that no way of printing shows. It stands behind a pointer,
// because fmt prints the unexported fields of other structs without asking
// this type's methods.
type Text struct{ text *string }

// NewText hides a text.
func NewText(text string) Text { return Text{text: &text} }

// Reveal is the text itself. The result must not be printed or stored.
func (t Text) Reveal() string {
	if t.text == nil {
		return ""
	}
	return *t.text
}

// String never shows the text.
func (t Text) String() string { return redacted }

// GoString answers %#v.
func (t Text) GoString() string { return redacted }

// Format answers every other verb of fmt, such as %x and %d.
func (t Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue answers slog.
func (t Text) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON answers encoding/json.
func (t Text) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText answers what writes texts, and maps with such keys.
func (t Text) MarshalText() ([]byte, error) { return []byte(redacted), nil }
