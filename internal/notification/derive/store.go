package derive

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
)

// store is the door to the database; it sees all tenants.
type store struct{ db *postgres.DB }

// advance derives the events of one interval, up to the present at most.
func (s store) advance(ctx context.Context, held lease.Lease, present time.Time) (r Report, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := held.Guard(ctx, tx); err != nil {
			return err
		}
		cursor, err := tx.LockNotificationCursor(ctx)
		if err != nil {
			return fmt.Errorf("find what is told: %w", err)
		}
		// Nobody is told of what happened before the first notification was made.
		from := cursor.ReadTo
		if cursor.Since.After(from) {
			from = cursor.Since
		}
		if !present.After(from) {
			return nil
		}
		to, err := tx.FindIntervalEnd(ctx, db.FindIntervalEndParams{FromAt: from, ToAt: present, Rows: intervalRows})
		if err != nil {
			return fmt.Errorf("find the end of an interval: %w", err)
		}
		if r, err = derive(ctx, tx, from, to); err != nil {
			return err
		}
		r.More = to.Before(present)
		if err := tx.MoveNotificationCursor(ctx, to); err != nil {
			return fmt.Errorf("note what is told: %w", err)
		}
		return nil
	})
	return r, err
}

// derive makes and stores the messages of what happened after one time and up to another.
func derive(ctx context.Context, tx *postgres.Tx, from, to time.Time) (r Report, err error) {
	outcomes, err := readOutcomes(ctx, tx, from, to)
	if err != nil {
		return r, err
	}
	disabled, err := readDisabled(ctx, tx, from, to)
	if err != nil {
		return r, err
	}
	slow, err := readSlow(ctx, tx, from, to)
	if err != nil || len(outcomes)+len(disabled)+len(slow) == 0 {
		return r, err
	}
	failing, err := readFailing(ctx, tx, outcomes)
	if err != nil {
		return r, err
	}
	var happened []happening
	for _, o := range outcomes {
		happened = append(happened, failing.fold(o)...)
	}
	if err := failing.write(ctx, tx); err != nil {
		return r, err
	}
	return tell(ctx, tx, slices.Concat(happened, slow, disabled))
}

func readOutcomes(ctx context.Context, tx *postgres.Tx, from, to time.Time) ([]outcome, error) {
	rows, err := tx.ListNotableOutcomes(ctx, db.ListNotableOutcomesParams{FromAt: from, ToAt: to})
	if err != nil {
		return nil, fmt.Errorf("list what ended: %w", err)
	}
	all := make([]outcome, len(rows))
	for i, r := range rows {
		all[i] = outcome{
			tenant: r.TenantID, job: r.JobID, id: r.ID, name: r.JobName, tags: r.Tags, status: r.Status, scheduledAt: r.ScheduledAt.UTC(), at: r.CompletedAt.UTC(),
			attempt: int(r.Attempt), duration: time.Duration(r.DurationUs) * time.Microsecond, errorType: r.ErrorType, errorMessage: r.ErrorMessage,
			missedCount: r.MissedCount, missedUntil: columns.UTC(r.MissedUntil), reason: r.Reason,
		}
	}
	return all, nil
}

func readDisabled(ctx context.Context, tx *postgres.Tx, from, to time.Time) (all []happening, err error) {
	rows, err := tx.ListDisabledJobs(ctx, db.ListDisabledJobsParams{FromAt: from, ToAt: to})
	if err != nil {
		return nil, fmt.Errorf("list jobs that were disabled: %w", err)
	}
	for _, r := range rows {
		all = append(all, happening{tenant: r.TenantID, tags: r.Tags, Event: notification.Event{
			ID: eventID("job.disabled", r.ID, r.StatusAt), Type: "job.disabled", At: r.StatusAt.UTC(), JobID: &r.ID, JobName: r.Name, Reason: r.StatusReason,
		}})
	}
	return all, nil
}

// readFailing is which of the jobs failed last.
func readFailing(ctx context.Context, tx *postgres.Tx, outcomes []outcome) (failing, error) {
	jobs := map[uuid.UUID]uuid.UUID{} // and their tenants
	for _, o := range outcomes {
		jobs[o.job] = o.tenant
	}
	f := failing{rows: map[uuid.UUID]failure{}, changed: map[uuid.UUID]bool{}}
	rows, err := tx.ListJobFailures(ctx, slices.Collect(maps.Keys(jobs)))
	if err != nil {
		return f, fmt.Errorf("list the jobs that fail: %w", err)
	}
	for _, r := range rows {
		f.rows[r.JobID] = failure{tenant: jobs[r.JobID], first: r.ExecutionID, since: r.Since.UTC(), failures: r.Failures}
	}
	return f, nil
}

// write stores what changed.
func (f *failing) write(ctx context.Context, tx *postgres.Tx) error {
	var p db.UpsertJobFailuresParams
	var recovered []uuid.UUID
	for job := range f.changed {
		row, fails := f.rows[job]
		if !fails {
			recovered = append(recovered, job)
			continue
		}
		p.JobIds, p.Owners, p.Sinces = append(p.JobIds, job), append(p.Owners, row.tenant), append(p.Sinces, row.since)
		p.Failures, p.ExecutionIds = append(p.Failures, row.failures), append(p.ExecutionIds, row.first)
	}
	if len(p.JobIds) > 0 {
		if err := tx.UpsertJobFailures(ctx, p); err != nil {
			return fmt.Errorf("keep which jobs fail: %w", err)
		}
	}
	if len(recovered) > 0 {
		if err := tx.DeleteJobFailures(ctx, recovered); err != nil {
			return fmt.Errorf("forget jobs that recovered: %w", err)
		}
	}
	return nil
}

