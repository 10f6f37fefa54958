package idempotency

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
)

// Store keeps keys in the transaction of the queries it is made of.
type Store struct{ Queries *db.Queries }

// reserve takes the key for this request, or finds the answer of an earlier
// one. A concurrent request with the same key waits for the first one's end.
func (s Store) reserve(ctx context.Context, tenant uuid.UUID, key Key) (stored json.RawMessage, fresh bool, err error) {
	n, err := s.Queries.InsertIdempotencyKey(ctx, db.InsertIdempotencyKeyParams{
		TenantID: tenant, Key: key.Value, Route: key.Route, BodySha256: key.Body[:],
	})
	if err != nil {
		return nil, false, fmt.Errorf("reserve the idempotency key: %w", err)
	}
	if n == 1 {
		return nil, true, nil
	}
	row, err := s.Queries.GetIdempotencyKey(ctx, db.GetIdempotencyKeyParams{TenantID: tenant, Key: key.Value})
	if err != nil {
		return nil, false, fmt.Errorf("read the idempotency key: %w", err)
	}
	if row.Route != key.Route || [32]byte(row.BodySha256) != key.Body {
		return nil, false, reused()
	}
	return row.Response, false, nil
}

func (s Store) remember(ctx context.Context, tenant uuid.UUID, key Key, answer any) error {
	response, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("write the answer to remember: %w", err)
	}
	err = s.Queries.SetIdempotencyResponse(ctx, db.SetIdempotencyResponseParams{TenantID: tenant, Key: key.Value, Response: response})
	if err != nil {
		return fmt.Errorf("remember the answer: %w", err)
	}
	return nil
}
