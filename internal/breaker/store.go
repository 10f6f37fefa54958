package breaker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// workerStore keeps what workers tell one another, of all tenants.
type workerStore struct{ db *postgres.DB }

func (s workerStore) queries() *db.Queries { return db.New(s.db.Pool()) }

// opening is a breaker that has just opened.
type opening struct {
	Target
	failures int64
	reason   string
}

// record writes what was counted, in statements of their own, which each lock in the same
// order: successes first, so that failures after them begin a row.
func (s workerStore) record(ctx context.Context, now time.Time, counted map[Target]count) ([]opening, error) {
	var forget db.ForgetFailuresParams
	add := db.CountFailedCallsParams{Now: postgres.At(now), MostHosts: mostHosts, PauseSeconds: seconds(firstPause), WindowSeconds: seconds(window)}
	targets := slices.SortedFunc(maps.Keys(counted), func(a, b Target) int {
		return cmp.Or(slices.Compare(a.Tenant[:], b.Tenant[:]), cmp.Compare(a.Host, b.Host))
	})
	for _, to := range targets {
		c := counted[to]
		if c.succeeded {
			forget.TenantIds, forget.Hosts = append(forget.TenantIds, to.Tenant), append(forget.Hosts, to.Host)
		}
		if c.failures > 0 {
			add.Ids, add.TenantIds, add.Hosts = append(add.Ids, uuid.New()), append(add.TenantIds, to.Tenant), append(add.Hosts, to.Host)
			add.Failures, add.Reasons = append(add.Failures, c.failures), append(add.Reasons, c.reason)
		}
	}
	if len(forget.Hosts) > 0 {
		if err := s.queries().ForgetFailures(ctx, forget); err != nil {
			return nil, fmt.Errorf("forget failed calls: %w", postgres.Fault(err))
		}
	}
	if len(add.Hosts) == 0 {
		return nil, nil
	}
	return s.count(ctx, now, add)
}

func (s workerStore) count(ctx context.Context, now time.Time, add db.CountFailedCallsParams) ([]opening, error) {
	rows, err := s.queries().CountFailedCalls(ctx, add)
	if err != nil {
		return nil, fmt.Errorf("count failed calls: %w", postgres.Fault(err))
	}
	var full []uuid.UUID
	for _, r := range rows {
		if r.Failures >= mostFailures {
			full = append(full, r.ID)
		}
	}
	if len(full) == 0 {
		return nil, nil
	}
	open, err := s.queries().OpenBreakers(ctx, db.OpenBreakersParams{Now: postgres.At(now), Ids: full})
	if err != nil {
		return nil, fmt.Errorf("open circuit breakers: %w", postgres.Fault(err))
	}
	out := make([]opening, len(open))
	for i, r := range open {
		out[i] = opening{Target{r.TenantID, r.Host}, r.Failures, r.Reason}
	}
	return out, nil
}

func (s workerStore) list(ctx context.Context, now time.Time) (map[Target]*known, error) {
	read := clock.Start()
	rows, err := s.queries().ListAllBreakers(ctx, db.ListAllBreakersParams{Now: postgres.At(now), Most: mostKnown})
	if err != nil {
		return nil, fmt.Errorf("list circuit breakers: %w", postgres.Fault(err))
	}
	all := make(map[Target]*known, len(rows))
	for _, r := range rows {
		all[Target{r.TenantID, r.Host}] = &known{open: State(r.State) != Closed, retryIn: time.Duration(r.RetryInMs) * time.Millisecond, read: read}
	}
	return all, nil
}

func (s workerStore) claimProbe(ctx context.Context, now time.Time, to Target, probe uuid.UUID, within time.Duration) (bool, error) {
	n, err := s.queries().ClaimProbe(ctx, db.ClaimProbeParams{Now: postgres.At(now), TenantID: to.Tenant, Host: to.Host, Probe: probe, WithinSeconds: seconds(within)})
	if err != nil {
		return false, fmt.Errorf("claim a probe: %w", postgres.Fault(err))
	}
	return n == 1, nil
}

