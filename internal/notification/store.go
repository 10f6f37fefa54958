package notification

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Store keeps a tenant's notifications. Each method acts for one tenant; the id of another
// tenant's notification is answered as one that does not exist.
type Store struct {
	db   *postgres.DB
	keys *keyring.Ring
}

// NewStore makes a store. Without keys it stores those of kind Email alone.
func NewStore(db *postgres.DB, keys *keyring.Ring) *Store { return &Store{db: db, keys: keys} }

// Position is a place in a list, newest first.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// Create stores a valid notification and returns the secret that its messages are signed
// with; empty for kinds that are not signed. A name that is taken is a Conflict.
func (s *Store) Create(ctx context.Context, who tenant.Actor, spec Spec) (made Notification, secret string, err error) {
	if s.keys.Current() == "" && spec.Kind != Email {
		return Notification{}, "", noKeys()
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if err := checkRoom(ctx, tx, who); err != nil {
			return err
		}
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make a notification's id: %w", err)
		}
		row, err := tx.InsertNotification(ctx, db.InsertNotificationParams{
			ID: id, TenantID: who.TenantID, Name: spec.Name, Kind: spec.Kind, Url: shownURL(spec.Kind, spec.URL), Recipients: append([]string{}, spec.To...), Events: spec.Events,
			JobIds: spec.JobIDs, Tags: spec.Tags, Settings: settingsOf(spec), Enabled: spec.Enabled, CreatedBy: who.Subject, Now: tx.At,
		})
		if err != nil {
			return taken(err)
		}
		made = FromRow(row)
		secret, err = s.keepSecret(ctx, tx, made, spec.URL)
		return err
	})
	return made, secret, err
}

// checkRoom refuses one more than a tenant may have. The tenant's row stays locked, so that
// of two that are made at once the second counts the first.
func checkRoom(ctx context.Context, tx *postgres.Tx, who tenant.Actor) error {
	if _, err := tx.LockTenantBounds(ctx, who.TenantID); err != nil {
		return fmt.Errorf("lock the tenant: %w", err)
	}
	n, err := tx.CountNotifications(ctx, who.TenantID)
	if err != nil {
		return fmt.Errorf("count notifications: %w", err)
	}
	if n < most {
		return nil
	}
	return fault.Exceeded(fault.Limit{Name: "maxNotifications", Value: most},
		fmt.Sprintf("a tenant may have %d notifications, which is fixed: delete one that is not needed", most), tx.At)
}

// keepSecret seals what is secret of a new notification: a new key for its signatures, or
// its URL.
func (s *Store) keepSecret(ctx context.Context, tx *postgres.Tx, n Notification, url string) (shown string, err error) {
	switch n.Kind {
	case Email:
		return "", nil
	case Slack:
		return "", s.seal(ctx, tx, n, Address, url)
	}
	shown = mint()
	return shown, s.seal(ctx, tx, n, Signing, shown)
}

func (s *Store) seal(ctx context.Context, tx *postgres.Tx, n Notification, purpose, text string) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make a secret's id: %w", err)
	}
	sealed, err := s.keys.Seal(Binding(n.TenantID, n.ID, id, purpose), keyring.NewText(text))
	if err != nil {
		return err
	}
	err = tx.InsertNotificationSecret(ctx, db.InsertNotificationSecretParams{
		ID: id, NotificationID: n.ID, TenantID: n.TenantID, Purpose: purpose, KeyID: s.keys.Current(), Sealed: sealed, Now: tx.At,
	})
	if err != nil {
		return fmt.Errorf("insert a notification's secret: %w", err)
	}
	return nil
}

// mint makes a secret in the form of Standard Webhooks.
func mint() string {
	key := make([]byte, 24)
	_, _ = rand.Read(key) // it never fails; see its documentation
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// Get reads one notification.
func (s *Store) Get(ctx context.Context, who tenant.Actor, id uuid.UUID) (found Notification, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.GetNotification(ctx, db.GetNotificationParams{TenantID: who.TenantID, ID: id})
		if err != nil {
			return missing(err)
		}
		one := []Notification{FromRow(row)}
		err = addSecrets(ctx, tx, who, one)
		found = one[0]
		return err
	})
	return found, err
}

