package contract

import (
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/scheduler-service/scheduler/internal/fault/suggest"
	"github.com/scheduler-service/scheduler/internal/rest/strictjson"
)

// alsoCalled is the extension that lists names which people type for a field or a
// parameter.
const alsoCalled = "x-also-called"

// innerFields is the extension that keeps the fields of an object which the
// executors check.
const innerFields = "x-inner-fields"

// meantField is the path of the field that an unknown name of an object probably
// means: one of the object itself, or of an object in it; "" where none is like it.
func meantField(name string, schema *openapi3.Schema) string {
	inner := map[string]openapi3.Schemas{}
	for field, ref := range schema.Properties {
		if within := fieldsOf(ref.Value); len(within) > 0 {
			inner[field] = within
		}
	}
	for _, look := range []func(string, openapi3.Schemas) string{sameField, likeField} {
		if found := look(name, schema.Properties); found != "" {
			return found
		}
		for _, field := range slices.Sorted(maps.Keys(inner)) {
			if found := look(name, inner[field]); found != "" {
				return strictjson.Join(field, found)
			}
		}
	}
	return ""
}

func fieldsOf(schema *openapi3.Schema) openapi3.Schemas {
	if kept, ok := schema.Extensions[innerFields].(openapi3.Schemas); ok {
		return kept
	}
	return schema.Properties
}

// sameField is the field that has the name, whatever its case, or is also called so.
func sameField(name string, fields openapi3.Schemas) string {
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if strings.EqualFold(name, field) || isAlsoCalled(name, fields[field].Value.Extensions) {
			return field
		}
	}
	return ""
}

func likeField(name string, fields openapi3.Schemas) string {
	return suggest.Nearest(name, slices.Collect(maps.Keys(fields)))
}

// meantParameter is the query parameter that an unknown one probably means.
func (o *Operation) meantParameter(name string) string {
	var names []string
	for _, p := range o.parameters {
		if p.In != "query" {
			continue
		}
		if isAlsoCalled(name, p.Extensions) {
			return p.Name
		}
		names = append(names, p.Name)
	}
	return suggest.Nearest(name, names)
}

func isAlsoCalled(name string, extensions map[string]any) bool {
	names, _ := extensions[alsoCalled].([]any)
	return slices.ContainsFunc(names, func(other any) bool {
		text, ok := other.(string)
		return ok && strings.EqualFold(text, name)
	})
}
