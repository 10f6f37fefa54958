package tenant

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Kind is something of which a tenant may have so many. Jobs are counted by
// package job, which adds a thousand at once.
type Kind uint8

// The things that a tenant may have a limited number of.
const (
	Calendars Kind = iota
	Secrets
	APIKeys
)

// kinds is what is said and known of each: the limit by its name in the
// contract, its value where the tenant has none of its own, and what is counted.
var kinds = [...]struct {
	limit    string
	fallback int
	plural   string
}{
	Calendars: {"maxCalendars", 1000, "calendars"},
	Secrets:   {"maxSecrets", 1000, "secrets"},
	APIKeys:   {"maxApiKeys", 100, "API keys"},
}

// DefaultQuotas are the limits on what Room counts, of tenants without their own.
func DefaultQuotas() Limits {
	most := func(k Kind) *int { n := kinds[k].fallback; return &n }
	return Limits{MaxCalendars: most(Calendars), MaxSecrets: most(Secrets), MaxAPIKeys: most(APIKeys)}
}

// CheckQuota refuses one more of a kind where the tenant has as many as it may. The
// tenant's row stays locked until the end of the transaction, so that of two
// that are made at once the second counts the first.
func CheckQuota(ctx context.Context, tx *postgres.Tx, id uuid.UUID, kind Kind) error {
	own, err := tx.LockTenantBounds(ctx, id)
	if err != nil {
		return fmt.Errorf("lock the tenant: %w", err)
	}
	count, bound := tx.CountCalendars, own.MaxCalendars
	switch kind {
	case Secrets:
		count, bound = tx.CountSecrets, own.MaxSecrets
	case APIKeys:
		count, bound = tx.CountApiKeys, own.MaxApiKeys
	}
	n, err := count(ctx, id)
	if err != nil {
		return fmt.Errorf("count %s: %w", kinds[kind].plural, err)
	}
	most := int64(kinds[kind].fallback)
	if bound != nil {
		most = int64(*bound)
	}
	if n < most {
		return nil
	}
	return fault.Exceeded(fault.Limit{Name: kinds[kind].limit, Value: most}, fmt.Sprintf(
		"this tenant may have %d %s and has %d: delete one that is not needed, or ask the platform's administrator for more", most, kinds[kind].plural, n), tx.At)
}
