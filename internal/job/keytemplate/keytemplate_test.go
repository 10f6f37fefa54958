package keytemplate_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/job/keytemplate"
)

func TestRender(t *testing.T) {
	t.Parallel()
	run := keytemplate.Run{
		JobID: uuid.MustParse("0190a6b4-5c2e-7a31-8f5e-0d4f7b1c2a3d"), JobName: "sync", JobType: "http",
		Config:     []byte(`{"url":"https://example.com","body":{"deviceId":"d-7","n":12345678901234567,"on":true,"list":["a",{"b":"c"}],"null":null}}`),
		Parameters: []byte(`{"account":42}`),
	}
	for _, test := range []struct{ template, want string }{
		{"", ""},
		{"the whole tenant", "the whole tenant"},
		{"device-{{config.body.deviceId}}", "device-d-7"},
		{"{{ parameters.account }}", "42"},
		{"{{job.id}}/{{job.name}}/{{job.jobType}}", "0190a6b4-5c2e-7a31-8f5e-0d4f7b1c2a3d/sync/http"},
		{"{{config.body.n}} {{config.body.on}}", "12345678901234567 true"},
		{"{{config.body.list.0}}{{config.body.list.1.b}}", "ac"},
		{"{{config.body.list.2}}{{config.body.list.x}}{{config.body.list}}{{config.body.null}}{{config.body}}{{config.nothing.here}}", ""},
		{"device-{{parameters.nothing}}", "device-"},
		{"a { b } c", "a { b } c"},
	} {
		template, err := keytemplate.Parse(test.template)
		if err != nil {
			t.Errorf("%q: %v", test.template, err)
			continue
		}
		if got := template.Render(run); got != test.want {
			t.Errorf("%q renders to %q, want %q", test.template, got, test.want)
		}
	}
	template, _ := keytemplate.Parse("{{parameters.account}}")
	if got := template.Render(keytemplate.Run{}); got != "" {
		t.Errorf("without parameters: %q", got)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"{{config.a":                     "without its }}",
		"config.a}}":                     "without its {{",
		"{{}}":                           "no path",
		"{{config}}":                     "names no field",
		"{{config.}}":                    "no path",
		"{{config.a b}}":                 "no path",
		"{{upper(config.a)}}":            "no path",
		"{{config.{{a}}}}":               "no path",
		"{{env.HOME}}":                   "none of config, parameters and job",
		"{{job.tenantId}}":               "of a job there are id, name, jobType",
		"{{job.id.x}}":                   "of a job there are",
		"a\nb":                           "control character",
		"a\x00b":                         "control character",
		strings.Repeat("ä", 201):         "is 201 characters long",
		strings.Repeat("{{job.id}}", 11): "more than 10",
	} {
		if _, err := keytemplate.Parse(template); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", template, err, want)
		}
	}
}

// However long what is found is, the key is bounded, valid, and another one for
// another value.
func TestKeysAreBoundedAndTheirOwn(t *testing.T) {
	t.Parallel()
	template, err := keytemplate.Parse("k-{{job.name}}")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(0, 400, -1).Draw(t, "name")
		one := template.Render(keytemplate.Run{JobName: name})
		other := template.Render(keytemplate.Run{JobName: name + "x"})
		if len(one) > 256 || !utf8.ValidString(one) || one == other {
			t.Fatalf("%q and %q", one, other)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("device-{{config.body.deviceId}}", `{"body":{"deviceId":1}}`)
	f.Fuzz(func(t *testing.T, text, config string) {
		template, err := keytemplate.Parse(text)
		if err != nil {
			return
		}
		if key := template.Render(keytemplate.Run{Config: []byte(config)}); len(key) > 256 || strings.Contains(key, "\x00") {
			t.Fatalf("%q", key)
		}
	})
}
