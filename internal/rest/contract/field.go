package contract

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/fault/suggest"
	"github.com/scheduler-service/scheduler/internal/rest/strictjson"
)

// parameterFields reads what the validator says of one parameter. All of it
// is reported under the parameter's name.
func parameterFields(parameter *openapi3.Parameter, err error) []fault.Field {
	if errors.Is(err, openapi3filter.ErrInvalidRequired) {
		return []fault.Field{{Path: parameter.Name, Rule: "required", Message: "is missing"}}
	}
	if errors.Is(err, openapi3filter.ErrInvalidEmptyValue) {
		return []fault.Field{{Path: parameter.Name, Rule: "required", Message: "must not be empty"}}
	}
	var fields []fault.Field
	for _, violation := range violations(err) {
		words := message(violation)
		if text, ok := violation.Value.(string); ok && parameter.In == "query" && violation.SchemaField == "format" && strings.Contains(text, " ") {
			words += "; in a URL, + is written %2B"
		}
		fields = append(fields, fault.Field{Path: parameter.Name, Rule: rule(violation), Message: words})
	}
	if len(fields) == 0 { // it could not be read as its type at all
		fields = append(fields, unread(parameter, err))
	}
	return fields
}

// unread is the fault of a parameter that could not be read as its type. Digits are
// a whole number, but beyond any that can be read.
func unread(parameter *openapi3.Parameter, err error) fault.Field {
	schema := parameter.Schema.Value
	var parse *openapi3filter.ParseError
	if errors.As(err, &parse) && schema.Type.Is("integer") {
		text := fmt.Sprint(parse.Value)
		digits, negative := strings.CutPrefix(text, "-")
		rule, bound := "maximum", schema.Max
		if negative {
			rule, bound = "minimum", schema.Min
		}
		if digits != "" && strings.Trim(digits, "0123456789") == "" && bound != nil {
			return fault.Field{Path: parameter.Name, Rule: rule, Message: message(&openapi3.SchemaError{SchemaField: rule, Schema: schema})}
		}
	}
	return fault.Field{Path: parameter.Name, Rule: "type", Message: "must be " + kind(schema)}
}

// bodyFields reads what the validator says of a body.
func bodyFields(value any, err error) []fault.Field {
	var fields []fault.Field
	for _, violation := range violations(err) {
		path := pathOf(value, violation.JSONPointer())
		if violation.SchemaField == "properties" {
			fields = append(fields, unknownNames(path, violation)...)
			continue
		}
		if path == "" {
			path = "body"
		}
		fields = append(fields, fault.Field{Path: path, Rule: rule(violation), Message: message(violation)})
	}
	if fields = withoutEchoes(fields); len(fields) == 0 {
		fields = append(fields, fault.Field{Path: "body", Rule: "type", Message: "does not have the form that is described"})
	}
	return fields
}

// withoutEchoes drops faults that follow from another: a field is not missing that
// stands under a nearly right name, or whose own fields stand beside it; and a number
// beyond its bound needs no word about its bits.
func withoutEchoes(fields []fault.Field) []fault.Field {
	meant, beyond := map[string]bool{}, map[string]bool{}
	for _, f := range fields {
		meant[f.Meant], meant[f.Meant[:max(0, strings.LastIndexByte(f.Meant, '.'))]] = true, true
		beyond[f.Path] = beyond[f.Path] || f.Rule == "maximum" || f.Rule == "minimum"
	}
	return slices.DeleteFunc(fields, func(f fault.Field) bool {
		return f.Rule == "required" && meant[f.Path] || f.Rule == "format" && beyond[f.Path]
	})
}

// violations flattens the validator's tree of errors.
func violations(err error) []*openapi3.SchemaError {
	var several openapi3.MultiError
	if errors.As(err, &several) {
		var all []*openapi3.SchemaError
		for _, one := range several {
			all = append(all, violations(one)...)
		}
		return all
	}
	var one *openapi3.SchemaError
	if errors.As(err, &one) {
		return []*openapi3.SchemaError{one}
	}
	return nil
}

// pathOf writes a path as clients do: a[0].b.
func pathOf(value any, pointer []string) string {
	path := ""
	for _, step := range pointer {
		switch at := value.(type) {
		case []any:
			path += "[" + step + "]"
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return path
			}
			value = at[i]
		case map[string]any:
			path = strictjson.Join(path, step)
			value = at[step]
		default:
			path = strictjson.Join(path, step)
		}
	}
	return path
}

