package schedctl

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/scheduler-service/scheduler/api"
)

// Each command is an operation of the contract, with parameters and fields that it has.
func TestCommandsFitTheContract(t *testing.T) {
	t.Parallel()
	contract, err := api.GetSpec()
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, g := range groups {
		for _, c := range g.calls {
			calls++
			t.Run(g.name+" "+c.use, func(t *testing.T) {
				t.Parallel()
				fits(t, contract, c)
			})
		}
	}
	if calls < 40 {
		t.Errorf("only %d commands", calls)
	}
}

// The commands on sets call what the contract has, and fill no section beyond its bound.
func TestSetsFitTheContract(t *testing.T) {
	t.Parallel()
	contract, err := api.GetSpec()
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"plan", "apply"} {
		path := contract.Paths.Value(base + "/sets/{name}/" + verb)
		if path == nil || path.Post == nil {
			t.Fatalf("the contract has no %s of a set", verb)
		}
		body := path.Post.RequestBody.Value.Content.Get("application/json").Schema.Value
		if most := body.Properties["jobs"].Value.MaxItems; most == nil || *most < sectionJobs {
			t.Errorf("%s takes %v jobs, not %d", verb, most, sectionJobs)
		}
		if most, _ := path.Post.Extensions["x-max-body"].(float64); most < 2*sectionBytes {
			t.Errorf("%s takes %.0f bytes, not %d with room for the rest", verb, most, sectionBytes)
		}
	}
}

func fits(t *testing.T, contract *openapi3.T, c call) {
	t.Helper()
	path := contract.Paths.Value(base + c.path)
	if path == nil || path.GetOperation(c.method) == nil {
		t.Fatalf("the contract has no %s %s", c.method, c.path)
	}
	operation := path.GetOperation(c.method)
	known := func(in, name string) bool {
		return path.Parameters.GetByInAndName(in, name) != nil || operation.Parameters.GetByInAndName(in, name) != nil
	}
	got, want := strings.Count(c.path, "{"), len(strings.Fields(c.use))-1
	if c.last != "" {
		got++
		if body := operation.RequestBody.Value.Content.Get("application/json").Schema.Value; body.Properties[c.last] == nil {
			t.Errorf("its body has no %s", c.last)
		}
	}
	if got != want {
		t.Errorf("%d arguments for a path and a body of %d", want, got)
	}
	for _, name := range c.query {
		if !known(openapi3.ParameterInQuery, name) {
			t.Errorf("its query has no %s", name)
		}
	}
	lacksNoFilter(t, operation, c)
	if c.items && (!known(openapi3.ParameterInQuery, "cursor") || !known(openapi3.ParameterInQuery, "limit")) {
		t.Error("it is no list that is read page by page")
	}
	if c.items {
		limit := operation.Parameters.GetByInAndName(openapi3.ParameterInQuery, "limit")
		if most := limit.Schema.Value.Max; most == nil || *most < pageSize {
			t.Errorf("a page has at most %v items, not %d", most, pageSize)
		}
	}
	if c.key != known(openapi3.ParameterInHeader, "Idempotency-Key") || c.match != known(openapi3.ParameterInHeader, "If-Match") {
		t.Errorf("Idempotency-Key %v, If-Match %v: the contract says otherwise", c.key, c.match)
	}
	if hasBody := operation.RequestBody != nil; c.file && !hasBody || len(c.fields)+len(c.values) > 0 && !hasBody {
		t.Fatal("it has no body")
	}
	for _, name := range slices.Concat(c.fields, c.values) {
		schema := operation.RequestBody.Value.Content.Get("application/json").Schema.Value
		property := schema.Properties[name]
		if property == nil {
			t.Errorf("its body has no %s", name)
			continue
		}
		if isText := property.Value.Type.Is("string"); isText != slices.Contains(c.fields, name) {
			t.Errorf("%s is a text: %v", name, isText)
		}
	}
	fitsAnswer(t, operation, c)
}

// lacksNoFilter wants every filter of a list among the command's.
func lacksNoFilter(t *testing.T, operation *openapi3.Operation, c call) {
	t.Helper()
	for _, one := range operation.Parameters {
		name := one.Value.Name
		if c.items && one.Value.In == openapi3.ParameterInQuery && !slices.Contains(append([]string{"cursor", "limit", "include"}, c.query...), name) {
			t.Errorf("its query lacks %s of the contract", name)
		}
	}
}

// fitsAnswer holds the columns against the schema of the answer.
func fitsAnswer(t *testing.T, operation *openapi3.Operation, c call) {
	t.Helper()
	var answer *openapi3.Schema
	for _, status := range []int{http.StatusOK, http.StatusCreated, http.StatusAccepted} {
		if response := operation.Responses.Status(status); response != nil && response.Value.Content.Get("application/json") != nil {
			answer = response.Value.Content.Get("application/json").Schema.Value
		}
	}
	if len(c.columns) == 0 {
		return
	}
	if answer == nil {
		t.Fatal("it has columns and answers nothing")
	}
	if list := property(answer, "items"); list != nil {
		answer = list.Items.Value
	}
	for _, column := range c.columns {
		for name := range strings.SplitSeq(column.path, "|") {
			if property(answer, name) == nil {
				t.Errorf("column %s: the answer has no %s", column.title, name)
			}
		}
	}
	if c.wait != nil && property(answer, "id") == nil {
		t.Error("what is made has no id to wait for")
	}
}

// property looks for a field of a schema and of those that it is made of.
func property(s *openapi3.Schema, name string) *openapi3.Schema {
	if found := s.Properties[name]; found != nil {
		return found.Value
	}
	for _, part := range slices.Concat(s.AllOf, s.OneOf) {
		if found := property(part.Value, name); found != nil {
			return found
		}
	}
	return nil
}
