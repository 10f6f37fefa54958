package secret

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, config, masked string
		paths                []string
	}{
		{"nothing", `{"url":"https://a.example/?a=b","headers":{"Accept":"x"}}`, "", nil},
		{
			"headers", `{"headers":{"Authorization":"Bearer abc","x_api-Key":"k","X-Code":"c","Cookie":"s=1"}}`,
			`{"headers":{"Authorization":"***","Cookie":"***","X-Code":"c","x_api-Key":"***"}}`,
			[]string{"headers.Authorization", "headers.Cookie", "headers.x_api-Key"},
		},
		{
			"keys of gateways", `{"headers":{"Ocp-Apim-Subscription-Key":"a","X-Functions-Key":"b","X-JWT":"c","X-Session-Id":"d","X-Cache-Key":"e"}}`,
			`{"headers":{"Ocp-Apim-Subscription-Key":"***","X-Cache-Key":"e","X-Functions-Key":"***","X-JWT":"***","X-Session-Id":"***"}}`,
			[]string{"headers.Ocp-Apim-Subscription-Key", "headers.X-Functions-Key", "headers.X-JWT", "headers.X-Session-Id"},
		},
		{"query", `{"url":"https://a.example/p?sig=a%20b&x=1&token=2&token=3#f"}`, `{"url":"https://a.example/p?sig=***&x=1&token=***&token=***#f"}`, []string{"url", "url", "url"}},
		{
			"body", `{"body":{"user":"u","password":"p","deep":[{"client_secret":"s"}],"code":"c","tokens":["a"],"token":5,"note":""}}`,
			`{"body":{"code":"c","deep":[{"client_secret":"***"}],"note":"","password":"***","token":5,"tokens":["***"],"user":"u"}}`,
			[]string{"body.deep[0].client_secret", "body.password", "body.tokens[0]"},
		},
		{"references are no credentials", `{"headers":{"Authorization":"Bearer {{secret:a}}","X-Api-Key":"{{secret:b}}"},"url":"https://a.example/?token={{secret:c}}"}`, "", nil},
		{"half a reference is one", `{"headers":{"Authorization":"abc{{secret:a}}"}}`, `{"headers":{"Authorization":"***"}}`, []string{"headers.Authorization"}},
		{"no JSON", `{`, "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			masked, credentials := split(json.RawMessage(test.config))
			want := test.masked
			if want == "" {
				want = test.config
			}
			if diff := cmp.Diff(want, string(masked)); diff != "" {
				t.Errorf("masked (-want +got):\n%s", diff)
			}
			var paths []string
			texts := map[string]string{}
			for _, c := range credentials {
				paths = append(paths, c.path)
				texts[c.key] = c.text.Reveal()
			}
			if diff := cmp.Diff(test.paths, paths); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
			if len(texts) != len(credentials) {
				t.Error("two places have one key")
			}
			back, err := restore(masked, texts)
			if err != nil {
				if test.masked != "" {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(canonical(t, test.config), canonical(t, string(back))); diff != "" {
				t.Errorf("restored (-want +got):\n%s", diff)
			}
		})
	}
}