// unknownNames finds the names that an object has and its schema does not. The
// validator reports each by itself and does not say which it means.
func unknownNames(path string, violation *openapi3.SchemaError) []fault.Field {
	object, _ := violation.Value.(map[string]any)
	var fields []fault.Field
	for name := range object {
		if violation.Schema.Properties[name] != nil {
			continue
		}
		field := fault.Field{Path: strictjson.Join(path, name), Rule: "unknown"}
		meant := meantField(name, violation.Schema)
		if field.Message = "is not a field here" + suggest.DidYouMean(meant); meant != "" {
			field.Meant = strings.TrimPrefix(path+"."+meant, ".")
		}
		fields = append(fields, field)
	}
	return fields
}

func rule(v *openapi3.SchemaError) string {
	if v.SchemaField == "nullable" {
		return "type"
	}
	return v.SchemaField
}

// message says what would be right. It repeats no value that was sent but one of
// an enumeration.
func message(v *openapi3.SchemaError) string {
	s := v.Schema
	switch v.SchemaField {
	case "required":
		return "is missing"
	case "type", "nullable":
		return "must be " + kind(s)
	case "enum":
		if len(s.Enum) == 1 {
			return "must be " + list(s.Enum)
		}
		if given, ok := v.Value.(string); ok {
			return suggest.OneOf(given, texts(s.Enum)) + commas(given, texts(s.Enum))
		}
		return "must be one of " + list(s.Enum)
	case "format":
		return "must be " + formatted(s)
	case "minLength":
		return fmt.Sprintf("must have at least %s", count(s.MinLength, "character"))
	case "maxLength":
		return fmt.Sprintf("must have at most %s", count(*s.MaxLength, "character"))
	case "minProperties":
		if words, ok := s.Extensions["x-empty-means"].(string); ok {
			return words
		}
		return fmt.Sprintf("must have at least %s", count(s.MinProps, "field"))
	case "minItems":
		return fmt.Sprintf("must have at least %s", count(s.MinItems, "item"))
	case "maxItems":
		return fmt.Sprintf("must have at most %s", count(*s.MaxItems, "item"))
	case "uniqueItems":
		return "must not name the same thing twice"
	case "minimum":
		return fmt.Sprintf("must be at least %v", plain(*s.Min))
	case "maximum":
		return fmt.Sprintf("must be at most %v", plain(*s.Max))
	case "pattern":
		if words, ok := s.Extensions["x-pattern-means"].(string); ok {
			return "must be " + words
		}
		return "must match " + s.Pattern
	default:
		return v.Reason
	}
}

func count(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// plain writes a bound without an exponent.
func plain(bound float64) string { return strconv.FormatFloat(bound, 'f', -1, 64) }

func list(values []any) string { return strings.Join(texts(values), ", ") }

func texts(values []any) []string {
	texts := make([]string, 0, len(values))
	for _, v := range values {
		texts = append(texts, fmt.Sprint(v))
	}
	return texts
}

// kind names a schema's type for a person.
func kind(s *openapi3.Schema) string {
	words := map[string]string{
		"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "array": "a list", "object": "an object",
	}
	for name, text := range words {
		if s.Type.Is(name) {
			if s.Format != "" && name == "string" {
				return formatted(s)
			}
			return text
		}
	}
	return "of another type"
}

func formatted(s *openapi3.Schema) string {
	switch s.Format {
	case "uuid":
		return "a UUID"
	case "date-time":
		return "a time with an offset, such as 2026-03-01T09:00:00Z"
	case "int64":
		return "a whole number of at most 64 bits"
	default:
		return "in the format " + s.Format
	}
}

// shorten cuts a name that came from outside.
func shorten(name string) string { return strictjson.Join("", name) }

// commas explains to those who separate values by commas how several are given.
func commas(given string, known []string) string {
	parts := strings.Split(given, ",")
	if len(parts) < 2 || slices.ContainsFunc(parts, func(part string) bool { return !slices.Contains(known, strings.TrimSpace(part)) }) {
		return ""
	}
	return "; give several by repeating the parameter"
}
