package rest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// Every request, made of the contract and of nonsense, gets an answer that the contract
// describes, and none reports a defect of ours.
func TestRandomRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Admin)
	g := generator{spec: b.spec, ids: []uuid.UUID{b.makeJob(t, b.theirs).ID, uuid.Nil, {}, {}, {}, {}}}
	answers := map[int]int{}
	deleted := -1
	renew := func() { // what a request deleted
		if answers[http.StatusNoContent] > deleted {
			deleted = answers[http.StatusNoContent]
			made := b.makeJob(t, b.ours)
			g.ids[2], g.ids[3] = made.ID, b.makeExecution(t, b.ours, made.ID).ID
			g.ids[4] = b.makeCalendar(t, b.ours, calendar.Day{Start: "2026-12-25", Yearly: true}).ID
			g.ids[5] = b.makeBackfill(t, b.ours, made.ID).ID
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		renew()
		r := g.request(t)
		r.token = token
		got := b.send(r)
		answers[got.status]++
		if problem := b.undocumented(r, got); problem != "" {
			t.Fatalf("%s\n%s %s %v\n%.500s\nanswer: %d %.500s", problem, r.method, r.path, r.header, r.body, got.status, got.body)
		}
		if got.status >= http.StatusInternalServerError {
			t.Fatalf("%s %s %v\n%.500s\nanswer: %d %s\nlog: %s", r.method, r.path, r.header, r.body, got.status, got.body, b.log)
		}
		b.log.Reset()
	})
	t.Logf("answers by status: %v", answers)
}

// generator draws requests from the contract.
type generator struct {
	spec *openapi3.T
	ids  []uuid.UUID
}

func (g generator) request(t *rapid.T) request {
	template := rapid.SampledFrom(slices.Sorted(maps.Keys(g.spec.Paths.Map()))).Draw(t, "path")
	item := g.spec.Paths.Value(template)
	r := request{method: rapid.SampledFrom(slices.Sorted(maps.Keys(item.Operations()))).Draw(t, "method"), header: map[string]string{}}
	operation := item.GetOperation(r.method)
	path, query := template, url.Values{}
	for _, parameter := range slices.Concat(item.Parameters, operation.Parameters) {
		p := parameter.Value
		if p.In != "path" && rapid.Bool().Draw(t, "leave out "+p.Name) {
			continue
		}
		value := g.text(t, p.Name, p.Schema.Value)
		switch p.In {
		case "path":
			path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(value), 1)
		case "query":
			query.Add(p.Name, value)
		case "header":
			r.header[p.Name] = headerText(value)
		}
	}
	if rapid.IntRange(0, 30).Draw(t, "stray") == 0 {
		query.Add(rapid.String().Draw(t, "stray name"), "x")
	}
	r.path = path
	if len(query) > 0 {
		r.path += "?" + query.Encode()
	}
	if strings.HasSuffix(template, "/import") {
		r.header["Content-Type"] = "text/calendar"
	}
	if r.method == http.MethodPatch {
		r.header["Content-Type"] = mergePatch
	}
	if operation.RequestBody != nil || rapid.IntRange(0, 20).Draw(t, "unasked body") == 0 {
		r.body = g.body(t, operation)
	}
	return r
}

// headerText makes of a text one that HTTP can carry in a header.
func headerText(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '~'
		}
		return c
	}, text)
}

// text draws the text of a parameter: mostly what its schema allows.
func (g generator) text(t *rapid.T, name string, schema *openapi3.Schema) string {
	if (name == "version" || name == "other") && rapid.Bool().Draw(t, "known version") {
		return "1"
	}
	if name == "id" || name == "jobId" || name == "backfillId" {
		if rapid.IntRange(0, 9).Draw(t, "known id") > 0 {
			return rapid.SampledFrom(append(g.ids, g.ids[2:]...)).Draw(t, name).String()
		}
	}
	value := g.value(t, schema, 1)
	if list, ok := value.([]any); ok && len(list) > 0 {
		value = list[0]
	}
	if text, ok := value.(string); ok {
		return text
	}
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func (g generator) body(t *rapid.T, operation *openapi3.Operation) string {
	schema := &openapi3.Schema{}
	if operation.RequestBody != nil && operation.RequestBody.Value.Content.Get("text/calendar") != nil {
		return rapid.SampledFrom([]string{holidays, strings.ToLower(holidays), holidays[:len(holidays)/2], holidays + holidays, "x", "\x00\xff", ""}).Draw(t, "file")
	}
	if operation.RequestBody != nil {
		for _, form := range operation.RequestBody.Value.Content {
			schema = form.Schema.Value
		}
		if form := operation.RequestBody.Value.Content[mergePatch]; form != nil {
			schema = g.spec.Components.Schemas["JobSpec"].Value
		}
	}
	value := g.value(t, schema, 4)
	if schema.Properties["jobType"] != nil && rapid.IntRange(0, 2).Draw(t, "nearly right") > 0 {
		value = g.nearlyRight(t, schema)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	switch rapid.IntRange(0, 20).Draw(t, "damage") {
	case 0: // cut
		text = text[:rapid.IntRange(0, len(text)).Draw(t, "cut")]
	case 1: // something put in
		at := rapid.IntRange(0, len(text)).Draw(t, "at")
		text = text[:at] + rapid.SampledFrom([]string{"\x00", "\xff", `\u0000`, `\ud800`, ",", "}", "[", `"`, "1e999", " "}).Draw(t, "junk") + text[at:]
	}
	return text
}

// nearlyRight draws a definition of a job with at most two fields that may be
// wrong.
func (g generator) nearlyRight(t *rapid.T, schema *openapi3.Schema) any {
	object := map[string]any{"name": "a", "jobType": "http", "config": map[string]any{"url": "https://example.com/"}}
	for range rapid.IntRange(0, 2).Draw(t, "changes") {
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(schema.Properties))).Draw(t, "changed")
		object[name] = g.value(t, schema.Properties[name].Value, 3)
	}
	return object
}

