package strictjson_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/rest/strictjson"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	object := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"n%d":1`, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	for _, test := range []struct {
		name, raw string
		want      []string // faults as "path rule"
	}{
		{"an object", `{"a":[1,{"b":null}],"c":"x","d":true}`, nil},
		{"a text", `"a"`, nil},
		{"white space around", " \n{}\t", nil},
		{"the same name on two levels", `{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}`, nil},
		{"names that differ in case", `{"a":1,"A":2}`, nil},
		{"a surrogate pair", `{"a":"\ud83d\ude00"}`, nil},
		{"an escaped backslash before u0000", `{"a":"\\u0000"}`, nil},
		{"brackets in a text", `{"a":"` + strings.Repeat("[", 100) + `\"{"}`, nil},
		{"as deep as may be", nested(32), nil},
		{"as many names as may be", object(10_000), nil},
		{"a big number", `{"a":1e308,"b":-1E-308,"c":12345678901234567890.123}`, nil},

		{"nothing", "", []string{"body syntax"}},
		{"blank", "  ", []string{"body syntax"}},
		{"cut off", `{"a":`, []string{"body syntax"}},
		{"an open text", `{"a":"b`, []string{"body syntax"}},
		{"a comma too many", `{"a":1,}`, []string{"body syntax"}},
		{"text after the value", `{} {}`, []string{"body syntax"}},
		{"a bracket after the value", `{}]`, []string{"body syntax"}},
		{"a comment", `{} // x`, []string{"body syntax"}},
		{"a byte order mark", "\ufeff{}", []string{"body syntax"}},
		{"single quotes", `{'a':1}`, []string{"body syntax"}},
		{"NaN", `{"a":NaN}`, []string{"body syntax"}},
		{"a leading zero", `{"a":01}`, []string{"body syntax"}},
		{"a raw control character", "{\"a\":\"\x00\"}", []string{"body syntax"}},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", []string{"body encoding"}},
		{"an encoded surrogate", "{\"a\":\"\xed\xa0\x80\"}", []string{"body encoding"}},
		{"an escaped NUL", `{"a":"\u0000"}`, []string{"body characters"}},
		{"an escaped NUL in a name", `{"\u0000":1}`, []string{"body characters"}},
		{"a high surrogate alone", `{"a":"\ud83d"}`, []string{"body characters"}},
		{"a high surrogate and a letter", `{"a":"\ud83d\u0041"}`, []string{"body characters"}},
		{"a low surrogate alone", `{"a":"\uDE00"}`, []string{"body characters"}},
		{"two high surrogates", `{"a":"\ud83d\ud83d"}`, []string{"body characters"}},
		{"a name twice", `{"a":1,"a":2}`, []string{"a duplicate"}},
		{"a name twice, once escaped", `{"a":1,"\u0061":2}`, []string{"a duplicate"}},
		{"names twice further down", `{"a":[0,{"b":{"c":1,"c":2}}],"d":1,"d":1}`, []string{"a[1].b.c duplicate", "d duplicate"}},
		{"too deep", nested(33), []string{"body depth"}},
		{"far too deep", nested(100_000), []string{"body depth"}},
		{"deep and never closed", strings.Repeat(`{"a":`, 100_000), []string{"body depth"}},
		{"too many names", object(10_001), []string{"body names"}},
		{"a number out of range", `{"a":{"b":1e999999}}`, []string{"a.b range"}},
		{"a number too near to zero", `{"a":1e-999999}`, []string{"a range"}},
		{"a number just out of range", `[1e309]`, []string{"[0] range"}},
		{"an exponent that overflows", `[1e99999999999999999999]`, []string{"[0] range"}},
		{"a number of many digits", `[` + strings.Repeat("9", 101) + `]`, []string{"[0] range"}},
		{"a number alone", `1e999`, []string{"body range"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			value, faults := strictjson.Decode([]byte(test.raw), strictjson.MaxNames)
			var got []string
			for _, f := range faults {
				got = append(got, f.Path+" "+f.Rule)
				if f.Message == "" {
					t.Errorf("fault %v says nothing", f)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
			if len(faults) > 0 && value != nil {
				t.Errorf("a value comes with faults: %v", value)
			}
		})
	}
}

func TestDecodeBoundsItsFaults(t *testing.T) {
	t.Parallel()
	_, faults := strictjson.Decode([]byte("{"+strings.Repeat(`"a":1,`, 500)+`"a":1}`), strictjson.MaxNames)
	if len(faults) != 50 {
		t.Errorf("%d faults, want the list cut at 50", len(faults))
	}
}

func TestJoinCutsLongNames(t *testing.T) {
	t.Parallel()
	if got := strictjson.Join("a", strings.Repeat("é", 100)); got != "a."+strings.Repeat("é", 30)+"…" {
		t.Errorf("Join = %q", got)
	}
}

// Accepted text is what encoding/json reads, value for value: the handler's
// decoder and the contract's check cannot be told different things.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"a":1}`, `[1,2,{"b":"\ud83d\ude00"}]`, `{"a":1,"a":2}`, `"\u0000"`, `1e999`, `{"a":"\\"}`, "{} x", `{"":{"":[]}}`, `"\ud800\\udc00"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		value, faults := strictjson.Decode(raw, strictjson.MaxNames)
		if len(faults) > 0 {
			return
		}
		decoder := json.NewDecoder(strings.NewReader(string(raw)))
		decoder.UseNumber()
		var want any
		if err := decoder.Decode(&want); err != nil {
			t.Fatalf("%q passed, and encoding/json says %v", raw, err)
		}
		if diff := cmp.Diff(want, value); diff != "" {
			t.Fatalf("%q is read in two ways (-encoding/json +strictjson):\n%s", raw, diff)
		}
		if text, err := json.Marshal(value); err != nil || strings.Contains(string(text), `\u0000`) && !strings.Contains(string(text), `\\u0000`) {
			t.Fatalf("%q passed with a NUL: %s, %v", raw, text, err)
		}
	})
}
