// Package idempotency remembers the answer to a request that names an
// Idempotency-Key, so that repeating the request repeats the answer and not
// the effect.
//
// It owns the key's rules: they are Stripe's (one answer for 24 hours per
// tenant and key, another body under the same key is refused), with the key
// written in the transaction of the effect, so that neither stands without the
// other. It refuses to know what the effect is.
package idempotency

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
)

// Key identifies a request that may be repeated. The zero value is a request
// without a key.
type Key struct {
	Value string   // as the client sent it, 1 to 255 characters
	Route string   // what was asked for, such as "POST /jobs"
	Body  [32]byte // SHA-256 of the request's body
}

// Do runs effect once for a key of a tenant, inside the caller's transaction,
// and reports whether the answer is a remembered one. Without a key it just
// runs it. A key that was used for another request is a Conflict.
func Do[T any](ctx context.Context, s Store, tenant uuid.UUID, key Key, effect func() (T, error)) (answer T, replayed bool, err error) {
	if key.Value == "" {
		answer, err = effect()
		return answer, false, err
	}
	stored, fresh, err := s.reserve(ctx, tenant, key)
	if err != nil {
		return answer, false, err
	}
	if !fresh {
		if err := json.Unmarshal(stored, &answer); err != nil {
			return answer, false, fmt.Errorf("read the remembered answer: %w", err)
		}
		return answer, true, nil
	}
	if answer, err = effect(); err != nil {
		return answer, false, err
	}
	return answer, false, s.remember(ctx, tenant, key, answer)
}

// reused is the refusal of a key that belongs to another request.
func reused() error {
	return fault.New(fault.Conflict, fault.CodeIdempotencyKeyReused,
		"this Idempotency-Key was used for another request within the last 24 hours: use a new key for a new request")
}
