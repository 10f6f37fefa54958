package parameters_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/executor/parameters"
)

type sample struct {
	Text    string         `json:"text" doc:"a text"`
	Word    string         `json:"word,omitempty" enum:"a,b"`
	Small   int8           `json:"small,omitempty"`
	Count   uint           `json:"count,omitempty"`
	Share   float64        `json:"share,omitempty"`
	On      *bool          `json:"on"`
	At      time.Time      `json:"at,omitzero"`
	List    []int          `json:"list,omitempty"`
	Inner   *inner         `json:"inner"`
	Map     map[string]int `json:"map,omitempty"`
	Any     any            `json:"any,omitempty"`
	Hidden  string         `json:"-"`
	private string
}

type inner struct{ Name string }

type endless struct {
	Next []endless `json:"next,omitempty"`
}

func TestSchemaChecks(t *testing.T) {
	t.Parallel()
	schema, err := parameters.SchemaOf(reflect.TypeFor[sample]())
	if err != nil {
		t.Fatal(err)
	}
	// As it comes back from the database.
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	var stored parameters.Schema
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, value string
		want        []string
	}{
		{"the least", `{"text":"a"}`, nil},
		{"all", `{"text":"a","word":"b","small":-128,"count":0,"share":0.5,"on":true,"at":"2026-03-01T09:00:00Z","list":[1,2],"inner":{"Name":"x"},"map":{"y":1},"any":[{}]}`, nil},
		{"nulls", `{"text":"a","word":null,"on":null,"list":null}`, nil},
		{"nothing", ``, []string{"p.text required"}},
		{"null for what must be there", `{"text":null}`, []string{"p.text required"}},
		{"unknown", `{"text":"a","txt":1}`, []string{"p.txt unknown"}},
		{"private", `{"text":"a","private":"b","Hidden":"c"}`, []string{"p.Hidden unknown", "p.private unknown"}},
		{"types", `{"text":1,"word":2,"small":"1","share":"x","on":1,"at":1,"list":{},"inner":[],"map":[]}`, []string{
			"p.at type", "p.inner type", "p.list type", "p.map type", "p.on type", "p.share type", "p.small type", "p.text type", "p.word type",
		}},
		{"bounds", `{"text":"a","word":"c","small":128,"count":-1,"at":"tomorrow","list":[1.5]}`, []string{
			"p.at format", "p.count range", "p.list[0] type", "p.small range", "p.word enum",
		}},
		{"within", `{"text":"a","inner":{"Name":1},"map":{"x":"y"}}`, []string{"p.inner.Name type", "p.map.x type"}},
		{"what is known when it runs", `{"text":"a","word":"{{secret:word}}","at":"{{run:scheduledAt}}"}`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, f := range stored.Check("p", json.RawMessage(test.value)) {
				got = append(got, f.Path+" "+f.Rule)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
		})
	}
	_ = sample{}.private
}

func TestSchemaRefusesTypes(t *testing.T) {
	t.Parallel()
	for _, refused := range []reflect.Type{
		reflect.TypeFor[endless](), reflect.TypeFor[chan int](), reflect.TypeFor[map[int]string](), reflect.TypeFor[struct{ inner }](), reflect.TypeFor[struct{ F func() }](),
	} {
		if _, err := parameters.SchemaOf(refused); err == nil {
			t.Errorf("%v has a schema", refused)
		}
	}
}

// A schema that another build wrote checks what it can and never panics.
func TestForeignSchemas(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{}`, `{"type":"object","properties":{"a":null}}`, `{"type":"what"}`, `{"type":"array"}`, `{"type":"object","required":["a"],"oneOf":[1]}`} {
		var schema parameters.Schema
		if err := json.Unmarshal([]byte(text), &schema); err != nil {
			t.Fatal(err)
		}
		schema.Check("p", json.RawMessage(`{"a":[1]}`))
	}
}