// List reads a page of notifications, newest first, from after a position on (nil: from the
// first).
func (s *Store) List(ctx context.Context, who tenant.Actor, limit int, after *Position) (list []Notification, err error) {
	p := db.ListNotificationsParams{TenantID: who.TenantID, PageSize: int32(limit), BeforeCreatedAt: columns.Never, BeforeID: uuid.Max}
	if after != nil {
		p.BeforeCreatedAt, p.BeforeID = after.CreatedAt, after.ID
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListNotifications(ctx, p)
		if err != nil {
			return fmt.Errorf("list notifications: %w", err)
		}
		for _, row := range rows {
			list = append(list, FromRow(row))
		}
		return addSecrets(ctx, tx, who, list)
	})
	return list, err
}

// addSecrets fills in until when the secrets are good that others replaced.
func addSecrets(ctx context.Context, tx *postgres.Tx, who tenant.Actor, list []Notification) error {
	ids := make([]uuid.UUID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	rows, err := tx.ListReplacedNotificationSecrets(ctx, db.ListReplacedNotificationSecretsParams{TenantID: who.TenantID, Ids: ids, Now: tx.At})
	if err != nil {
		return fmt.Errorf("list the secrets of notifications: %w", err)
	}
	for i := range list {
		for _, row := range rows {
			if row.NotificationID == list[i].ID {
				list[i].PreviousUntil = columns.UTC(row.ValidUntil)
			}
		}
	}
	return nil
}

// Update replaces a notification. The kind stays. With ifVersion other than zero, only if
// it still has that version.
func (s *Store) Update(ctx context.Context, who tenant.Actor, id uuid.UUID, spec Spec, ifVersion int) (updated Notification, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		old, err := lock(ctx, tx, who, id)
		if err != nil {
			return err
		}
		switch {
		case ifVersion != 0 && ifVersion != old.Version:
			return outdated(old.Version)
		case spec.Kind != old.Kind:
			return fault.Wrong(fault.CodeValidationFailed, fault.Field{Path: "kind", Rule: "readOnly", Message: "cannot be changed: create another notification"})
		}
		row, err := tx.UpdateNotification(ctx, db.UpdateNotificationParams{
			TenantID: who.TenantID, ID: id, Name: spec.Name, Kind: spec.Kind, Url: shownURL(spec.Kind, spec.URL), Recipients: append([]string{}, spec.To...), Events: spec.Events,
			JobIds: spec.JobIDs, Tags: spec.Tags, Settings: settingsOf(spec), Enabled: spec.Enabled, Now: tx.At,
		})
		if err != nil {
			return taken(err)
		}
		one := []Notification{FromRow(row)}
		if spec.Kind == Slack && spec.URL != old.URL { // otherwise it is as it was shown
			if err := s.replaceURL(ctx, tx, one[0], spec.URL); err != nil {
				return err
			}
		}
		err = addSecrets(ctx, tx, who, one)
		updated = one[0]
		return err
	})
	return updated, err
}

func (s *Store) replaceURL(ctx context.Context, tx *postgres.Tx, n Notification, url string) error {
	if s.keys.Current() == "" {
		return noKeys()
	}
	err := tx.DeleteNotificationSecrets(ctx, db.DeleteNotificationSecretsParams{TenantID: n.TenantID, NotificationID: n.ID, Purpose: Address})
	if err != nil {
		return fmt.Errorf("delete the URL before: %w", err)
	}
	return s.seal(ctx, tx, n, Address, url)
}

