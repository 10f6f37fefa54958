package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/scheduler-service/scheduler/internal/fault"
)

// sentBackAsIs refuses a body whose fields that are only read differ from what is
// there, so that a PUT takes back what a GET answered and nobody takes a change that
// was ignored for one that was made. A body of another version is outdated: it is
// refused as If-Match would, so that it does not undo somebody else's change. A body
// from before a change of the state alone undoes nothing: its state is ignored. look
// reads what is there, as it is shown; it is asked only where the body has such fields.
func sentBackAsIs[T any](ctx context.Context, look func() (T, error)) error {
	sent := callOf(ctx).sentBack
	if len(sent.Fixed)+len(sent.State) == 0 {
		return nil
	}
	there, err := shown(look)
	if err != nil {
		return err
	}
	if version, ok := sent.Fixed["version"]; ok && !sameJSON(version, there["version"]) {
		return fault.New(fault.Conflict, fault.CodePreconditionFailed,
			fmt.Sprintf("it is at version %.20s now, and the body is not of that version: read it again and repeat the change", there["version"]))
	}
	compared := maps.Clone(sent.Fixed)
	if sent.At == nil || sameJSON(sent.At, there[sent.StateAt]) {
		maps.Copy(compared, sent.State)
	}
	var fields []fault.Field
	for _, name := range slices.Sorted(maps.Keys(compared)) {
		if !sameJSON(compared[name], there[name]) {
			fields = append(fields, fault.Field{Path: name, Rule: "readOnly", Message: fmt.Sprintf("is read-only: leave it out, or send its present value, %.100s", there[name])})
		}
	}
	if len(fields) > 0 {
		return wrong(fields...)
	}
	return nil
}

// shown is what is there, by the names of its fields.
func shown[T any](look func() (T, error)) (there map[string]json.RawMessage, err error) {
	view, err := look()
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(view)
	if err != nil {
		return nil, fmt.Errorf("write what is there: %w", err)
	}
	if err := json.Unmarshal(raw, &there); err != nil {
		return nil, fmt.Errorf("read what is there: %w", err)
	}
	return there, nil
}

// wantedVersion is the version that a PUT may replace: that of If-Match, or that of
// the body where it has one; 0 is any.
func wantedVersion(ctx context.Context, ifMatch *string) int {
	if wanted := versionOf(ifMatch); wanted != 0 {
		return wanted
	}
	number, ok := callOf(ctx).sentBack.Fixed["version"].(json.Number)
	if !ok {
		return 0
	}
	version, err := strconv.Atoi(number.String())
	if err != nil {
		return -1
	}
	return version
}

// sameJSON compares a value with one as it is written; times are the same in
// whatever zone.
func sameJSON(value any, written json.RawMessage) bool {
	raw, err := json.Marshal(value)
	if err != nil || len(written) == 0 {
		return err == nil && value == nil
	}
	var a, b time.Time
	if json.Unmarshal(raw, &a) == nil && json.Unmarshal(written, &b) == nil && !b.IsZero() {
		return a.Equal(b)
	}
	other, err := decodeExact(written)
	if err != nil {
		return false
	}
	canonical, err := json.Marshal(other)
	return err == nil && bytes.Equal(raw, canonical)
}
