package secret

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

func maskOf(texts ...string) Mask {
	var hidden []keyring.Text
	for _, text := range texts {
		hidden = append(hidden, keyring.NewText(text))
	}
	return newMask(hidden)
}

// A secret that a target echoes in a usual encoding does not stay.
func TestMaskFindsTheUsualForms(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringMatching(`[ -~äß]{8,40}`).Draw(rt, "secret")
		m := maskOf(text)
		before := rapid.StringMatching(`[a-z]{0,5}:`).Draw(rt, "before")
		quoted, _ := json.Marshal(text)
		inside := strings.Trim(string(quoted), `"`)
		for _, form := range []string{
			text, inside, url.QueryEscape(text), url.PathEscape(text), fmt.Sprintf("%x", text),
			base64.StdEncoding.EncodeToString([]byte(text)), base64.URLEncoding.EncodeToString([]byte(text)),
		} {
			if got := m.Text("a " + form + " z"); strings.Contains(got, form) {
				rt.Fatalf("%q stays: %q", form, got)
			}
		}
		echoed := base64.StdEncoding.EncodeToString([]byte(before + text))
		middle := echoed[len(before)*8/6+2 : len(echoed)-4]
		if got := m.Text(echoed); len(middle) > 4 && strings.Contains(got, middle) {
			rt.Fatalf("base64 of %q with the secret stays: %q", before, got)
		}
		result, _ := json.Marshal(map[string]any{"body": string(quoted), text: []any{text, map[string]any{"deep": "x" + text}}})
		var back any
		if err := json.Unmarshal(m.JSON(result), &back); err != nil {
			rt.Fatal(err)
		}
		if got := fmt.Sprint(back); strings.Contains(got, text) || strings.Contains(got, inside) {
			rt.Fatalf("the result keeps it: %s", got)
		}
	})
}

func TestMaskOfWhatWasCut(t *testing.T) {
	t.Parallel()
	m := maskOf("canary-0123456789")
	for text, want := range map[string]string{
		"cut: canary-0123":  "cut: ***",
		"cut: canary-":      "cut: canary-", // seven bytes tell nothing
		"canary-0123 is it": "canary-0123 is it",
		"":                  "",
		"nothing":           "nothing",
	} {
		if got := m.Text(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestMaskLooksIntoBytes(t *testing.T) {
	t.Parallel()
	body := base64.StdEncoding.EncodeToString([]byte("\x00\xffcanary-0123456789\x00"))
	got := maskOf("canary-0123456789").JSON(json.RawMessage(`{"body":"` + body + `","bodyEncoding":"base64","n":12345678901234567890}`))
	want := `{"body":"` + base64.StdEncoding.EncodeToString([]byte("\x00\xff***\x00")) + `","bodyEncoding":"base64","n":12345678901234567890}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

// A secret of a few characters stands in every text; masking it would leave
// nothing to read.
func TestMaskLeavesWhatIsTooShort(t *testing.T) {
	t.Parallel()
	if got := maskOf("abc", "").Text("abcabc"); got != "abcabc" {
		t.Errorf("got %q", got)
	}
	if got := (Mask{}).JSON(json.RawMessage(`{"a": 1}`)); string(got) != `{"a": 1}` {
		t.Errorf("no mask changed %s", got)
	}
}

// However a text is cut into pieces, the stream shows what the mask shows of the whole.
func TestStreamMasksAcrossPieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := maskOf("canary-0123456789", "line one\nline two\n", "abcabcabd")
		alphabet := rapid.SampledFrom([]string{"canary-0123456789", "canary-", "line one\nline two\n", "line one\n", "abcabcabd", "abcabc", "a", "0", "\n", "é"})
		var text strings.Builder
		for _, part := range rapid.SliceOfN(alphabet, 0, 12).Draw(rt, "text") {
			text.WriteString(part)
		}
		whole := text.String()
		var shown strings.Builder
		stream := m.Stream()
		for rest := whole; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "piece")
			shown.WriteString(stream.Write(rest[:n]))
			rest = rest[n:]
		}
		shown.WriteString(stream.End())
		if got, want := shown.String(), m.Text(whole); got != want {
			rt.Fatalf("%q is shown as %q, want %q", whole, got, want)
		}
	})
}

// A secret of several lines is masked where only some of them are seen: in another report, in a
// result, at the end of what was cut.
func TestMaskOfSingleLines(t *testing.T) {
	t.Parallel()
	mask := newMask([]keyring.Text{keyring.NewText("-----BEGIN KEY-----\r\nMIIEvQIBADANBg\n  kqhkiG9w0BAQEF \nshort\n-----END KEY-----\n")})
	for text, want := range map[string]string{
		"got MIIEvQIBADANBg":         "got ***",
		"kqhkiG9w0BAQEF!":            "***!",
		"cut: kqhkiG9w":              "cut: ***",
		"-----BEGIN KEY-----, short": "-----BEGIN KEY-----, short",
	} {
		if got := mask.Text(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
		if got := mask.Lines([]string{text}); got[0] != want {
			t.Errorf("the line %q became %q, want %q", text, got[0], want)
		}
	}
	if got := string(mask.JSON(json.RawMessage(`{"line":"a MIIEvQIBADANBg"}`))); got != `{"line":"a ***"}` {
		t.Errorf("a result became %s", got)
	}
}
