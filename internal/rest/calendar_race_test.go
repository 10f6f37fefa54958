package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// Edits of calendars and of the jobs that name them, all at once: nobody waits
// for another in a circle, and in the end each job is due as its calendars say.
func TestEditsAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	calendars, jobs := make([]string, 3), make([]string, 4)
	for i := range calendars {
		calendars[i] = b.makeCalendar(t, b.ours, calendar.Day{Start: "2090-01-01"}).ID.String()
	}
	const daily = `"cronExpression":"@daily","startDate":"2090-01-01T00:00:00Z"`
	for i := range jobs {
		jobs[i] = read[api.Job](t, b.bound(t, token, daily, calendars[0], "exclude", calendars[1], "exclude"), http.StatusCreated).ID.String()
	}
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() {
			for round := range 15 {
				r := request{
					method: "PUT", path: base + "/calendars/" + calendars[(i+round)%3], token: token,
					body: fmt.Sprintf(`{"name":"%d-%d","days":[{"start":"2090-01-01","end":"2090-01-%02d"}]}`, (i+round)%3, i, 1+(3*i+round)%20),
				}
				if i%2 == 0 {
					r.path = base + "/jobs/" + jobs[(i+round)%4]
					r.body = more(fmt.Sprintf(`%s,"calendars":[{"calendarId":%q,"mode":"exclude"},{"calendarId":%q,"mode":"exclude"}]`,
						daily, calendars[round%3], calendars[(round+1)%3]))
				}
				if got := b.send(r); got.status != http.StatusOK && got.status != http.StatusConflict { // a name may be taken
					t.Errorf("%s %s: answered %d %s", r.method, r.path, got.status, got.body)
				}
			}
		})
	}
	work.Wait()
	for _, id := range jobs {
		now := read[api.Job](t, b.do(t, request{method: "GET", path: base + "/jobs/" + id, token: token}), http.StatusOK)
		from := url.QueryEscape(b.now.Format(time.RFC3339))
		seen := read[api.SchedulePreview](t, b.do(t, request{method: "GET", path: base + "/jobs/" + id + "/schedule?count=1&from=" + from, token: token}), http.StatusOK)
		if last := seen.Occurrences[len(seen.Occurrences)-1]; !last.ScheduledAt.Equal(*now.NextExecutionAt) {
			t.Errorf("job %s is due at %s, and by its calendars at %s", id, *now.NextExecutionAt, *last.ScheduledAt)
		}
	}
}

// A job that names a calendar which is being changed waits for the change.
func TestAJobWaitsForTheEditOfItsCalendar(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	used := b.makeCalendar(t, b.ours, calendar.Day{Start: "2090-01-01"}).ID.String()
	const daily = `"cronExpression":"@daily","startDate":"2090-01-01T00:00:00Z"`
	made := read[api.Job](t, b.bound(t, token, daily), http.StatusCreated)
	body := more(daily + `,"calendars":[{"calendarId":"` + used + `","mode":"exclude"}]`)
	for _, r := range []request{{method: "POST", path: base + "/jobs"}, {method: "PUT", path: base + "/jobs/" + made.ID.String()}} {
		r.token, r.body = token, body
		answered := make(chan answer, 1)
		day := map[string]string{"POST": "02", "PUT": "03"}[r.method]
		err := pgx.BeginFunc(t.Context(), b.db.Pool(), func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SELECT set_config('app.tenant_id', $1, true)", b.ours.TenantID.String()); err != nil {
				return err
			}
			days := `[{"start":"2090-01-01T00:00:00","end":"2090-01-` + day + `T00:00:00"}]`
			if _, err := tx.Exec(t.Context(), "UPDATE calendars SET days = $1 WHERE id = $2", days, used); err != nil {
				return err
			}
			go func() { answered <- b.send(r) }()
			for waiting := 0; waiting == 0; {
				select {
				case got := <-answered:
					return fmt.Errorf("%s did not wait: %d %s", r.method, got.status, got.body)
				default:
				}
				if err := b.engine.Pool().QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got := <-answered
		if got.status >= 300 || !strings.Contains(got.body, `"nextExecutionAt":"2090-01-`+day+`T00:00:00Z"`) {
			t.Errorf("%s: answered %d %s", r.method, got.status, got.body)
		}
	}
}