// RotateSecret makes a new secret and returns it; the one before is good for the grace
// still.
func (s *Store) RotateSecret(ctx context.Context, who tenant.Actor, id uuid.UUID, grace time.Duration) (rotated Notification, secret string, err error) {
	if s.keys.Current() == "" {
		return Notification{}, "", noKeys()
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		old, err := lock(ctx, tx, who, id)
		if err != nil {
			return err
		}
		if old.Kind != Webhook {
			return fault.New(fault.Conflict, fault.CodeConflict, "a notification of kind "+old.Kind+" signs nothing and has no secret to be replaced")
		}
		err = tx.RetireNotificationSecrets(ctx, db.RetireNotificationSecretsParams{TenantID: who.TenantID, NotificationID: id, Purpose: Signing, Until: tx.At.Add(grace)})
		if err != nil {
			return fmt.Errorf("retire the secret before: %w", err)
		}
		secret = mint()
		if err := s.seal(ctx, tx, old, Signing, secret); err != nil {
			return err
		}
		row, err := tx.TouchNotification(ctx, db.TouchNotificationParams{TenantID: who.TenantID, ID: id, Now: tx.At})
		if err != nil {
			return fmt.Errorf("note that the secret is another: %w", err)
		}
		one := []Notification{FromRow(row)}
		err = addSecrets(ctx, tx, who, one)
		rotated = one[0]
		return err
	})
	return rotated, secret, err
}

// Delete removes a notification and what it has not sent yet. With ifVersion other than
// zero, only if it still has that version.
func (s *Store) Delete(ctx context.Context, who tenant.Actor, id uuid.UUID, ifVersion int) error {
	return s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		old, err := lock(ctx, tx, who, id)
		if err != nil {
			return err
		}
		if ifVersion != 0 && ifVersion != old.Version {
			return outdated(old.Version)
		}
		if _, err := tx.DeleteNotification(ctx, db.DeleteNotificationParams{TenantID: who.TenantID, ID: id}); err != nil {
			return fmt.Errorf("delete notification: %w", err)
		}
		return nil
	})
}

func lock(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID) (Notification, error) {
	row, err := tx.LockNotification(ctx, db.LockNotificationParams{TenantID: who.TenantID, ID: id})
	if err != nil {
		return Notification{}, missing(err)
	}
	return FromRow(row), nil
}

// settings are those that no statement asks for.
type settings struct {
	Quiet        *Quiet `json:"quietHours,omitempty"`
	GroupMinutes int    `json:"groupMinutes,omitempty"`
}

func settingsOf(s Spec) json.RawMessage {
	raw, err := json.Marshal(settings{Quiet: s.Quiet, GroupMinutes: int(s.Group / time.Minute)})
	if err != nil {
		return json.RawMessage("{}") // texts and numbers always encode
	}
	return raw
}

// FromRow is a row as the domain sees it.
func FromRow(r db.Notification) Notification {
	var kept settings
	_ = json.Unmarshal(r.Settings, &kept) // settingsOf wrote it
	return Notification{
		Spec: Spec{
			Name: r.Name, Kind: r.Kind, URL: r.Url, To: r.Recipients, Events: r.Events, JobIDs: r.JobIds, Tags: r.Tags, Enabled: r.Enabled,
			Quiet: kept.Quiet, Group: time.Duration(kept.GroupMinutes) * time.Minute,
		},
		ID: r.ID, TenantID: r.TenantID, Version: int(r.Version), DisabledReason: r.DisabledReason, FailingSince: columns.UTC(r.FailingSince),
		Dropped: r.Dropped, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(), Since: r.Since.UTC(),
	}
}

func noKeys() error {
	return fault.New(fault.Unavailable, fault.CodeSecretsNotConfigured, "what is secret of a notification cannot be kept: the operator has not configured SECRETS_KEYS")
}

func outdated(version int) error {
	return fault.New(fault.Conflict, fault.CodePreconditionFailed,
		fmt.Sprintf("the notification is at version %d now: read it again and repeat the change", version))
}

// missing turns "no row" into the answer for a notification that does not exist.
func missing(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return NotFound()
	}
	return fmt.Errorf("read notification: %w", err)
}

// taken turns a broken uniqueness into the answer for a name that is taken.
func taken(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.Conflict {
		return fault.New(fault.Conflict, fault.CodeConflict, "a notification with this name exists already")
	}
	return fmt.Errorf("write notification: %w", err)
}

// Hides reports whether a URL is one as it is shown, whose path is secret.
func Hides(url string) bool { return strings.HasSuffix(url, hidden) }
