package rest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/apikey"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
	"github.com/scheduler-service/scheduler/internal/rest/strictjson"
)

// check lets a request through that the contract allows. Everything that is
// wrong is answered at once: parameters, body, and where the body is a job's
// definition, what the domain says of the rest of it.
func (s *server) check(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		r.Body = http.MaxBytesReader(w, r.Body, int64(c.operation.MaxBody))
		body, err := readBody(r, w.Header(), c.operation)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		if limit := c.tenant.Limits.MaxPayloadBytes; limit != nil && len(body) > *limit {
			s.refuse(w, r, fault.Exceeded(fault.Limit{Name: "maxPayloadBytes", Value: int64(*limit)},
				fmt.Sprintf("a request of this tenant may have %d bytes", *limit), s.Clock()))
			return
		}
		c.body = sha256.Sum256(body)
		path := map[string]string{}
		for i, name := range chi.RouteContext(r.Context()).URLParams.Keys {
			path[name] = chi.RouteContext(r.Context()).URLParams.Values[i]
		}
		fields := c.operation.CheckParameters(r, path)
		fields = append(fields, s.checkBody(r.Context(), c.operation, body)...)
		if len(fields) > 0 {
			s.refuse(w, r, wrong(fields[:min(len(fields), c.operation.MaxFaults)]...))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// patchMedia is the media type of a change of a job (RFC 7396).
const patchMedia = "application/merge-patch+json"

// anyMedia is that of a body which is kept as it is, whatever it is, and never refused.
const anyMedia = "*/*"

// isJSON reports whether a body of this media type is read here; any other is
// its handler's.
func isJSON(media string) bool {
	return media == "application/json" || media == patchMedia
}

// readBody reads the whole body, which the cap bounds; blank is nothing.
func readBody(r *http.Request, answer http.Header, operation *contract.Operation) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large) && operation.MediaType() == anyMedia: // the rest is left out
	case errors.As(err, &large):
		return nil, fault.New(fault.Invalid, fault.CodeBodyTooLarge, fmt.Sprintf("the body has more than %d bytes", large.Limit))
	case err != nil:
		return nil, fault.Wrap(fault.Invalid, fault.CodeValidationFailed, "the body did not arrive whole", err)
	}
	media := operation.MediaType()
	if trimmed := bytes.TrimSpace(body); len(trimmed) == 0 || isJSON(media) {
		body = trimmed // of another text the lines are counted
	}
	if media != "" && media != anyMedia && len(body) > 0 && !isMedia(r.Header, media) {
		if media == patchMedia {
			answer.Set("Accept-Patch", patchMedia) // RFC 5789, section 2.2
		}
		return nil, fault.New(fault.Invalid, fault.CodeUnsupportedMediaType, "send the body with Content-Type: "+media+", in UTF-8 and without Content-Encoding")
	}
	return body, nil
}

func isMedia(h http.Header, wanted string) bool {
	if coding := h.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return false
	}
	media, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || media != wanted || len(h.Values("Content-Type")) != 1 {
		return false
	}
	charset, ok := parameters["charset"]
	return !ok || strings.EqualFold(charset, "utf-8")
}

// checkBody reports everything that is wrong with a body.
func (s *server) checkBody(ctx context.Context, operation *contract.Operation, body []byte) []fault.Field {
	takes, needs := operation.TakesBody()
	switch {
	case len(body) == 0 && needs:
		return []fault.Field{{Path: "body", Rule: "required", Message: "is missing"}}
	case len(body) == 0:
		return nil
	case !takes:
		return []fault.Field{{Path: "body", Rule: "unexpected", Message: "is not taken by this operation"}}
	case !isJSON(operation.MediaType()):
		return nil // its handler reads it
	}
	value, fields := strictjson.Decode(body, operation.MaxNames)
	if len(fields) > 0 {
		return fields
	}
	if operation.Defines == "jobs" || operation.Defines == "set" {
		return s.checkBatch(ctx, operation, value)
	}
	if c := callOf(ctx); operation == c.operation {
		value, c.sentBack = operation.SplitBody(value)
	}
	fields = operation.CheckBody(value)
	if definition, ok := value.(map[string]any); ok && len(fields) > 0 {
		fields = append(fields, s.alsoWrong(ctx, operation.Defines, definition, fields)...)
	}
	return fields
}

// alsoWrong finds what the domain says of the parts of a definition that the
// contract found nothing wrong with.
func (s *server) alsoWrong(ctx context.Context, kind string, definition map[string]any, found []fault.Field) []fault.Field {
	rest := map[string]any{}
	for name, value := range definition {
		if !slices.ContainsFunc(found, within(name)) {
			rest[name] = value
		}
	}
	raw, err := json.Marshal(rest)
	if err != nil {
		return nil // the contract's findings are the answer then
	}
	more := s.domainFaults(ctx, kind, raw)
	return slices.DeleteFunc(more, func(f fault.Field) bool {
		top, _, _ := strings.Cut(strings.ReplaceAll(f.Path, "[", "."), ".")
		if top == "trigger" && slices.ContainsFunc(found, func(of fault.Field) bool {
			return slices.Contains([]string{"cronExpression", "interval", "runAt"}, cmp.Or(of.Meant, of.Path)) || of.Meant == "trigger"
		}) {
			return true // a schedule was given, in the wrong form or under a wrong name
		}
		return slices.ContainsFunc(found, within(top))
	})
}

// domainFaults is what the domain finds wrong with a body that defines something; nothing where it cannot tell.
func (s *server) domainFaults(ctx context.Context, kind string, raw []byte) []fault.Field {
	switch kind {
	case "job":
		var body api.JobSpec
		if json.Unmarshal(raw, &body) != nil {
			return nil
		}
		_, fields, err := s.newSpec(ctx, body)
		if err != nil {
			return nil
		}
		return fields
	case "apiKey":
		var body api.APIKeySpec
		if json.Unmarshal(raw, &body) != nil {
			return nil
		}
		return apikey.Validate(newKey(body), callOf(ctx).who, s.Clock())
	case "calendar":
		var body api.CalendarSpec
		if json.Unmarshal(raw, &body) != nil {
			return nil
		}
		_, fields := newCalendar(body)
		return fields
	default:
		return nil
	}
}

// within reports whether a fault lies in the field of this name.
func within(name string) func(fault.Field) bool {
	return func(f fault.Field) bool {
		inside, ok := strings.CutPrefix(f.Path, name)
		return ok && (inside == "" || inside[0] == '.' || inside[0] == '[')
	}
}
