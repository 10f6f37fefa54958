package cursor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

var (
	list  = cursor.List{Tenant: uuid.MustParse("0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10"), Route: "GET /jobs", Filters: "status=active"}
	place = cursor.Place{At: time.Date(2026, 3, 1, 9, 0, 0, 123456000, time.UTC), ID: uuid.MustParse("0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f11")}
)

func newCodec(t testing.TB, secret string) *cursor.Codec {
	t.Helper()
	codec, err := cursor.New([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

func TestDecodeReadsWhatEncodeWrote(t *testing.T) {
	t.Parallel()
	codec := newCodec(t, "a")
	rapid.Check(t, func(t *rapid.T) {
		want := cursor.Place{
			At: time.UnixMicro(rapid.Int64Range(-1<<55, 1<<55).Draw(t, "at")).UTC(),
			ID: uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
		}
		in := cursor.List{Route: rapid.String().Draw(t, "route"), Filters: rapid.String().Draw(t, "filters")}
		got, err := codec.Decode(in, codec.Encode(in, want))
		if err != nil || got != want {
			t.Fatalf("Decode = %v, %v; want %v", got, err, want)
		}
	})
}

func TestDecodeRefusesEveryOtherText(t *testing.T) {
	t.Parallel()
	codec := newCodec(t, "a")
	good := codec.Encode(list, place)
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for i := range good {
		for _, c := range alphabet + "=+/\n\r \x00" {
			text := good[:i] + string(c) + good[i+1:]
			if text == good {
				continue
			}
			if got, err := codec.Decode(list, text); err != cursor.ErrInvalid {
				t.Fatalf("character %d as %q: Decode = %v, %v", i, c, got, err)
			}
		}
	}
	for name, text := range map[string]string{
		"empty": "", "cut": good[:len(good)-1], "longer": good + "A", "padded": good + "=", "twice": good + good,
		"a line break in it": good[:10] + "\n" + good[10:], "line breaks instead of characters": good[:len(good)-4] + "\n\n\n\n",
	} {
		if got, err := codec.Decode(list, text); err != cursor.ErrInvalid {
			t.Errorf("%s: Decode = %v, %v", name, got, err)
		}
	}
}

func TestDecodeRefusesEveryOtherList(t *testing.T) {
	t.Parallel()
	codec := newCodec(t, "a")
	good := codec.Encode(list, place)
	for name, other := range map[string]cursor.List{
		"tenant":             {Tenant: uuid.New(), Route: list.Route, Filters: list.Filters},
		"route":              {Tenant: list.Tenant, Route: "GET /executions", Filters: list.Filters},
		"filters":            {Tenant: list.Tenant, Route: list.Route, Filters: "status=paused"},
		"no filters":         {Tenant: list.Tenant, Route: list.Route},
		"the border between": {Tenant: list.Tenant, Route: list.Route + "s", Filters: strings.TrimPrefix(list.Filters, "s")},
	} {
		if _, err := codec.Decode(other, good); err != cursor.ErrInvalid {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if _, err := newCodec(t, "b").Decode(list, good); err != cursor.ErrInvalid {
		t.Errorf("another secret: %v", err)
	}
}

// Only the one text of a place is read, and never with
// a panic.
func FuzzDecode(f *testing.F) {
	codec := newCodec(f, "a")
	good := codec.Encode(list, place)
	f.Add(good)
	f.Add(strings.ToLower(good))
	f.Add("")
	f.Add(good[1:] + "A")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := codec.Decode(list, text)
		if err == nil && codec.Encode(list, got) != text {
			t.Fatalf("%q is read as %v, whose text is %q", text, got, codec.Encode(list, got))
		}
	})
}
