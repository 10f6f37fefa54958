package send

import (
	"context"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// store is the door to the database; it sees all tenants.
type store struct{ db *postgres.DB }

// claim takes up to so many messages that are due, each of another notification.
func (s store) claim(ctx context.Context, now time.Time, most int) (letters []letter, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		at := now
		if at.IsZero() {
			at = tx.At
		}
		rows, err := tx.ClaimNotifications(ctx, db.ClaimNotificationsParams{
			Now: at, BusyUntil: at.Add(held), PerTenant: perTenant, MostFailing: failingSlots, Most: int32(most),
		})
		for _, r := range rows {
			letters = append(letters, fromRow(r, at))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim what is to be sent: %w", postgres.Fault(err))
	}
	return letters, nil
}

func fromRow(r db.ClaimNotificationsRow, at time.Time) letter {
	l := letter{notification: r.ID, tenant: r.TenantID, name: r.Name, kind: r.Kind, url: r.Url, recipients: r.Recipients, claimedAt: at}
	if r.DeliveryID != nil {
		l.delivery, l.events, l.count, l.attempt = *r.DeliveryID, r.Events, int(*r.EventCount), int(*r.Attempts)
		l.createdAt, l.giveUpAt = *r.CreatedAt, *r.GiveUpAt
	}
	return l
}

// open reads what is secret of a notification.
func (s store) open(ctx context.Context, keys *keyring.Ring, l letter) (opened secrets, err error) {
	rows, err := db.New(s.db.Pool()).ListSealedNotificationSecrets(ctx, db.ListSealedNotificationSecretsParams{
		TenantID: l.tenant, NotificationID: l.notification, Now: l.claimedAt,
	})
	if err != nil {
		return opened, fmt.Errorf("read the secrets of a notification: %w", postgres.Fault(err))
	}
	for _, r := range rows {
		text, err := keys.Open(notification.Binding(l.tenant, l.notification, r.ID, r.Purpose), r.Sealed)
		switch {
		case err != nil:
			return opened, err
		case r.Purpose == notification.Address:
			opened.url = text
		default:
			opened.signing = append(opened.signing, text)
		}
	}
	return opened, nil
}

// finish records an attempt, and says why the notification is disabled by it, if it is.
func (s store) finish(ctx context.Context, l letter, o outcome, at time.Time) (disabled string, err error) {
	p := db.FinishNotificationDeliveryParams{
		TenantID: l.tenant, ID: l.delivery, Attempts: int32(l.attempt), Status: o.status, NextAttemptAt: o.next, ResponseExcerpt: o.excerpt,
	}
	if o.status != "pending" {
		p.FinishedAt = &at
	}
	if o.result.status != 0 {
		status := int32(o.result.status)
		p.ResponseStatus = &status
	}
	if o.err != nil {
		p.Error = o.err.Error()
	}
	err = s.locked(ctx, l, func(tx *postgres.Tx, row db.Notification) error {
		if _, err := tx.FinishNotificationDelivery(ctx, p); err != nil {
			return fmt.Errorf("record an attempt: %w", err)
		}
		switch {
		case o.gone:
			disabled = o.err.Error()
		case o.err != nil && row.FailingSince != nil && at.Sub(*row.FailingSince) > patience:
			disabled = "the receiver took nothing since " + row.FailingSince.UTC().Format(time.RFC3339)
		}
		if disabled != "" {
			err := tx.DisableNotification(ctx, db.DisableNotificationParams{TenantID: l.tenant, ID: l.notification, Reason: disabled, Now: at})
			if err != nil {
				return fmt.Errorf("disable a notification: %w", err)
			}
		}
		return tx.SettleNotification(ctx, db.SettleNotificationParams{
			TenantID: l.tenant, ID: l.notification, Failed: o.err != nil, Now: at, NotBefore: at.Add(breath),
		})
	})
	return disabled, err
}

// settle computes anew when a notification has something to send.
func (s store) settle(ctx context.Context, l letter, now time.Time) error {
	return s.locked(ctx, l, func(tx *postgres.Tx, row db.Notification) error {
		return tx.SettleNotification(ctx, db.SettleNotificationParams{
			TenantID: l.tenant, ID: l.notification, Failed: row.FailingSince != nil, Now: l.claimedAt, NotBefore: l.claimedAt,
		})
	})
}

// locked runs fn while it holds the notification locked; one that is gone has nothing to be
// recorded.
func (s store) locked(ctx context.Context, l letter, fn func(tx *postgres.Tx, row db.Notification) error) error {
	err := s.db.InTx(ctx, func(tx *postgres.Tx) error {
		row, err := tx.LockNotification(ctx, db.LockNotificationParams{TenantID: l.tenant, ID: l.notification})
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock a notification: %w", err)
		}
		return fn(tx, row)
	})
	if err != nil {
		return fmt.Errorf("record what was sent: %w", postgres.Fault(err))
	}
	return nil
}

// oldest is for how long the first of what is due has waited; below zero: nothing is due.
func (s store) oldest(ctx context.Context) (time.Duration, error) {
	seconds, err := db.New(s.db.Pool()).MeasureNotifications(ctx)
	if err != nil {
		return 0, fmt.Errorf("look for what is to be sent: %w", postgres.Fault(err))
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
