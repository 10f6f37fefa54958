// Package contract checks requests against openapi.yaml.
//
// It owns what the contract says of each operation (its permission, its
// parameters, its body) and how a violation reads as fields of a fault. It
// refuses to authenticate, to read bodies (package strictjson does) and to
// route.
package contract

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/fault/suggest"
	"github.com/scheduler-service/scheduler/internal/rest/strictjson"
)

// The permissions that no role grants.
const (
	Public   = "public"   // an operation that needs no token
	Service  = "service"  // one that needs a service token
	Callback = "callback" // one whose path holds the token of an attempt
	Ping     = "ping"     // one whose path holds the ping key of a monitor
)

// The bounds of an operation that names none of its own.
const (
	maxBody   = 1 << 20
	maxFaults = 50
)

// Contract is the parsed contract. It does not change once loaded and may be
// used by any number of goroutines.
type Contract struct{ operations map[string]*Operation }

// Operation is what the contract says of one method of one path.
type Operation struct {
	// ID is its operationId.
	ID string
	// Permission is what a caller needs; Public for none.
	Permission string
	// Heavy says that it may hold a connection to the database for long, so that
	// a tenant may have few of them under way at once.
	Heavy bool
	// Defines is what its body defines (job, jobs, apiKey, calendar); empty for none.
	// New says that nothing of that is stored yet.
	Defines string
	New     bool
	// MaxBody and MaxNames bound its body, in bytes and in names of all objects
	// together, and MaxFaults the fields of its answer.
	MaxBody, MaxNames, MaxFaults int

	// readOnly are the fields that a body may have because the answer to a GET has them.
	readOnly map[string]readOnly
	stateAt  string // see SentBack

	route      *routers.Route
	parameters []*openapi3.Parameter
	body       *openapi3.RequestBody
	formats    []openapi3.SchemaValidationOption
}

// readOnly is how a field that is only read may come back.
type readOnly uint8

const (
	fixed  readOnly = iota + 1 // as it is
	state                      // as it is, or as it was when the body was read
	moving                     // as anything: it changes by itself
)

// SentBack are the fields of a body that are only read.
type SentBack struct {
	// Fixed have to be what is there. State has to be that as well, unless the body
	// was read before somebody changed the state.
	Fixed, State map[string]any
	// StateAt is the field that tells when the state was set, and At what the body has
	// there; nil: nothing.
	StateAt string
	At      any
}

// Load answers the embedded contract, which is read once for all APIs of a process. It
// fails for an operation that names no permission: what nobody thought about is not
// served.
func Load() (*Contract, error) { return loaded() }

var loaded = sync.OnceValues(load)

func load() (*Contract, error) {
	document, err := api.GetSpec()
	if err != nil {
		return nil, fmt.Errorf("read the contract: %w", err)
	}
	return from(document)
}

func from(document *openapi3.T) (*Contract, error) {
	leaveToExecutors(document)
	c := &Contract{operations: map[string]*Operation{}}
	for path, item := range document.Paths.Map() {
		for method, described := range item.Operations() {
			permission, _ := described.Extensions["x-permission"].(string)
			if permission == "" {
				return nil, fmt.Errorf("the contract's operation %s names no x-permission", described.OperationID)
			}
			operation := &Operation{
				ID: described.OperationID, Permission: permission,
				route:   &routers.Route{Spec: document, Path: path, PathItem: item, Method: method, Operation: described},
				formats: formats(),
				MaxBody: bound(described, "x-max-body", maxBody), MaxNames: bound(described, "x-max-names", strictjson.MaxNames),
				MaxFaults: bound(described, "x-max-details", maxFaults),
			}
			operation.Heavy, _ = described.Extensions["x-heavy"].(bool)
			operation.Defines, _ = described.Extensions["x-defines"].(string)
			operation.New, _ = described.Extensions["x-new"].(bool)
			for _, parameter := range slices.Concat(item.Parameters, described.Parameters) {
				operation.parameters = append(operation.parameters, parameter.Value)
			}
			if described.RequestBody != nil {
				operation.body = described.RequestBody.Value
				operation.readOnly, operation.stateAt = splitBody(operation.body)
				if len(operation.body.Content) != 1 {
					return nil, fmt.Errorf("the contract's operation %s takes a body in %d forms, not one", described.OperationID, len(operation.body.Content))
				}
			}
			c.operations[method+" "+path] = operation
		}
	}
	return c, nil
}

