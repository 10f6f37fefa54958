package contract_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/scheduler-service/scheduler/api"
)

// A reader of the contract alone knows what may be sent and what an answer means:
// whatever is sent is bounded, each field says what it is, and a time that is a number
// says its unit.
func TestEveryFieldSaysWhatItIs(t *testing.T) {
	t.Parallel()
	document, err := api.GetSpec()
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{seen: map[seen]bool{}}
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			w.operation(method+" "+path, item, operation)
		}
	}
	for _, problem := range w.problems {
		t.Error(problem)
	}
	if len(w.seen) < 500 {
		t.Errorf("only %d schemas were looked at", len(w.seen))
	}
}

type seen struct {
	schema *openapi3.Schema
	sent   bool
}

// walk goes through schemas, each once as what is sent and once as what is answered.
type walk struct {
	seen     map[seen]bool
	problems []string
}

func (w *walk) operation(name string, item *openapi3.PathItem, operation *openapi3.Operation) {
	for _, p := range slices.Concat(item.Parameters, operation.Parameters) {
		w.described(name+" "+p.Value.Name, p.Value.Description)
		w.visit(p.Value.Name, p.Value.Schema, true)
	}
	if operation.RequestBody != nil {
		for _, content := range operation.RequestBody.Value.Content {
			schema := content.Schema
			if len(schema.Value.AnyOf) == 2 {
				schema = schema.Value.AnyOf[0] // the other one is what a GET answered
			}
			w.visit(name, schema, true)
		}
	}
	for status, answer := range operation.Responses.Map() {
		for header, one := range answer.Value.Headers {
			w.described(name+" "+status+" "+header, one.Value.Description)
		}
		for _, content := range answer.Value.Content {
			w.visit(name+" "+status, content.Schema, false)
		}
	}
}

func (w *walk) visit(at string, ref *openapi3.SchemaRef, sent bool) {
	if ref == nil || w.seen[seen{ref.Value, sent}] {
		return
	}
	w.seen[seen{ref.Value, sent}] = true
	if ref.Ref != "" {
		at = ref.Ref[strings.LastIndexByte(ref.Ref, '/')+1:]
	}
	schema := ref.Value
	if sent {
		w.bounded(at, schema)
	}
	for name, field := range schema.Properties {
		w.described(at+"."+name, field.Value.Description)
		w.unit(at+"."+name, field.Value.Description)
		w.visit(at+"."+name, field, sent)
	}
	for _, part := range slices.Concat(schema.AllOf, schema.OneOf, schema.AnyOf) {
		w.visit(at, part, sent)
	}
	w.visit(at+"[]", schema.Items, sent)
	w.visit(at+".*", schema.AdditionalProperties.Schema, sent)
}

func (w *walk) described(at, description string) {
	if description == "" {
		w.problems = append(w.problems, at+" has no description")
	}
}

func (w *walk) unit(at, description string) {
	for suffix, unit := range map[string]string{"Ms": "millisecond", "Seconds": "second"} {
		if strings.HasSuffix(at, suffix) && !strings.Contains(strings.ToLower(description), unit) {
			w.problems = append(w.problems, at+" does not say in its description that it is "+unit+"s")
		}
	}
}

// unending finds what makes a pattern fit texts of any length.
var unending = regexp.MustCompile(`[*+]|,\}`)

// bounded notes what somebody may send without end.
func (w *walk) bounded(at string, schema *openapi3.Schema) {
	switch {
	case schema.Type.Is("string"):
		fixed := slices.Contains([]string{"uuid", "date", "date-time"}, schema.Format) || len(schema.Enum) > 0 ||
			strings.HasPrefix(schema.Pattern, "^") && strings.HasSuffix(schema.Pattern, "$") && !unending.MatchString(schema.Pattern)
		if !fixed && schema.MaxLength == nil {
			w.problems = append(w.problems, at+" is a text without maxLength, enum, or a format or pattern of known length")
		}
	case schema.Type.Is("integer"), schema.Type.Is("number"):
		if schema.Min == nil || schema.Max == nil {
			w.problems = append(w.problems, at+" is a number without minimum and maximum")
		}
	case schema.Type.Is("array"):
		if schema.MaxItems == nil {
			w.problems = append(w.problems, at+" is a list without maxItems")
		}
	}
}