func (s workerStore) endProbe(ctx context.Context, now time.Time, to Target, probe uuid.UUID, v Verdict) (err error) {
	if !v.Failed && !v.Void {
		_, err = s.queries().CloseProbed(ctx, db.CloseProbedParams{TenantID: to.Tenant, Host: to.Host, Probe: probe})
	} else {
		p := db.ReopenProbedParams{Now: postgres.At(now), TenantID: to.Tenant, Host: to.Host, Probe: probe, MostPauseSeconds: seconds(longestPause)}
		if v.Failed {
			p.Failed, p.Reason = 1, v.reason()
		}
		_, err = s.queries().ReopenProbed(ctx, p)
	}
	if err != nil {
		return fmt.Errorf("end a probe: %w", postgres.Fault(err))
	}
	return nil
}

func seconds(d time.Duration) int32 { return int32(d / time.Second) }

// Forget removes breakers that nobody needs any more, a bounded number, and returns how
// many. A zero now means the database's clock.
func Forget(ctx context.Context, on *postgres.DB, now time.Time) (int64, error) {
	n, err := db.New(on.Pool()).DeleteOldBreakers(ctx, db.DeleteOldBreakersParams{Now: postgres.At(now), BatchSize: mostKnown})
	if err != nil {
		return 0, fmt.Errorf("remove old circuit breakers: %w", postgres.Fault(err))
	}
	return n, nil
}

// State is whether a breaker lets calls through.
type State string

// The states of a breaker.
const (
	Closed   State = "closed"    // calls go out, and their failures are counted
	Open     State = "open"      // calls wait
	HalfOpen State = "half_open" // one call is out, and the others wait for what becomes of it
)

// Breaker is a breaker as its tenant sees it.
type Breaker struct {
	ID           uuid.UUID
	Host         string
	State        State
	Failures     int64 // in a row
	FailingSince time.Time
	FailedAt     time.Time
	Reason       string
	OpenedAt     *time.Time
	RetryAt      *time.Time
	CreatedAt    time.Time
}

// Store lists and closes a tenant's breakers.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(on *postgres.DB) *Store { return &Store{on} }

// Position is a place in a list of breakers, newest first.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// List reads a page of breakers, newest first, from after a position on (nil: from the
// first).
func (s *Store) List(ctx context.Context, who tenant.Actor, limit int, after *Position) (list []Breaker, err error) {
	p := db.ListBreakersParams{TenantID: who.TenantID, PageSize: int32(limit), BeforeCreatedAt: columns.Never, BeforeID: uuid.Max}
	if after != nil {
		p.BeforeCreatedAt, p.BeforeID = after.CreatedAt, after.ID
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListBreakers(ctx, p)
		if err != nil {
			return fmt.Errorf("list circuit breakers: %w", err)
		}
		for _, r := range rows {
			list = append(list, Breaker{
				ID: r.ID, Host: r.Host, State: State(r.State), Failures: r.Failures, FailingSince: r.FailingSince.UTC(), FailedAt: r.FailedAt.UTC(),
				Reason: r.Reason, OpenedAt: columns.UTC(r.OpenedAt), RetryAt: columns.UTC(r.RetryAt), CreatedAt: r.CreatedAt.UTC(),
			})
		}
		return nil
	})
	return list, err
}

// Close closes a breaker and forgets its failures. Workers hear of it within a second or
// two, and then let executions go that it held back.
func (s *Store) Close(ctx context.Context, who tenant.Actor, id uuid.UUID) error {
	return s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		n, err := tx.DeleteBreaker(ctx, db.DeleteBreakerParams{TenantID: who.TenantID, ID: id})
		if err != nil {
			return fmt.Errorf("close a circuit breaker: %w", err)
		}
		if n == 0 {
			return fault.New(fault.NotFound, fault.CodeNotFound, "there is no circuit breaker with this id")
		}
		return nil
	})
}
