package secret

import (
	"context"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// rewrapBatch is how many envelopes one transaction of a rotation holds.
const rewrapBatch = 200

// Rotation says what a rotation did.
type Rotation struct {
	Rewrapped int
	// Unopened are envelopes that no key of the ring opens.
	Unopened int
	// Sealed counts all envelopes by the id of their key.
	Sealed map[string]int
}

// Rotate puts everything that is sealed under the current key, in small
// transactions beside the running service, and without opening a value. It may
// be repeated and run more than once at a time. A key may leave the ring once
// Sealed names it no more.
func Rotate(ctx context.Context, d *postgres.DB, keys *keyring.Ring) (Rotation, error) {
	var r Rotation
	if keys.Current() == "" {
		return r, keyring.ErrNoKeys
	}
	for _, batch := range []func(context.Context, *postgres.Tx) (bool, error){
		(&secretRewrap{keys: keys, done: &r}).batch, (&credentialRewrap{keys: keys, done: &r}).batch,
		(&notificationRewrap{keys: keys, done: &r}).batch,
	} {
		for more := true; more; {
			err := d.InTx(ctx, func(tx *postgres.Tx) (err error) {
				more, err = batch(ctx, tx)
				return err
			})
			if err != nil {
				return r, fmt.Errorf("rotate: %w", err)
			}
		}
	}
	var err error
	r.Sealed, err = sealedByKey(ctx, d)
	return r, err
}

// CountUnopenable counts what is sealed under keys that the ring does not have, by their
// ids: attempts that need it fail.
func CountUnopenable(ctx context.Context, d *postgres.DB, keys *keyring.Ring) (map[string]int, error) {
	sealed, err := sealedByKey(ctx, d)
	maps.DeleteFunc(sealed, func(id string, _ int) bool { return keys.Holds(id) })
	return sealed, err
}

func sealedByKey(ctx context.Context, d *postgres.DB) (map[string]int, error) {
	rows, err := db.New(d.Pool()).CountSealedByKey(ctx)
	if err != nil {
		return nil, fmt.Errorf("count what is sealed: %w", postgres.Fault(err))
	}
	sealed := make(map[string]int, len(rows))
	for _, row := range rows {
		sealed[row.KeyID] = int(row.Sealed)
	}
	return sealed, nil
}

// secretRewrap walks the secrets by id.
type secretRewrap struct {
	keys  *keyring.Ring
	done  *Rotation
	after uuid.UUID
}

func (w *secretRewrap) batch(ctx context.Context, tx *postgres.Tx) (more bool, err error) {
	rows, err := tx.LockSecretsToRewrap(ctx, db.LockSecretsToRewrapParams{KeyID: w.keys.Current(), AfterID: w.after, BatchSize: rewrapBatch})
	if err != nil || len(rows) == 0 {
		return false, err
	}
	p := db.RewrapSecretsParams{KeyID: w.keys.Current()}
	for _, row := range rows {
		w.after = row.ID
		sealed, err := w.keys.Rewrap(binding(row.TenantID, row.ID, row.Name), row.Sealed)
		if err != nil {
			w.done.Unopened++
			continue
		}
		p.Ids, p.Sealed = append(p.Ids, row.ID), append(p.Sealed, sealed)
	}
	w.done.Rewrapped += len(p.Ids)
	return true, tx.RewrapSecrets(ctx, p)
}

// credentialRewrap walks the credentials of job versions.
type credentialRewrap struct {
	keys  *keyring.Ring
	done  *Rotation
	after Version
}

func (w *credentialRewrap) batch(ctx context.Context, tx *postgres.Tx) (more bool, err error) {
	rows, err := tx.LockJobCredentialsToRewrap(ctx, db.LockJobCredentialsToRewrapParams{
		KeyID: w.keys.Current(), AfterJob: w.after.Job, AfterVersion: int32(w.after.Number), BatchSize: rewrapBatch,
	})
	if err != nil || len(rows) == 0 {
		return false, err
	}
	p := db.RewrapJobCredentialsParams{KeyID: w.keys.Current()}
	for _, row := range rows {
		w.after = Version{Tenant: row.TenantID, Job: row.JobID, Number: int(row.Version)}
		sealed, err := w.keys.Rewrap(w.after.binding(), row.Sealed)
		if err != nil {
			w.done.Unopened++
			continue
		}
		p.JobIds, p.Versions, p.Sealed = append(p.JobIds, row.JobID), append(p.Versions, row.Version), append(p.Sealed, sealed)
	}
	w.done.Rewrapped += len(p.JobIds)
	return true, tx.RewrapJobCredentials(ctx, p)
}

// notificationRewrap walks the secrets of notifications by id.
type notificationRewrap struct {
	keys  *keyring.Ring
	done  *Rotation
	after uuid.UUID
}

func (w *notificationRewrap) batch(ctx context.Context, tx *postgres.Tx) (more bool, err error) {
	rows, err := tx.LockNotificationSecretsToRewrap(ctx, db.LockNotificationSecretsToRewrapParams{KeyID: w.keys.Current(), AfterID: w.after, BatchSize: rewrapBatch})
	if err != nil || len(rows) == 0 {
		return false, err
	}
	p := db.RewrapNotificationSecretsParams{KeyID: w.keys.Current()}
	for _, row := range rows {
		w.after = row.ID
		sealed, err := w.keys.Rewrap(notification.Binding(row.TenantID, row.NotificationID, row.ID, row.Purpose), row.Sealed)
		if err != nil {
			w.done.Unopened++
			continue
		}
		p.Ids, p.Sealed = append(p.Ids, row.ID), append(p.Sealed, sealed)
	}
	w.done.Rewrapped += len(p.Ids)
	return true, tx.RewrapNotificationSecrets(ctx, p)
}
