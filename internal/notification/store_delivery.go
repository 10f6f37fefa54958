package notification

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Test makes a delivery that tells nothing but that messages arrive.
func (s *Store) Test(ctx context.Context, who tenant.Actor, id uuid.UUID) (made Delivery, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		n, err := lockEnabled(ctx, tx, who, id)
		if err != nil {
			return err
		}
		made, err = insertTest(ctx, tx, n)
		if err != nil {
			return err
		}
		return tx.WakeNotification(ctx, db.WakeNotificationParams{TenantID: who.TenantID, ID: id, At: tx.At})
	})
	return made, err
}

func insertTest(ctx context.Context, tx *postgres.Tx, n Notification) (Delivery, error) {
	ids := [2]uuid.UUID{}
	for i := range ids {
		var err error
		if ids[i], err = uuid.NewV7(); err != nil {
			return Delivery{}, fmt.Errorf("make a delivery's id: %w", err)
		}
	}
	events, err := json.Marshal([]Event{{ID: ids[0], Type: Test, At: tx.At}})
	if err != nil {
		return Delivery{}, fmt.Errorf("write an event: %w", err)
	}
	row, err := tx.InsertNotificationDelivery(ctx, db.InsertNotificationDeliveryParams{
		ID: ids[1], NotificationID: n.ID, TenantID: n.TenantID, Events: events, Now: tx.At, GiveUpAt: tx.At.Add(Lifetime),
	})
	if err != nil {
		return Delivery{}, fmt.Errorf("insert a delivery: %w", err)
	}
	return fromDelivery(row), nil
}

// Deliveries reads a page of the deliveries of a notification, newest first, from after a
// position on (nil: from the first); an empty status means any.
func (s *Store) Deliveries(ctx context.Context, who tenant.Actor, id uuid.UUID, status string, limit int, after *Position) (list []Delivery, err error) {
	p := db.ListNotificationDeliveriesParams{
		TenantID: who.TenantID, NotificationID: id, Status: columns.OrNull(status), PageSize: int32(limit), BeforeCreatedAt: columns.Never, BeforeID: uuid.Max,
	}
	if after != nil {
		p.BeforeCreatedAt, p.BeforeID = after.CreatedAt, after.ID
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if _, err := tx.GetNotification(ctx, db.GetNotificationParams{TenantID: who.TenantID, ID: id}); err != nil {
			return missing(err)
		}
		rows, err := tx.ListNotificationDeliveries(ctx, p)
		if err != nil {
			return fmt.Errorf("list deliveries: %w", err)
		}
		for _, row := range rows {
			list = append(list, fromDelivery(row))
		}
		return nil
	})
	return list, err
}

// Resend has a delivery sent again, now.
func (s *Store) Resend(ctx context.Context, who tenant.Actor, id, delivery uuid.UUID) (again Delivery, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if _, err := lockEnabled(ctx, tx, who, id); err != nil {
			return err
		}
		row, err := tx.ResendNotificationDelivery(ctx, db.ResendNotificationDeliveryParams{
			TenantID: who.TenantID, NotificationID: id, ID: delivery, Now: tx.At, GiveUpAt: tx.At.Add(Lifetime),
		})
		if err != nil {
			return missing(err)
		}
		again = fromDelivery(row)
		return tx.WakeNotification(ctx, db.WakeNotificationParams{TenantID: who.TenantID, ID: id, At: tx.At})
	})
	return again, err
}

func lockEnabled(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID) (Notification, error) {
	n, err := lock(ctx, tx, who, id)
	if err == nil && !n.Enabled {
		err = fault.New(fault.Conflict, fault.CodeConflict, "the notification is disabled: enable it first")
	}
	return n, err
}

func fromDelivery(r db.NotificationDelivery) Delivery {
	d := Delivery{
		ID: r.ID, NotificationID: r.NotificationID, Status: r.Status, Count: int(r.EventCount), Events: r.Events, Attempts: int(r.Attempts),
		CreatedAt: r.CreatedAt.UTC(), AttemptedAt: columns.UTC(r.AttemptedAt), FinishedAt: columns.UTC(r.FinishedAt), Excerpt: r.ResponseExcerpt, Error: r.Error,
	}
	if r.FinishedAt == nil {
		d.NextAttemptAt = columns.UTC(&r.NextAttemptAt)
	}
	if r.ResponseStatus != nil {
		status := int(*r.ResponseStatus)
		d.ResponseStatus = &status
	}
	return d
}