// tell stores a delivery for each notification that tells an event.
func tell(ctx context.Context, tx *postgres.Tx, happened []happening) (r Report, err error) {
	tenants := map[uuid.UUID]bool{}
	for _, h := range happened {
		tenants[h.tenant] = true
	}
	ids := slices.Collect(maps.Keys(tenants))
	rows, err := tx.ListNotificationsOfTenants(ctx, ids)
	if err != nil {
		return r, fmt.Errorf("list notifications: %w", err)
	}
	wanted := make([]notification.Notification, len(rows))
	for i, row := range rows {
		wanted[i] = notification.FromRow(row)
	}
	room, err := readRoom(ctx, tx, ids)
	if err != nil {
		return r, err
	}
	before, err := readHistory(ctx, tx, wanted)
	if err != nil {
		return r, err
	}
	messages, dropped := plan(wanted, happened, before, room, tx.At)
	for _, n := range dropped {
		r.Dropped += n
	}
	r.Told = len(messages)
	return r, keep(ctx, tx, messages, dropped)
}

// readRoom is how many deliveries more of each tenant may wait.
func readRoom(ctx context.Context, tx *postgres.Tx, tenants []uuid.UUID) (map[uuid.UUID]int, error) {
	rows, err := tx.CountWaitingDeliveries(ctx, db.CountWaitingDeliveriesParams{TenantIds: tenants, Most: mostWaiting})
	if err != nil {
		return nil, fmt.Errorf("count deliveries that wait: %w", err)
	}
	room := make(map[uuid.UUID]int, len(rows))
	for _, row := range rows {
		room[row.TenantID] = mostWaiting - int(row.Waiting)
	}
	return room, nil
}

// readHistory is what notifications that hold events back told before.
func readHistory(ctx context.Context, tx *postgres.Tx, wanted []notification.Notification) (history, error) {
	h := history{collecting: map[uuid.UUID]*message{}, last: map[uuid.UUID]time.Time{}}
	var ids []uuid.UUID
	for i := range wanted {
		if wanted[i].Quiet != nil || wanted[i].Group > 0 {
			ids = append(ids, wanted[i].ID)
		}
	}
	if len(ids) == 0 {
		return h, nil
	}
	rows, err := tx.ListCollectingDeliveries(ctx, db.ListCollectingDeliveriesParams{Ids: ids, Now: tx.At})
	if err != nil {
		return h, fmt.Errorf("list messages that collect: %w", err)
	}
	for _, row := range rows {
		m := &message{delivery: row.ID, notification: row.NotificationID, count: int(row.EventCount)}
		if err := json.Unmarshal(row.Events, &m.events); err != nil {
			return h, fmt.Errorf("read the events of delivery %s: %w", row.ID, err)
		}
		h.collecting[row.NotificationID] = m
	}
	lasts, err := tx.ListLastDeliveries(ctx, ids)
	if err != nil {
		return h, fmt.Errorf("list last messages: %w", err)
	}
	for _, row := range lasts {
		h.last[row.ID] = row.At
	}
	return h, nil
}

// keep stores messages and wakes those that send.
func keep(ctx context.Context, tx *postgres.Tx, messages []*message, dropped map[uuid.UUID]int) error {
	p, due := db.InsertNotificationDeliveriesParams{Now: tx.At}, map[uuid.UUID]time.Time{}
	var grown db.UpdateCollectingDeliveriesParams
	for _, m := range messages {
		events, err := json.Marshal(m.events)
		if err != nil {
			return fmt.Errorf("write events: %w", err)
		}
		if m.delivery != uuid.Nil {
			grown.Ids, grown.Events, grown.EventCounts = append(grown.Ids, m.delivery), append(grown.Events, events), append(grown.EventCounts, int32(m.count))
			continue
		}
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make a delivery's id: %w", err)
		}
		p.Ids, p.NotificationIds, p.Events = append(p.Ids, id), append(p.NotificationIds, m.notification), append(p.Events, events)
		p.EventCounts, p.Ats, p.GiveUpAts = append(p.EventCounts, int32(m.count)), append(p.Ats, m.at), append(p.GiveUpAts, m.at.Add(notification.Lifetime))
		if first, ok := due[m.notification]; !ok || m.at.Before(first) {
			due[m.notification] = m.at
		}
	}
	if len(p.Ids) > 0 {
		if err := tx.InsertNotificationDeliveries(ctx, p); err != nil {
			return fmt.Errorf("insert deliveries: %w", err)
		}
	}
	if len(grown.Ids) > 0 {
		if err := tx.UpdateCollectingDeliveries(ctx, grown); err != nil {
			return fmt.Errorf("add to messages that collect: %w", err)
		}
	}
	return wake(ctx, tx, due, dropped)
}

// wake says from when on notifications have something to be sent, and counts what they
// dropped.
func wake(ctx context.Context, tx *postgres.Tx, due map[uuid.UUID]time.Time, dropped map[uuid.UUID]int) error {
	var w db.WakeNotificationsParams
	for id, at := range due {
		w.Ids, w.Ats, w.Dropped = append(w.Ids, id), append(w.Ats, at), append(w.Dropped, int64(dropped[id]))
		delete(dropped, id)
	}
	for id, n := range dropped { // all of its events; it has something that waits
		w.Ids, w.Ats, w.Dropped = append(w.Ids, id), append(w.Ats, columns.Never), append(w.Dropped, int64(n))
	}
	if len(w.Ids) == 0 {
		return nil
	}
	if err := tx.WakeNotifications(ctx, w); err != nil {
		return fmt.Errorf("wake notifications: %w", err)
	}
	return nil
}
