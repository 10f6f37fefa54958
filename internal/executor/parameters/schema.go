package parameters

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/fault/suggest"
)

// Schema is the part of JSON Schema in which parameters are described. Words that it
// does not have are passed over, as JSON Schema says.
type Schema struct {
	Type                 string             `json:"type,omitempty"` // object, array, string, integer, number, boolean; any without it
	Description          string             `json:"description,omitempty"`
	Properties           map[string]*Schema `json:"properties,omitempty"`
	Required             []string           `json:"required,omitempty"`
	AdditionalProperties *Schema            `json:"additionalProperties,omitempty"` // of a map
	Closed               bool               `json:"x-closed,omitempty"`             // no other properties
	Items                *Schema            `json:"items,omitempty"`
	Enum                 []string           `json:"enum,omitempty"`
	Format               string             `json:"format,omitempty"` // date-time
	Minimum              *float64           `json:"minimum,omitempty"`
	Maximum              *float64           `json:"maximum,omitempty"`
	MaxLength            int                `json:"maxLength,omitempty"`
}

// maxFaults bounds the list that one object can cause; maxLevels how deep a value or a
// type may be.
const (
	maxFaults = 50
	maxLevels = 64
)

// SchemaOf describes a Go type as encoding/json reads it. Fields that may be left out
// have omitempty, omitzero or a pointer. A field's tag doc is its description, and its
// tag enum, with commas, lists the texts that it takes.
func SchemaOf(t reflect.Type) (*Schema, error) { return schemaOf(t, 0) }

func schemaOf(t reflect.Type, level int) (*Schema, error) {
	if level > maxLevels {
		return nil, fmt.Errorf("%s is nested too deep, or in itself", t)
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return &Schema{Type: "string", Format: "date-time"}, nil
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface && t.NumMethod() == 0:
		return &Schema{}, nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), level+1)
	case reflect.String:
		return &Schema{Type: "string"}, nil
	case reflect.Bool:
		return &Schema{Type: "boolean"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return integer(t), nil
	case reflect.Float32, reflect.Float64:
		return &Schema{Type: "number"}, nil
	case reflect.Slice:
		items, err := schemaOf(t.Elem(), level+1)
		return &Schema{Type: "array", Items: items}, err
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, fmt.Errorf("%s has keys that are no texts", t)
		}
		values, err := schemaOf(t.Elem(), level+1)
		return &Schema{Type: "object", AdditionalProperties: values}, err
	case reflect.Struct:
		return structSchema(t, level)
	}
	return nil, fmt.Errorf("%s cannot be a parameter", t)
}

// integer is the schema of a whole number, with the bounds of its type.
func integer(t reflect.Type) *Schema {
	low, high := 0.0, math.Ldexp(1, t.Bits())-1
	if t.Kind() <= reflect.Int64 {
		low, high = -math.Ldexp(1, t.Bits()-1), math.Ldexp(1, t.Bits()-1)-1
	}
	return &Schema{Type: "integer", Minimum: &low, Maximum: &high}
}

func structSchema(t reflect.Type, level int) (*Schema, error) {
	s := &Schema{Type: "object", Properties: map[string]*Schema{}, Closed: true}
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous {
			return nil, fmt.Errorf("%s embeds %s: give the field a name", t, field.Type)
		}
		if !field.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = field.Name
		}
		inner, err := schemaOf(field.Type, level+1)
		if err != nil {
			return nil, err
		}
		inner.Description = field.Tag.Get("doc")
		if words := field.Tag.Get("enum"); words != "" {
			inner.Enum = strings.Split(words, ",")
		}
		s.Properties[name] = inner
		if field.Type.Kind() != reflect.Pointer && !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			s.Required = append(s.Required, name)
		}
	}
	return s, nil
}

// Check lists what is wrong with a value, at paths below path. An absent one is an
// empty object.
func (s *Schema) Check(path string, value json.RawMessage) []fault.Field {
	if isAbsent(value) {
		value = json.RawMessage(`{}`)
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var tree any
	if decoder.Decode(&tree) != nil {
		return []fault.Field{{Path: path, Rule: "syntax", Message: "must be valid JSON"}}
	}
	var c checker
	c.check(s, path, tree, 0)
	return c.faults
}

type checker struct{ faults []fault.Field }

func (c *checker) add(path, rule, message string) {
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, fault.Field{Path: path, Rule: rule, Message: message})
	}
}

func (c *checker) check(s *Schema, path string, value any, level int) {
	if s == nil || level > maxLevels {
		return
	}
	switch s.Type {
	case "object":
		if members, ok := value.(map[string]any); ok {
			c.object(s, path, members, level)
			return
		}
		c.add(path, "type", "must be an object")
	case "array":
		items, ok := value.([]any)
		if !ok {
			c.add(path, "type", "must be a list")
		}
		for i, item := range items {
			c.check(s.Items, fmt.Sprintf("%s[%d]", path, i), item, level+1)
		}
	case "string":
		c.text(s, path, value)
	case "boolean":
		if _, ok := value.(bool); !ok {
			c.add(path, "type", "must be true or false")
		}
	case "integer", "number":
		c.number(s, path, value)
	}
}

func (c *checker) object(s *Schema, path string, members map[string]any, level int) {
	for _, name := range s.Required {
		if value, ok := members[name]; !ok || value == nil {
			c.add(path+"."+name, "required", "is missing")
		}
	}
	known := slices.Sorted(maps.Keys(s.Properties))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		inner, ok := s.Properties[name]
		switch {
		case ok && members[name] == nil: // a null counts as absent
		case ok:
			c.check(inner, path+"."+name, members[name], level+1)
		case s.AdditionalProperties != nil:
			c.check(s.AdditionalProperties, path+"."+name, members[name], level+1)
		case s.Closed:
			c.add(path+"."+name, "unknown", "is not a parameter"+suggest.For(name, known)+"; the parameters are: "+strings.Join(known, ", "))
		}
	}
}

func (c *checker) text(s *Schema, path string, value any) {
	text, ok := value.(string)
	switch {
	case !ok:
		c.add(path, "type", "must be a text")
	case strings.Contains(text, "{{secret:"), strings.Contains(text, "{{run:"): // what stands for another text is known when it runs
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, text):
		c.add(path, "enum", suggest.OneOf(text, s.Enum))
	case s.MaxLength > 0 && utf8.RuneCountInString(text) > s.MaxLength:
		c.add(path, "length", fmt.Sprintf("must have at most %d characters", s.MaxLength))
	case s.Format == "date-time":
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			c.add(path, "format", "must be a time such as 2026-03-01T09:00:00Z")
		}
	}
}

func (c *checker) number(s *Schema, path string, value any) {
	number, ok := value.(json.Number)
	float, err := number.Float64()
	switch {
	case !ok || err != nil:
		c.add(path, "type", "must be a number")
	case s.Type == "integer" && float != math.Trunc(float):
		c.add(path, "type", "must be a whole number")
	case s.Minimum != nil && float < *s.Minimum:
		c.add(path, "range", fmt.Sprintf("must be at least %v", *s.Minimum))
	case s.Maximum != nil && float > *s.Maximum:
		c.add(path, "range", fmt.Sprintf("must be at most %v", *s.Maximum))
	}
}
