package bench

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
)

// kept is one completed execution; edit changes what is stored of it.
type kept struct {
	id, job uuid.UUID
	at      time.Time
	status  string
	attempt int
}

func insert(t *testing.T, s *store, k kept) {
	t.Helper()
	_, err := s.db.Pool().Exec(t.Context(), `INSERT INTO job_executions
		(id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, started_at, completed_at, created_at)
		VALUES ($1, $2::timestamptz, $1, $3, 1, 'scheduled', 'function', $4, $5, $2::timestamptz + interval '20 ms', $2::timestamptz + interval '30 ms', $2::timestamptz)`,
		k.id, k.at, k.job, k.status, k.attempt)
	if err != nil {
		t.Fatal(err)
	}
}

// TestNothingPassesHidden stores two jobs' executions at two scheduled times, with
// one thing wrong each time, and wants the run to fail for it.
func TestNothingPassesHidden(t *testing.T) {
	t.Parallel()
	from := clock.Now().Truncate(time.Second)
	for _, test := range []struct {
		name, want string
		edit       func(all []kept) []kept
	}{
		{name: "all is well", edit: func(all []kept) []kept { return all }},
		{"one is lost", "1 are lost", func(all []kept) []kept { return all[1:] }},
		{"one is doubled", "1 doubled", func(all []kept) []kept {
			return append(all, kept{uuid.New(), all[0].job, all[0].at, "completed", 1})
		}},
		{"one is at a scheduled time that is none", "1 are lost, 0 doubled, 0 not completed, 0 run again, 1 of no scheduled time", func(all []kept) []kept {
			all[0].at = all[1].at.Add(time.Millisecond)
			return all
		}},
		{"one failed", "1 not completed", func(all []kept) []kept { all[0].status = "failed"; return all }},
		{"one ran twice", "1 run again", func(all []kept) []kept { all[0].attempt = 2; return all }},
		{"one of another job", "1 of no scheduled time", func(all []kept) []kept {
			return append(all, kept{uuid.New(), uuid.New(), all[0].at, "completed", 1})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := openTest(t)
			l := load{jobs: []uuid.UUID{uuid.New(), uuid.New()}, from: from, to: from.Add(2 * time.Second)}
			var all []kept
			for _, job := range l.jobs {
				for i := range l.runsPerJob() {
					all = append(all, kept{uuid.New(), job, from.Add(time.Duration(i) * time.Second), "completed", 1})
				}
			}
			for _, k := range test.edit(all) {
				insert(t, s, k)
			}
			err := (&stack{store: s}).verify(t.Context(), l, counters{})
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func openTest(t *testing.T) *store {
	t.Helper()
	return openStoreOf(t, pgtest.New(t).URL)
}

func openStoreOf(t *testing.T, url string) *store {
	t.Helper()
	s, err := openStore(t.Context(), url, lifecycles)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.db.Close)
	return s
}

// TestSpreadLoadIsVerifiedBySecond wants any scheduled time within each second.
func TestSpreadLoadIsVerifiedBySecond(t *testing.T) {
	t.Parallel()
	s := openTest(t)
	from := clock.Now().Truncate(time.Second)
	l := load{jobs: []uuid.UUID{uuid.New()}, from: from, to: from.Add(2 * time.Second), spread: true}
	insert(t, s, kept{uuid.New(), l.jobs[0], from.Add(123 * time.Millisecond), "completed", 1})
	check := &stack{store: s}
	if err := check.verify(t.Context(), l, counters{}); err == nil || !strings.Contains(err.Error(), "of 2 executions 1 are lost") {
		t.Errorf("got %v, want one lost", err)
	}
	insert(t, s, kept{uuid.New(), l.jobs[0], from.Add(1999 * time.Millisecond), "completed", 1})
	if err := check.verify(t.Context(), l, counters{}); err != nil {
		t.Error(err)
	}
	insert(t, s, kept{uuid.New(), l.jobs[0], from.Add(1001 * time.Millisecond), "completed", 1})
	if err := check.verify(t.Context(), l, counters{}); err == nil || !strings.Contains(err.Error(), "0 are lost, 1 doubled") {
		t.Errorf("got %v, want one doubled", err)
	}
}

// TestLifecycle runs whole lives by the product's statements and reads them
// back, so that a statement that changes cannot leave the limit measuring
// errors.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	s := openTest(t)
	_, perSecond, err := s.live(t.Context(), sizes{insert: 10, claim: 4, complete: 7})
	if err != nil {
		t.Fatal(err)
	}
	if perSecond <= 0 {
		t.Errorf("%v lives a second", perSecond)
	}
	if waiting, err := s.waiting(t.Context()); err != nil || waiting != 0 {
		t.Errorf("%d executions are left, %v", waiting, err)
	}
	long := clock.Now().Add(-time.Hour)
	done, err := s.doneBetween(t.Context(), long, long.Add(2*time.Hour))
	if err != nil || done == 0 || done%10 != 0 {
		t.Errorf("%d executions are done, %v", done, err)
	}
	late, err := s.lags(t.Context(), long, long.Add(2*time.Hour))
	if err != nil || late.p50 <= 0 || late.p50 > late.p99 || late.p99 > late.max {
		t.Errorf("lags %+v, %v", late, err)
	}
}

// TestRollUpsAreComparedWithRecords rolls up what two jobs have done, once as it is counted and
// once folded, with one thing wrong each time, and wants the run to fail for it.
func TestRollUpsAreComparedWithRecords(t *testing.T) {
	t.Parallel()
	const deltas, folded = false, true
	for _, test := range []struct {
		name, want, spoil string
		folded            bool
	}{
		{name: "all is counted", folded: deltas},
		{name: "all is folded", folded: folded},
		{"nothing is counted", "of each hour count another number of executions for 2 of 2 jobs", "DELETE FROM outcome_deltas", deltas},
		{"a count is there twice", "of each hour count another number of executions for 2 of 2 jobs", "INSERT INTO outcome_deltas (tenant_id, at, outcomes, cells) SELECT tenant_id, at, outcomes, cells FROM outcome_deltas", deltas},
		{"the day of one job is lost", "of each day count another number of executions for 1 of 2 jobs", "DELETE FROM outcome_rollups WHERE (tenant_id, part) IN (SELECT tenant_id, part FROM outcome_rollups WHERE part > 0 ORDER BY 1, 2 LIMIT 1) AND span = 1", folded},
		{"the whole week is lost", "of each week count another number of executions for 0 of 2 jobs, 0 of them with another outcome, and 3 in all where they count 4 by job", "DELETE FROM outcome_rollups WHERE tenant_id = (SELECT min(tenant_id::text)::uuid FROM outcome_rollups) AND part = 0 AND span = 2", folded},
		{"one failed", "for 1 of 2 jobs, 1 of them with another outcome", "", deltas},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			database := pgtest.New(t)
			s := openStoreOf(t, database.URL)
			from := clock.Now().Add(-10 * time.Minute).Truncate(time.Second)
			l := load{jobs: []uuid.UUID{uuid.New(), uuid.New()}, from: from, to: from.Add(2 * time.Second)}
			for i := range 4 {
				k := kept{uuid.New(), l.jobs[i%2], from.Add(time.Duration(i/2) * time.Second), "completed", 1}
				if i == 3 && strings.Contains(test.name, "failed") {
					k.status = "failed"
				}
				insert(t, s, k)
			}
			admin, err := pgx.Connect(t.Context(), database.AdminURL)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = admin.Close(context.WithoutCancel(t.Context())) })
			check := &stack{store: s, progress: io.Discard, loads: []load{l}}
			if err := check.rollUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			if test.folded {
				if _, _, err := collect.NewCollector(s.db).Fold(t.Context(), clock.Now().Add(24*time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			if done, err := s.rolledUp(t.Context(), from); !done || err != nil {
				t.Fatalf("rolled up: %t, %v", done, err)
			}
			if _, err := admin.Exec(t.Context(), test.spoil); err != nil {
				t.Fatal(err)
			}
			err = check.compareRollUps(t.Context())
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
