package keyring_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

const canary = "canary-7f3a9c1e"

func ring(t *testing.T, text string) *keyring.Ring {
	t.Helper()
	r, err := keyring.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func binding() keyring.Binding {
	return keyring.Binding{Tenant: uuid.New(), Object: "secret", ID: uuid.New(), Field: "api-key"}
}

func seal(t *testing.T, r *keyring.Ring, at keyring.Binding, text string) []byte {
	t.Helper()
	sealed, err := r.Seal(at, keyring.NewText(text))
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	r := ring(t, keyring.Generate("k1"))
	rapid.Check(t, func(rt *rapid.T) {
		at, text := binding(), rapid.String().Draw(rt, "text")
		sealed, err := r.Seal(at, keyring.NewText(text))
		if err != nil {
			rt.Fatal(err)
		}
		got, err := r.Open(at, sealed)
		if err != nil || got.Reveal() != text {
			rt.Fatalf("opened %q, %v; want %q", got.Reveal(), err, text)
		}
		if len(text) > 3 && bytes.Contains(sealed, []byte(text)) {
			rt.Fatal("the envelope holds the text")
		}
	})
}

func TestTwoEnvelopesOfOneTextDiffer(t *testing.T) {
	t.Parallel()
	r, at := ring(t, keyring.Generate("k1")), binding()
	if bytes.Equal(seal(t, r, at, canary), seal(t, r, at, canary)) {
		t.Error("the same text was sealed to the same bytes")
	}
}

// A row that is copied to another tenant, thing or name does not open.
func TestAnEnvelopeOpensInItsPlaceOnly(t *testing.T) {
	t.Parallel()
	r, at := ring(t, keyring.Generate("k1")), binding()
	sealed := seal(t, r, at, canary)
	moved := map[string]keyring.Binding{"tenant": at, "object": at, "id": at, "field": at, "parts shifted": at}
	for name, p := range moved {
		switch name {
		case "tenant":
			p.Tenant = uuid.New()
		case "object":
			p.Object = "job"
		case "id":
			p.ID = uuid.New()
		case "field":
			p.Field = "api-key2"
		case "parts shifted":
			p.Object, p.Field = "secre", "tapi-key"
		}
		if got, err := r.Open(p, sealed); !errors.Is(err, keyring.ErrNotOpened) {
			t.Errorf("another %s opened %q, %v", name, got.Reveal(), err)
		}
		if _, err := r.Rewrap(p, sealed); !errors.Is(err, keyring.ErrNotOpened) {
			t.Errorf("another %s was wrapped anew: %v", name, err)
		}
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	t.Parallel()
	r, at := ring(t, keyring.Generate("k1")), binding()
	sealed := seal(t, r, at, canary)
	for i := range len(sealed) * 8 {
		changed := bytes.Clone(sealed)
		changed[i/8] ^= 1 << (i % 8)
		if _, err := r.Open(at, changed); !errors.Is(err, keyring.ErrNotOpened) {
			t.Fatalf("bit %d flipped: %v", i, err)
		}
	}
	for n := range len(sealed) {
		if _, err := r.Open(at, sealed[:n]); !errors.Is(err, keyring.ErrNotOpened) {
			t.Fatalf("%d bytes of %d: %v", n, len(sealed), err)
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	first, second := keyring.Generate("k1"), keyring.Generate("k2")
	old, both, fresh, at := ring(t, first), ring(t, second+", "+first), ring(t, second), binding()
	sealed := seal(t, old, at, canary)
	if _, err := fresh.Open(at, sealed); !errors.Is(err, keyring.ErrNotOpened) {
		t.Errorf("opened without its key: %v", err)
	}
	if got, err := both.Open(at, sealed); err != nil || got.Reveal() != canary {
		t.Errorf("the old key does not open: %v", err)
	}
	again, err := both.Rewrap(at, sealed)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fresh.Open(at, again); err != nil || got.Reveal() != canary {
		t.Errorf("the new key does not open: %v", err)
	}
	if same, err := both.Rewrap(at, again); err != nil || !bytes.Equal(same, again) {
		t.Errorf("an envelope of the current key changed: %v", err)
	}
	// The old key under the new one's id is another key.
	if _, err := ring(t, strings.Replace(first, "k1", "k2", 1)).Open(at, again); !errors.Is(err, keyring.ErrNotOpened) {
		t.Errorf("a key of the same name opened: %v", err)
	}
}

func TestNoKeysFailClosed(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*keyring.Ring{"empty": ring(t, ""), "nil": nil, "zero": {}} {
		if _, err := r.Seal(binding(), keyring.NewText("x")); !errors.Is(err, keyring.ErrNoKeys) {
			t.Errorf("%s: sealed: %v", name, err)
		}
		if _, err := r.Open(binding(), []byte{1, 2, 'k', '1'}); !errors.Is(err, keyring.ErrNotOpened) {
			t.Errorf("%s: opened: %v", name, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := keyring.Generate("a")
	short := base64.StdEncoding.EncodeToString([]byte("sixteen-bytes-!!"))
	for name, text := range map[string]string{
		"no id": strings.TrimPrefix(good, "a:"), "empty id": strings.TrimPrefix(good, "a"), "odd id": "a b" + strings.TrimPrefix(good, "a"),
		"long id": strings.Repeat("a", 33) + strings.TrimPrefix(good, "a"), "short key": "a:" + short, "not base64": "a:" + strings.Repeat("*", 44),
		"twice": good + "," + good, "typed": "a:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("0123", 8))),
	} {
		_, err := keyring.Parse(text)
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if _, key, _ := strings.Cut(text, ":"); key != "" && strings.Contains(err.Error(), key) {
			t.Errorf("%s: the error repeats the key: %v", name, err)
		}
	}
}

func TestATextIsNeverPrinted(t *testing.T) {
	t.Parallel()
	text := keyring.NewText(canary)
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	held := struct {
		Shown  keyring.Text
		hidden keyring.Text
		Map    map[string]keyring.Text
	}{text, text, map[string]keyring.Text{"a": text}}
	logger.Info("held", "text", text, "held", held, "pointer", &held) // what it prints is the test
	encoded, err := json.Marshal(held)
	if err != nil {
		t.Fatal(err)
	}
	printed := log.String() + string(encoded)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		printed += fmt.Sprintf(verb, text) + fmt.Sprintf(verb, held) + fmt.Sprintf(verb, &held) + fmt.Sprintf(verb, []any{text, &text})
	}
	if hex := fmt.Sprintf("%x", canary); strings.Contains(printed, canary) || strings.Contains(printed, hex) {
		t.Errorf("the text was printed: %s", printed)
	}
}
