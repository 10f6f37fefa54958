package secret

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Store keeps a tenant's secrets. Each method acts for one tenant; the name of
// another tenant's secret is answered as one that does not exist.
type Store struct {
	db   *postgres.DB
	keys *keyring.Ring
}

// NewStore makes a store. Without keys it writes no secret.
func NewStore(db *postgres.DB, keys *keyring.Ring) *Store { return &Store{db: db, keys: keys} }

// Position is a place in a list of secrets, newest first.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// Put stores a secret, or replaces the value of the one that has the name. It
// reports whether it is new. The next attempt of every job that refers to it
// uses the new value. It is PRECONDITION_FAILED where the draft wants another
// version to be stored, or any.
func (s *Store) Put(ctx context.Context, who tenant.Actor, d Draft) (stored Secret, fresh bool, err error) {
	if s.keys.Current() == "" {
		return Secret{}, false, noKeys()
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.LockSecret(ctx, db.LockSecretParams{TenantID: who.TenantID, Name: d.Name})
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
			if d.Replaces || d.IfVersion != 0 {
				return outdated("there is no secret with this name: store it without If-Match")
			}
			stored, err = s.insert(ctx, tx, who, d)
			if fresh = err == nil; fault.KindOf(postgres.Fault(err)) != fault.NotFound {
				return err
			}
			// Somebody took the name meanwhile: theirs is replaced.
			row, err = tx.LockSecret(ctx, db.LockSecretParams{TenantID: who.TenantID, Name: d.Name})
		}
		if err != nil {
			return fmt.Errorf("lock secret: %w", err)
		}
		if d.IfVersion != 0 && d.IfVersion != int(row.Version) {
			return outdated(fmt.Sprintf("the secret is at version %d now: read it again and repeat the change", row.Version))
		}
		stored, err = s.replace(ctx, tx, who, Secret(row), d)
		return err
	})
	return stored, fresh, err
}

func outdated(message string) error {
	return fault.New(fault.Conflict, fault.CodePreconditionFailed, message)
}

func (s *Store) insert(ctx context.Context, tx *postgres.Tx, who tenant.Actor, d Draft) (Secret, error) {
	if err := tenant.CheckQuota(ctx, tx, who.TenantID, tenant.Secrets); err != nil {
		return Secret{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Secret{}, fmt.Errorf("make a secret's id: %w", err)
	}
	sealed, err := s.keys.Seal(binding(who.TenantID, id, d.Name), d.Value)
	if err != nil {
		return Secret{}, err
	}
	p := db.InsertSecretParams{
		ID: id, TenantID: who.TenantID, Name: d.Name, KeyID: s.keys.Current(), Sealed: sealed, CreatedBy: who.Subject, Now: tx.At,
	}
	if d.Description != nil {
		p.Description = *d.Description
	}
	row, err := tx.InsertSecret(ctx, p)
	if err != nil {
		return Secret{}, fmt.Errorf("insert secret: %w", err)
	}
	return fromRow(Secret(row)), nil
}

func (s *Store) replace(ctx context.Context, tx *postgres.Tx, who tenant.Actor, old Secret, d Draft) (Secret, error) {
	sealed, err := s.keys.Seal(binding(who.TenantID, old.ID, old.Name), d.Value)
	if err != nil {
		return Secret{}, err
	}
	p := db.UpdateSecretParams{
		TenantID: who.TenantID, ID: old.ID, Description: old.Description, KeyID: s.keys.Current(), Sealed: sealed, UpdatedBy: who.Subject, Now: tx.At,
	}
	if d.Description != nil {
		p.Description = *d.Description
	}
	row, err := tx.UpdateSecret(ctx, p)
	if err != nil {
		return Secret{}, fmt.Errorf("replace secret: %w", err)
	}
	return fromRow(Secret(row)), nil
}

// Get reads what may be shown of a secret.
func (s *Store) Get(ctx context.Context, who tenant.Actor, name string) (found Secret, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.GetSecret(ctx, db.GetSecretParams{TenantID: who.TenantID, Name: name})
		if err != nil {
			return missing(err)
		}
		found = fromRow(Secret(row))
		return nil
	})
	return found, err
}

// List reads a page of secrets, newest first, from after a position on (nil:
// from the first).
func (s *Store) List(ctx context.Context, who tenant.Actor, limit int, after *Position) (list []Secret, err error) {
	p := db.ListSecretsParams{TenantID: who.TenantID, PageSize: int32(limit), BeforeCreatedAt: columns.Never, BeforeID: uuid.Max}
	if after != nil {
		p.BeforeCreatedAt, p.BeforeID = after.CreatedAt, after.ID
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListSecrets(ctx, p)
		if err != nil {
			return fmt.Errorf("list secrets: %w", err)
		}
		list = make([]Secret, len(rows))
		for i, row := range rows {
			list[i] = fromRow(Secret(row))
		}
		return nil
	})
	return list, err
}

// Delete removes a secret that no job refers to; another is a Conflict that
// says how many do. A run of an older definition that refers to it fails. With
// ifVersion other than zero, only if it still has that version.
func (s *Store) Delete(ctx context.Context, who tenant.Actor, name string, ifVersion int) error {
	return s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.LockSecret(ctx, db.LockSecretParams{TenantID: who.TenantID, Name: name})
		if err != nil {
			return missing(err)
		}
		if ifVersion != 0 && ifVersion != int(row.Version) {
			return outdated(fmt.Sprintf("the secret is at version %d now: read it again and repeat the change", row.Version))
		}
		n, err := tx.CountJobsBySecret(ctx, db.CountJobsBySecretParams{TenantID: who.TenantID, Name: name})
		switch {
		case err != nil:
			return fmt.Errorf("count the jobs of a secret: %w", err)
		case n == 1:
			return fault.New(fault.Conflict, fault.CodeConflict, "1 job refers to this secret: take it out of that job first")
		case n > 1:
			return fault.New(fault.Conflict, fault.CodeConflict, fmt.Sprintf("%d jobs refer to this secret: take it out of them first", n))
		}
		if _, err := tx.DeleteSecret(ctx, db.DeleteSecretParams{TenantID: who.TenantID, ID: row.ID}); err != nil {
			return fmt.Errorf("delete secret: %w", err)
		}
		return nil
	})
}

// fromRow is a row as the domain sees it: in UTC.
func fromRow(s Secret) Secret {
	s.CreatedAt, s.UpdatedAt = s.CreatedAt.UTC(), s.UpdatedAt.UTC()
	return s
}

// missing turns "no row" into the answer for a secret that is not there.
func missing(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return NotFound()
	}
	return fmt.Errorf("read secret: %w", err)
}