// splitBody leaves of a body that may be what is written, or what is read, the
// former, and lists the fields that only the latter has, and the one of them that
// tells when the state was set.
func splitBody(body *openapi3.RequestBody) (fields map[string]readOnly, stateAt string) {
	for _, content := range body.Content {
		if len(content.Schema.Value.AnyOf) != 2 {
			continue
		}
		written, read := content.Schema.Value.AnyOf[0], content.Schema.Value.AnyOf[1].Value
		content.Schema = written
		fields = map[string]readOnly{}
		for _, part := range append(slices.Clone(read.AllOf), &openapi3.SchemaRef{Value: read}) {
			for name := range part.Value.Properties {
				if written.Value.Properties[name] == nil {
					fields[name] = fixed
				}
			}
		}
		for extension, kind := range map[string]readOnly{"x-state": state, "x-change-by-themselves": moving} {
			names, _ := read.Extensions[extension].([]any)
			for _, name := range names {
				fields[fmt.Sprint(name)] = kind
			}
		}
		stateAt, _ = read.Extensions["x-state-at"].(string)
		return fields, stateAt
	}
	return nil, ""
}

// leaveToExecutors drops what the contract says of the config of each job type:
// it is there for clients, and the executors' errors say more. The names of its
// fields stay known, for hints.
func leaveToExecutors(document *openapi3.T) {
	for _, schema := range document.Components.Schemas {
		if schema.Value.Discriminator != nil {
			schema.Value.OneOf, schema.Value.Discriminator = nil, nil
		}
		if schema.Value.Extensions["x-executor-checks"] == true {
			inner := openapi3.Schemas{}
			for _, one := range schema.Value.OneOf {
				maps.Copy(inner, one.Value.Properties)
			}
			schema.Value.Extensions[innerFields] = inner
			schema.Value.OneOf, schema.Value.Type = nil, &openapi3.Types{openapi3.TypeObject}
		}
	}
}

// bound reads a bound that the contract raises for one operation.
func bound(described *openapi3.Operation, name string, otherwise int) int {
	if raised, ok := described.Extensions[name].(float64); ok {
		return int(raised)
	}
	return otherwise
}

// Operation finds what the contract says of a method and a path as it writes
// it, with its parameters in braces.
func (c *Contract) Operation(method, path string) (*Operation, bool) {
	operation, ok := c.operations[method+" "+path]
	return operation, ok
}

// HasSecretPath reports whether a part of its path is a secret that lets callers in.
func (o *Operation) HasSecretPath() bool { return o.Permission == Callback || o.Permission == Ping }

// Operations lists all of them by method and path ("GET /health").
func (c *Contract) Operations() map[string]*Operation { return c.operations }

// TakesBody reports whether the operation describes a body, and whether it
// needs one.
func (o *Operation) TakesBody() (takes, needs bool) {
	return o.body != nil, o.body != nil && o.body.Required
}

// MediaType is what the operation's body is sent as; "" without one.
func (o *Operation) MediaType() string {
	if o.body == nil {
		return ""
	}
	for media := range o.body.Content {
		return media // there is one
	}
	return ""
}

// CheckParameters reports every parameter in path, query and header that the
// contract does not allow.
func (o *Operation) CheckParameters(r *http.Request, path map[string]string) []fault.Field {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return []fault.Field{{Path: "query", Rule: "syntax", Message: "is not a well-formed query"}}
	}
	fields := o.strayParameters(query, r.Header)
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: path, QueryParams: query, Route: o.route,
		Options: &openapi3filter.Options{MultiError: true, SkipSettingDefaults: true, SchemaValidationOptions: o.formats},
	}
	for _, parameter := range o.parameters {
		if err := openapi3filter.ValidateParameter(r.Context(), input, parameter); err != nil {
			fields = append(fields, parameterFields(parameter, err)...)
		}
	}
	return o.ordered(fields)
}

