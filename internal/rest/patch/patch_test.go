package patch_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/rest/patch"
)

func decode(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// The examples of RFC 7396, appendix A.
func TestMerge(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ document, change, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		document := decode(t, test.document)
		if diff := cmp.Diff(decode(t, test.want), patch.Merge(document, decode(t, test.change))); diff != "" {
			t.Errorf("%s with %s (-want +got):\n%s", test.document, test.change, diff)
		}
		if diff := cmp.Diff(decode(t, test.document), document); diff != "" {
			t.Errorf("the document was changed: %s", diff)
		}
	}
}

func TestBetween(t *testing.T) {
	t.Parallel()
	from := decode(t, `{"a":1,"b":{"c":"x","d":[1,2]},"e":"gone","same":{"f":true}}`).(map[string]any)
	to := decode(t, `{"a":2,"b":{"c":"x","d":[2,1]},"new":{"g":1},"same":{"f":true}}`).(map[string]any)
	want := []patch.Change{
		{Path: "a", From: 1.0, To: 2.0},
		{Path: "b.d", From: []any{1.0, 2.0}, To: []any{2.0, 1.0}},
		{Path: "e", From: "gone"},
		{Path: "new", To: map[string]any{"g": 1.0}},
	}
	if diff := cmp.Diff(want, patch.Between(from, to)); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
}

// What Between finds, merged, makes the one of the other.
func TestMergingTheChangesMakesTheOther(t *testing.T) {
	t.Parallel()
	var value func(depth int) *rapid.Generator[any]
	object := func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			made := map[string]any{}
			for range rapid.IntRange(0, 3).Draw(t, "names") {
				made[rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")] = value(depth-1).Draw(t, "value")
			}
			return made
		})
	}
	value = func(depth int) *rapid.Generator[any] {
		plain := rapid.SampledFrom([]any{1.0, "x", true, []any{1.0}})
		if depth == 0 {
			return plain
		}
		return rapid.OneOf(plain, object(depth))
	}
	rapid.Check(t, func(t *rapid.T) {
		from := object(3).Draw(t, "from").(map[string]any)
		to := object(3).Draw(t, "to").(map[string]any)
		var result any = from
		for _, change := range patch.Between(from, to) {
			result = patch.Merge(result, at(change.Path, change.To))
		}
		if left := patch.Between(result.(map[string]any), to); len(left) > 0 {
			t.Errorf("%v is left between %v and %v", left, from, to)
		}
	})
}

// at writes a value at a path as a merge patch.
func at(path string, value any) any {
	for i := len(path) - 1; i > 0; i -= 2 {
		value = map[string]any{path[i:]: value}
		path = path[:i-1]
	}
	return map[string]any{path: value}
}
