package executor_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/executor"
)

func TestReadObjectListsAllFaults(t *testing.T) {
	t.Parallel()
	var many string
	for i := range 40 {
		many += fmt.Sprintf(`"n%d":1,`, i)
	}
	for _, test := range []struct {
		name, raw string
		want      []string
	}{
		{"fine", `{"a":"x","b":{"c":[1,{"d":2}]}}`, nil},
		{"null is absent", `{"a":null}`, nil},
		{"nothing", "", []string{"config required"}},
		{"blank", " \n", []string{"config required"}},
		{"not JSON", `{a:1}`, []string{"config syntax"}},
		{"two values", `{} {}`, []string{"config syntax"}},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", []string{"config syntax"}},
		{"an array", `[]`, []string{"config type"}},
		{"null", `null`, []string{"config type"}},
		{"a text", `"a"`, []string{"config type"}},
		{"unknown names, all of them", `{"z":1,"y":2}`, []string{"config.y unknown", "config.z unknown"}},
		{"case counts", `{"A":"x"}`, []string{"config.A unknown"}},
		{"wrong type", `{"a":1}`, []string{"config.a type"}},
		{"twice", `{"a":"x","a":"y"}`, []string{"config.a duplicate"}},
		{"twice by an escape", `{"a":"x","\u0061":"y"}`, []string{"config.a duplicate"}},
		{"twice further down", `{"b":[0,{"c":1,"c":2}]}`, []string{"config.b[1].c duplicate"}},
		{"twice, before a blank", "{\"b\":{\"c\" \n\t :1,\"c\":2}}", []string{"config.b.c duplicate"}},
		{"twice, behind many", `{"b":{` + many + `"c":1,"c":2}}`, []string{"config.b.c duplicate"}},
		{"once among many", `{"b":{` + many + `"c":1}}`, nil},
		{"a value like a name", `{"b":["c","c",{"c":"c"}]}`, nil},
		{"same name on two levels", `{"b":{"b":{"a":1}}}`, nil},
		{"NUL", `{"a":"\u0000"}`, []string{"config characters"}},
		{"number out of range", `{"b":1e5000}`, []string{"config range"}},
		{"too deep", `{"b":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, []string{"config range"}},
		{"several at once", `{"a":1,"q":1,"b":1,"b":1}`, []string{"config.b duplicate", "config.q unknown", "config.a type"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			object := executor.ReadObject("config", json.RawMessage(test.raw), "a", "b")
			var a string
			object.Read("a", &a, "a text")
			if diff := cmp.Diff(test.want, rules(object.Faults())); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadObjectBoundsItsFaults(t *testing.T) {
	t.Parallel()
	var raw strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&raw, `,"f%d":1`, i)
	}
	object := executor.ReadObject("config", json.RawMessage("{"+raw.String()[1:]+"}"))
	if got := len(object.Faults()); got != 50 {
		t.Errorf("%d faults, want the list cut at 50", got)
	}
}

func TestRequire(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		raw  string
		want []string
	}{
		{`{"a":"x"}`, nil},
		{`{}`, []string{"config.a required"}},
		{`{"a":null}`, []string{"config.a required"}},
		{`{"a":1}`, []string{"config.a type"}},
		{`[]`, []string{"config type"}},
	} {
		t.Run(test.raw, func(t *testing.T) {
			t.Parallel()
			object := executor.ReadObject("config", json.RawMessage(test.raw), "a")
			var a string
			if got := object.Require("a", &a, "a text"); got != (test.want == nil) {
				t.Errorf("Require = %v", got)
			}
			if diff := cmp.Diff(test.want, rules(object.Faults())); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
		})
	}
}

// Reading arbitrary bytes ends without a panic, and what passes
// without a fault is an object that encoding/json reads the same way.
func TestReadObjectNeverPanics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.StringMatching(`[{}\[\]",:a\\u0dD8e19.\-]{0,40}`).Draw(t, "raw")
		object := executor.ReadObject("config", json.RawMessage(raw), "a")
		var into map[string]any
		if len(object.Faults()) == 0 && json.Unmarshal([]byte(raw), &into) != nil {
			t.Fatalf("%q passed, but is no object", raw)
		}
	})
}