// strayParameters finds query parameters that the operation does not know or
// that no row can hold, which the database would refuse to compare, and
// parameters that stand more often than they may. A ping may have any that it does not
// know: proxies add some on its way, and a ping that is refused is a false alert.
func (o *Operation) strayParameters(query url.Values, header http.Header) []fault.Field {
	var fields []fault.Field
	for name, values := range query {
		i := slices.IndexFunc(o.parameters, func(p *openapi3.Parameter) bool { return p.In == "query" && p.Name == name })
		switch {
		case i < 0 && o.Permission == Ping:
		case i < 0:
			fields = append(fields, fault.Field{Path: shorten(name), Rule: "unknown", Message: "is not a parameter of this operation" + suggest.DidYouMean(o.meantParameter(name))})
		case len(values) > 1 && !o.parameters[i].Schema.Value.Type.Is("array"):
			fields = append(fields, fault.Field{Path: name, Rule: "duplicate", Message: "stands more than once"})
		case slices.ContainsFunc(values, func(text string) bool { return strings.ContainsRune(text, 0) || !utf8.ValidString(text) }):
			fields = append(fields, fault.Field{Path: name, Rule: "pattern", Message: "has characters that cannot be stored"})
		}
	}
	for _, p := range o.parameters {
		if p.In == "header" && len(header.Values(p.Name)) > 1 {
			fields = append(fields, fault.Field{Path: p.Name, Rule: "duplicate", Message: "stands more than once"})
		}
	}
	return fields
}

// SplitBody takes the fields out of a body that are only read. It leaves out those
// that change by themselves, which nobody can hold to a value.
func (o *Operation) SplitBody(value any) (written any, sent SentBack) {
	object, ok := value.(map[string]any)
	if !ok || o.readOnly == nil {
		return value, sent
	}
	rest := map[string]any{}
	sent = SentBack{Fixed: map[string]any{}, State: map[string]any{}, StateAt: o.stateAt, At: object[o.stateAt]}
	for name, member := range object {
		switch o.readOnly[name] {
		case fixed:
			sent.Fixed[name] = member
		case state:
			sent.State[name] = member
		case moving:
		default:
			rest[name] = member
		}
	}
	return rest, sent
}

// CheckBody reports everything about a JSON body, as strictjson decoded it,
// that the contract does not allow.
func (o *Operation) CheckBody(value any) []fault.Field {
	schema := o.body.Content[o.MediaType()].Schema.Value
	err := schema.VisitJSON(value, slices.Concat(o.formats, []openapi3.SchemaValidationOption{openapi3.MultiErrors(), openapi3.VisitAsRequest()})...)
	if err == nil {
		return nil
	}
	return o.ordered(bodyFields(value, err))
}

// formats are the formats as this API means them, given to each validation
// because the validator's own are process-wide variables: UUIDs of all
// versions, and times that the decoder behind the contract reads too.
func formats() []openapi3.SchemaValidationOption {
	timestamp := openapi3.NewCallbackValidator(func(text string) error {
		var at time.Time
		return at.UnmarshalText([]byte(text))
	})
	return []openapi3.SchemaValidationOption{
		openapi3.WithStringFormatValidator("uuid", openapi3.NewRegexpFormatValidator(openapi3.FormatOfStringForUUIDOfRFC9562)),
		openapi3.WithStringFormatValidator("date-time", timestamp),
	}
}

// ordered sorts fields by where they stand, drops repetitions and cuts the
// list.
func (o *Operation) ordered(fields []fault.Field) []fault.Field {
	slices.SortStableFunc(fields, func(a, b fault.Field) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Rule, b.Rule))
	})
	fields = slices.CompactFunc(fields, func(a, b fault.Field) bool { return a.Path == b.Path && a.Rule == b.Rule })
	return fields[:min(len(fields), o.MaxFaults)]
}