// value draws a value for a schema: mostly one that it allows, at its bounds
// and around them, and now and then one of another type.
func (g generator) value(t *rapid.T, schema *openapi3.Schema, depth int) any {
	if rapid.IntRange(0, 24).Draw(t, "nonsense") == 0 || schema.Type == nil || depth == 0 {
		return g.nonsense(t, depth)
	}
	if len(schema.Enum) > 0 {
		return rapid.SampledFrom(schema.Enum).Draw(t, "enum")
	}
	switch {
	case schema.Type.Is("object"):
		return g.object(t, schema, depth)
	case schema.Type.Is("array"):
		var list []any
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			list = append(list, g.value(t, schema.Items.Value, depth-1))
		}
		return list
	case schema.Type.Is("boolean"):
		return rapid.Bool().Draw(t, "bool")
	case schema.Type.Is("integer"), schema.Type.Is("number"):
		return g.number(t, schema)
	default:
		return g.string(t, schema)
	}
}

func (g generator) object(t *rapid.T, schema *openapi3.Schema, depth int) any {
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		needed := slices.Contains(schema.Required, name) && rapid.IntRange(0, 15).Draw(t, "forget "+name) > 0
		if needed || rapid.IntRange(0, 3).Draw(t, "give "+name) == 0 {
			object[name] = g.value(t, schema.Properties[name].Value, depth-1)
		}
	}
	if len(schema.Properties) == 0 { // config and parameters
		for _, name := range []string{"url", "functionName", "body", "x"} {
			if rapid.IntRange(0, 2).Draw(t, "give "+name) > 0 {
				object[name] = rapid.OneOf(rapid.Just[any]("https://example.com/"), rapid.Just[any](map[string]any{"a": 1})).Draw(t, name)
			}
		}
		delete(object, rapid.SampledFrom([]string{"x", "body", "-"}).Draw(t, "leave out"))
	}
	return object
}

func (g generator) number(t *rapid.T, schema *openapi3.Schema) any {
	bounds := []float64{0, 1, -1, 0.5, 1e15, 1 << 31, 1 << 53, 1e300}
	for _, bound := range []*float64{schema.Min, schema.Max} {
		if bound != nil {
			bounds = append(bounds, *bound, *bound, *bound, *bound+1, *bound-1)
		}
	}
	return rapid.SampledFrom(bounds).Draw(t, "number")
}

func (g generator) string(t *rapid.T, schema *openapi3.Schema) string {
	likely := []string{
		"a", "UTC", "Asia/Shanghai", "Australia/Lord_Howe", "0 0 9 * * 1-5", "*/30 * * * * *", "@hourly", "0 0 0 30 2 *", "PT30S", "1h30m", "P1D", "-1h",
		"2026-12-24", "2026-12-24T18:00", "2026-02-30", "0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10", "2090-01-01T00:00:00Z", "2020-01-01T00:00:00+08:00", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", `"1"`, "*", "key-1",
	}
	switch rapid.IntRange(0, 5).Draw(t, "kind of text") {
	case 0:
		return rapid.String().Draw(t, "text")
	case 1:
		if schema.MaxLength != nil {
			return strings.Repeat("x", int(*schema.MaxLength)+rapid.IntRange(-1, 1).Draw(t, "around"))
		}
	}
	return rapid.SampledFrom(likely).Draw(t, "likely text")
}

func (g generator) nonsense(t *rapid.T, depth int) any {
	plain := []any{nil, true, 0, -1, 1.5, 1e300, "", "x", "0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10"}
	if depth > 1 {
		plain = append(plain, []any{}, map[string]any{}, map[string]any{"id": "x", "status": "paused", "tenantId": 1}, []any{map[string]any{}})
	}
	return rapid.SampledFrom(plain).Draw(t, "nonsense value")
}
