package trace

import (
	"encoding/binary"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// randomBits are the last bits of a trace id, which are random (W3C Trace Context Level 2).
// The sampler of the SDK counts by bits before these, some of which are the same in every
// id of an execution: it would keep all of them or none.
const randomBits = 56

// share is how many traces are kept: those whose random bits, as a number, are below it.
type share uint64

func shareOf(part float64) share {
	return share(min(max(part, 0), 1) * (1 << randomBits))
}

func (s share) has(id trace.TraceID) bool {
	return binary.BigEndian.Uint64(id[8:])&(1<<randomBits-1) < uint64(s)
}

// sampler keeps a share of the traces, and a span of what is kept.
type sampler struct {
	share    share
	trusting bool
}

// ShouldSample is sdk.Sampler's.
func (s sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	above := trace.SpanContextFromContext(p.ParentContext)
	keep := s.share.has(p.TraceID)
	if above.IsValid() && (s.trusting || !above.IsRemote()) {
		keep = above.IsSampled()
	}
	decision := sdk.Drop
	if keep {
		decision = sdk.RecordAndSample
	}
	return sdk.SamplingResult{Decision: decision, Tracestate: above.TraceState()}
}

// Description is sdk.Sampler's.
func (s sampler) Description() string { return "share of the random bits of the trace id" }
