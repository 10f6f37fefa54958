package contract_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/scheduler-service/scheduler/api"
)

// Every body that can be sent or answered can be shown: it has an example, or
// one can be put together from those of its parts, and that is a body which the
// contract allows.
func TestEveryBodyHasAnExample(t *testing.T) {
	t.Parallel()
	document, err := api.GetSpec()
	if err != nil {
		t.Fatal(err)
	}
	bodies := 0
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			contents := map[string]openapi3.Content{}
			if operation.RequestBody != nil {
				contents["request"] = operation.RequestBody.Value.Content
			}
			for status, answer := range operation.Responses.Map() {
				contents[status] = answer.Value.Content
			}
			for name, content := range contents {
				for media, body := range content {
					bodies++
					for _, problem := range shown(body) {
						t.Errorf("%s %s, %s as %s: %s", method, path, name, media, problem)
					}
				}
			}
		}
	}
	if bodies < 100 {
		t.Errorf("only %d bodies were looked at", bodies)
	}
}

// shown lists what is wrong with the examples of a body.
func shown(body *openapi3.MediaType) (problems []string) {
	examples := []any{}
	if body.Example != nil {
		examples = append(examples, body.Example)
	}
	for _, named := range body.Examples {
		examples = append(examples, named.Value.Value)
	}
	if len(examples) == 0 {
		b := builder{}
		examples = append(examples, b.build(body.Schema.Value, "", 0))
		problems = b.missing
	}
	for _, example := range examples {
		if text, ok := example.(string); ok && body.Schema.Value.Type.Is("string") && text != "" {
			continue
		}
		if err := body.Schema.Value.VisitJSON(example); err != nil {
			problems = append(problems, fmt.Sprintf("the example is not allowed: %.300s", err))
		}
	}
	return problems
}

// builder puts an example together from those of the parts, as the page at
// /docs does.
type builder struct{ missing []string }

// deepest is where a schema that holds itself is cut off.
const deepest = 8

func (b *builder) build(schema *openapi3.Schema, at string, depth int) any {
	switch {
	case schema.Example != nil:
		return schema.Example
	case schema.Default != nil:
		return schema.Default
	case len(schema.Enum) > 0:
		return schema.Enum[0]
	case len(schema.OneOf) > 0 && len(schema.Properties) == 0:
		return b.build(schema.OneOf[0].Value, at, depth)
	case len(schema.AnyOf) > 0:
		return b.build(schema.AnyOf[0].Value, at, depth)
	case len(schema.AllOf) == 1 && len(schema.Properties) == 0:
		return b.build(schema.AllOf[0].Value, at, depth)
	case len(schema.AllOf) > 0 || schema.Type.Is("object"):
		return b.object(schema, at, depth)
	case schema.Type.Is("array"):
		if depth > deepest {
			return []any{}
		}
		return []any{b.build(schema.Items.Value, at+"[]", depth+1)}
	case schema.Type.Is("boolean"):
		return true
	}
	switch schema.Format {
	case "uuid":
		return "0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10"
	case "date-time":
		return "2026-11-20T09:00:00Z"
	case "date":
		return "2026-11-20"
	}
	b.missing = append(b.missing, at+" has no example")
	return nil
}

func (b *builder) object(schema *openapi3.Schema, at string, depth int) any {
	object := map[string]any{}
	for _, part := range slices.Concat(schema.AllOf, schema.OneOf[:min(1, len(schema.OneOf))]) {
		if members, ok := b.build(part.Value, at, depth).(map[string]any); ok {
			for name, member := range members {
				object[name] = member
			}
		}
	}
	if depth > deepest {
		return object
	}
	for name, member := range schema.Properties {
		object[name] = b.build(member.Value, at+"."+name, depth+1)
	}
	return object
}
