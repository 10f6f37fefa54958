package secret

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Check lists what is wrong with what a configuration says of secrets, inside
// a transaction of the tenant. Masked is a fault where the definition is fresh;
// of another, Protect tells.
func (v *Vault) Check(ctx context.Context, tx *postgres.Tx, who tenant.Actor, config json.RawMessage, fresh bool) ([]fault.Field, error) {
	p := v.protect(config, fresh)
	if fresh {
		if err := MayUse(who, nil, config); err != nil {
			return nil, err
		}
	}
	if len(p.Names) > 0 && !who.NoSecrets { // who may use none is not told which there are
		known, err := tx.ListSecretNames(ctx, db.ListSecretNamesParams{TenantID: who.TenantID, Names: p.Names})
		if err != nil {
			return nil, fmt.Errorf("look for secrets: %w", err)
		}
		p.unknown(known)
	}
	return p.faults, nil
}

// Protect makes a configuration one that may be stored as the first version of
// a job, inside the transaction that does so: until it ends, no secret that is
// named goes. The error is an Invalid fault that lists what is wrong.
func (v *Vault) Protect(ctx context.Context, tx *postgres.Tx, who tenant.Actor, config json.RawMessage) (Protected, error) {
	if err := MayUse(who, nil, config); err != nil {
		return Protected{}, err
	}
	p := v.protect(config, true)
	if err := hold(ctx, tx, who, &p); err != nil {
		return Protected{}, err
	}
	return p, p.wrong()
}

// ProtectNext is Protect for the version after another, whose configuration is
// given as it is stored. Where Masked stands, its credential is kept.
func (v *Vault) ProtectNext(ctx context.Context, tx *postgres.Tx, before Version, stored, config json.RawMessage) (Protected, error) {
	p := v.protect(config, false)
	if err := hold(ctx, tx, tenant.Actor{TenantID: before.Tenant}, &p); err != nil {
		return Protected{}, err
	}
	if p.keeps() && v.keys.Current() != "" { // without keys that is what is wrong
		sealed, err := tx.GetJobCredentials(ctx, db.GetJobCredentialsParams{TenantID: before.Tenant, JobID: before.Job, Version: int32(before.Number)})
		if err != nil && fault.KindOf(postgres.Fault(err)) != fault.NotFound {
			return Protected{}, fmt.Errorf("read the credentials of the version before: %w", err)
		}
		texts, err := open(v.keys, before, sealed)
		if err != nil {
			return Protected{}, fmt.Errorf("open the credentials of version %d of job %s: %w", before.Number, before.Job, err)
		}
		p.keep(texts, sameTarget(stored, config))
	}
	return p, p.wrong()
}

func hold(ctx context.Context, tx *postgres.Tx, who tenant.Actor, p *Protected) error {
	if len(p.Names) == 0 {
		return nil
	}
	known, err := tx.HoldSecrets(ctx, db.HoldSecretsParams{TenantID: who.TenantID, Names: p.Names})
	if err != nil {
		return fmt.Errorf("hold secrets: %w", err)
	}
	p.unknown(known)
	return nil
}

// Store keeps the credentials of a version that was inserted.
func (v *Vault) Store(ctx context.Context, q *db.Queries, of Version, p Protected) error {
	sealed, err := v.seal(of, p)
	if err != nil || sealed == nil {
		return err
	}
	err = q.InsertJobCredentials(ctx, db.InsertJobCredentialsParams{
		JobID: of.Job, Version: int32(of.Number), TenantID: of.Tenant, KeyID: v.keys.Current(), Sealed: sealed,
	})
	if err != nil {
		return fmt.Errorf("insert credentials: %w", err)
	}
	return nil
}

// CheckParameters lists what is wrong with what the overrides of a trigger say
// of secrets and of the run, at paths below "parameters": names that are not there, and
// credentials that stand in them. tx may be nil where they refer to no secret.
func CheckParameters(ctx context.Context, tx *postgres.Tx, who tenant.Actor, parameters json.RawMessage) ([]fault.Field, error) {
	var p Protected
	p.uses, p.faults = references("parameters", parameters, nil)
	p.faults = append(p.faults, Inline(parameters)...)
	if len(p.uses) == 0 {
		return p.faults, nil
	}
	known, err := tx.ListSecretNames(ctx, db.ListSecretNamesParams{TenantID: who.TenantID, Names: namesOf(p.uses)})
	if err != nil {
		return nil, fmt.Errorf("look for secrets: %w", err)
	}
	p.unknown(known)
	return p.faults, nil
}