func canonical(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// Each part that is taken out comes back where it was, and nothing else moves.
func TestSplitAndRestoreAreInverse(t *testing.T) {
	t.Parallel()
	name := rapid.SampledFrom([]string{"a", "password", "a.b", "token", "X-Api-Key", "api_key", "0", "[0]"})
	rapid.Check(t, func(rt *rapid.T) {
		tree := map[string]any{}
		for range rapid.IntRange(1, 6).Draw(rt, "members") {
			into := tree
			for range rapid.IntRange(1, 3).Draw(rt, "depth") {
				key := name.Draw(rt, "name")
				next, ok := into[key].(map[string]any)
				if !ok {
					next = map[string]any{}
					into[key] = next
				}
				into = next
			}
			into[name.Draw(rt, "leaf")] = rapid.StringMatching(`[a-z*]{0,6}`).Draw(rt, "value")
		}
		config, _ := json.Marshal(map[string]any{"body": tree})
		masked, credentials := split(config)
		texts := map[string]string{}
		for _, c := range credentials {
			texts[c.key] = c.text.Reveal()
		}
		back, err := restore(masked, texts)
		if err != nil {
			rt.Fatal(err)
		}
		if string(back) != string(config) {
			rt.Fatalf("%s\nbecame %s\nand then %s", config, masked, back)
		}
	})
}

func TestReferences(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, config string
		names, rules []string
	}{
		{"all places", `{"url":"https://h.example/a/{{secret:p}}?k={{secret:q}}","headers":{"A":"x {{secret:h}} {{secret:q}}"},"body":["{{secret:b}}"]}`, []string{"b", "h", "p", "q"}, nil},
		{"signing keys", `{"url":"https://h.example/","signingKeys":["{{secret:a}}","{{secret:b}}"]}`, []string{"a", "b"}, nil},
		{"host", `{"url":"https://{{secret:h}}/"}`, []string{"h"}, []string{"config.url place"}},
		{"scheme", `{"url":"{{secret:h}}"}`, []string{"h"}, []string{"config.url place"}},
		{"fragment", `{"url":"https://h.example/#{{secret:h}}"}`, []string{"h"}, []string{"config.url place"}},
		{"method", `{"method":"{{secret:m}}"}`, []string{"m"}, []string{"config.method place"}},
		{"of the run", `{"url":"https://h.example/{{run:jobId}}?at={{run:scheduledAt}}","headers":{"A":"{{run:attempt}}"},"body":["{{run:executionId}} {{run:tenantId}}"]}`, []string{}, nil},
		{"of the run, host", `{"url":"https://{{run:tenantId}}.example/"}`, []string{}, []string{"config.url place"}},
		{"of the run, host and path", `{"url":"https://{{run:tenantId}}.example/{{run:attempt}}"}`, []string{}, []string{"config.url place"}},
		{"of the run, method", `{"method":"{{run:attempt}}"}`, []string{}, []string{"config.method place"}},
		{"of the run, unknown", `{"body":"{{run:password}}"}`, []string{}, []string{"config.body reference"}},
		{"another's template", `{"body":"{{name}} {{#each}}"}`, []string{}, nil},
		{"no name", `{"body":"{{secret:}}"}`, []string{}, []string{"config.body reference"}},
		{"odd name", `{"body":{"a":"{{secret:a b}}"}}`, []string{}, []string{"config.body.a reference"}},
		{"cut", `{"body":"{{secret:a"}`, []string{}, []string{"config.body reference"}},
		{"long name", `{"body":"{{secret:` + strings.Repeat("a", 65) + `}}"}`, []string{}, []string{"config.body reference"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			uses, faults := references("config", json.RawMessage(test.config), holders)
			var rules []string
			for _, f := range faults {
				rules = append(rules, f.Path+" "+f.Rule)
			}
			if diff := cmp.Diff(test.names, namesOf(uses)); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.rules, rules); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// A value stands for itself alone, whatever characters it has.
func TestFillEscapes(t *testing.T) {
	t.Parallel()
	texts := map[string]keyring.Text{
		"a": keyring.NewText(`T0/B0 ?&="}` + "\n{{secret:b}}"), "b": keyring.NewText("no"), runOpening + "attempt": keyring.NewText("2&"),
	}
	got, err := fill(json.RawMessage(`{"url":"https://h.example/{{secret:a}}?x={{secret:a}}&y={{run:attempt}}","body":{"{{secret:a}}":"<{{secret:a}}>","n":1e2}}`), texts)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"body":{"n":1e2,"{{secret:a}}":"<T0/B0 ?&=\"}\n{{secret:b}}>"},` +
		`"url":"https://h.example/T0/B0%20%3F&=%22%7D%0A%7B%7Bsecret:b%7D%7D?x=T0%2FB0+%3F%26%3D%22%7D%0A%7B%7Bsecret%3Ab%7D%7D&y=2%26"}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInline(t *testing.T) {
	t.Parallel()
	got := Inline(json.RawMessage(`{"headers":{"Authorization":"Bearer x","A":"b"},"query":{"token":"1","code":"2"},"password":"p","body":{"api_key":"{{secret:k}}"}}`))
	var paths []string
	for _, f := range got {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{"parameters.headers.Authorization", "parameters.password", "parameters.query.token"}, paths); diff != "" {
		t.Error(diff)
	}
}
