package job

import (
	"context"
	"encoding/json"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// CheckSecrets lists what is wrong with what a configuration says of secrets
// and credentials. In a fresh definition, one of no stored job, a masked
// credential is a fault; in another, Update tells.
func (s *Store) CheckSecrets(ctx context.Context, who tenant.Actor, config json.RawMessage, fresh bool) (fields []fault.Field, err error) {
	if !secret.Refers(config) {
		return s.vault.Check(ctx, nil, who, config, fresh) // it looks nothing up
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		fields, err = s.vault.Check(ctx, tx, who, config, fresh)
		return err
	})
	return fields, err
}

// CheckParameters lists what is wrong with what the overrides of a trigger say
// of secrets and credentials.
func (s *Store) CheckParameters(ctx context.Context, who tenant.Actor, parameters json.RawMessage) (fields []fault.Field, err error) {
	if !secret.Refers(parameters) {
		return secret.CheckParameters(ctx, nil, who, parameters)
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		fields, err = secret.CheckParameters(ctx, tx, who, parameters)
		return err
	})
	return fields, err
}
