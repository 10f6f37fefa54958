package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// newRing makes the keys of what is kept secret; none are configured where the
// ring is empty.
func newRing(keys config.Secret) (*keyring.Ring, error) {
	ring, err := keyring.Parse(keys.Reveal())
	if err != nil {
		return nil, fmt.Errorf("SECRETS_KEYS: %w", err)
	}
	return ring, nil
}

// workerRing is newRing for a process that opens what is sealed: it warns of
// what it will not open before the first attempt fails of it.
func (p process) workerRing(ctx context.Context, c config.Worker, db *postgres.DB) (*keyring.Ring, error) {
	ring, err := newRing(c.SecretsKeys)
	if err != nil {
		return nil, err
	}
	unheld, err := secret.CountUnopenable(ctx, db, ring)
	if err != nil {
		return nil, err
	}
	if len(unheld) > 0 {
		p.log.WarnContext(ctx, "something is sealed under keys that SECRETS_KEYS does not name", "sealed_by_key", unheld)
	}
	return ring, nil
}

// rotateSecrets puts everything that is sealed under the first of the keys,
// beside the running service. It fails where something is left that none of
// the keys opens.
func rotateSecrets(ctx context.Context, o Order) error {
	c, log := o.Config, o.Log
	ring, err := newRing(c.SecretsKeys)
	if err != nil {
		return err
	}
	if ring.Current() == "" {
		return errors.New("SECRETS_KEYS: is not set; give the new key first and the old ones after it")
	}
	db, err := engineOf(ctx, c)
	if err != nil {
		return err
	}
	defer db.Close()
	done, err := secret.Rotate(ctx, db, ring)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "secrets are under the first key", "rewrapped", done.Rewrapped, "unopened", done.Unopened, "sealed_by_key", done.Sealed)
	if done.Unopened > 0 {
		return fmt.Errorf("%d envelopes are under keys that SECRETS_KEYS does not name, or were changed: give those keys too", done.Unopened)
	}
	return nil
}

// engineOf opens the database of the processes for a command that looks at all
// tenants.
func engineOf(ctx context.Context, c config.Migrate) (*postgres.DB, error) {
	if c.DatabaseURL.IsZero() {
		return nil, errors.New("DATABASE_URL: is not set; this command works as the processes do")
	}
	return postgres.Open(ctx, postgres.Config{URL: c.DatabaseURL.Reveal(), Role: postgres.Engine, Name: "scheduler-migrate", MaxConns: 2})
}
