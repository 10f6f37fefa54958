package trace

import (
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// traceparent is the header of W3C Trace Context as net/http writes it.
const traceparent = "Traceparent"

// parent reads a traceparent: version 00, or what a later one has in common with it. What
// cannot be read counts as not sent.
func parent(text string) (trace.SpanContext, bool) {
	parts := strings.Split(text, "-")
	if len(text) > 256 || len(parts) < 4 || len(parts[0]) != 2 || len(parts[3]) != 2 || parts[0] == "ff" || parts[0] == "00" && len(parts) != 4 || text != strings.ToLower(text) {
		return trace.SpanContext{}, false
	}
	id, err := trace.TraceIDFromHex(parts[1])
	if err != nil {
		return trace.SpanContext{}, false
	}
	span, err := trace.SpanIDFromHex(parts[2])
	if err != nil {
		return trace.SpanContext{}, false
	}
	for _, part := range []string{parts[0], parts[3]} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return trace.SpanContext{}, false
		}
	}
	var flags trace.TraceFlags
	if strings.ContainsRune("13579bdf", rune(parts[3][1])) {
		flags = trace.FlagsSampled
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: flags, Remote: true}), true
}

// written is the traceparent of a span.
func written(at trace.SpanContext) string {
	flags := "00"
	if at.IsSampled() {
		flags = "01"
	}
	return "00-" + at.TraceID().String() + "-" + at.SpanID().String() + "-" + flags
}
