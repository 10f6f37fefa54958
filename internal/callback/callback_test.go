package callback_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

func ring(t *testing.T, text string) *keyring.Ring {
	t.Helper()
	r, err := keyring.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func attempt(n int) callback.Attempt {
	return callback.Attempt{Tenant: uuid.New(), Fence: dispatch.Fence{ID: uuid.New(), Attempt: n, Token: uuid.New()}}
}

func TestATokenOpensItsAttemptAlone(t *testing.T) {
	t.Parallel()
	first, second := keyring.Generate("k1"), keyring.Generate("k2")
	keys := ring(t, first)
	rapid.Check(t, func(rt *rapid.T) {
		a := attempt(rapid.IntRange(1, 200).Draw(rt, "attempt"))
		token, err := callback.Token(keys, a)
		if err != nil || len(token) > 400 {
			rt.Fatal(len(token), err)
		}
		for _, with := range []*keyring.Ring{keys, ring(t, second+","+first)} {
			if got, err := callback.Open(with, token); err != nil || got != a {
				rt.Fatalf("opened %+v, %v, want %+v", got, err, a)
			}
		}
		raw, _ := base64.RawURLEncoding.DecodeString(token)
		if strings.Contains(string(raw), string(a.Token[:])) {
			rt.Fatal("the token shows the lease token")
		}
		raw[rapid.IntRange(0, len(raw)-1).Draw(rt, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		if got, err := callback.Open(keys, base64.RawURLEncoding.EncodeToString(raw)); !errors.Is(err, callback.ErrForeign) {
			rt.Fatalf("a changed token opened %+v, %v", got, err)
		}
	})
	token, err := callback.Token(keys, attempt(1))
	if err != nil {
		t.Fatal(err)
	}
	for name, with := range map[string]*keyring.Ring{"another key": ring(t, second), "no key": ring(t, ""), "no ring": nil} {
		if _, err := callback.Open(with, token); !errors.Is(err, callback.ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "a", token + "A", token[1:], strings.Repeat("_", 300), token + "=", "\x00" + token} {
		if _, err := callback.Open(keys, text); !errors.Is(err, callback.ErrForeign) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestNoTokenWithoutAKey(t *testing.T) {
	t.Parallel()
	if _, err := callback.Token(ring(t, ""), attempt(1)); err == nil {
		t.Error("a token was made without a key")
	}
}
