package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// RemoteClaim is what a worker of a tenant's own asks for.
type RemoteClaim struct {
	Tenant, Worker uuid.UUID
	Token          uuid.UUID // of the lease under which it runs what it gets; new for each claim
	Functions      []string  // that it has
	Most           int
	// Heartbeat is how long an attempt goes on without a sign of life.
	Heartbeat time.Duration
	// ID is what the worker calls the claim, so that it may ask again; Nil: it will not.
	ID uuid.UUID
}

// errClaimed says that the worker has claimed under the same id before.
var errClaimed = errors.New("the worker has claimed under this id")

// RemoteFunction names a function of a tenant's workers.
type RemoteFunction struct {
	Tenant uuid.UUID
	Name   string
}

// limitedFirst is one in how many claims of a tenant's worker begins with executions that wait
// for a slot or key, so that a pool which is never empty does not keep them waiting.
const limitedFirst = 4

// ClaimRemote claims executions of a tenant for a worker of its own. They await its report as
// those that await a callback do: no worker of ours runs them, and the same fence, heartbeat
// and sweep end them. After an error it returns those that it claimed before, without the error.
//
// A claim with an id that brought something before brings the same again, as far as it still
// runs, with the time that is left; repeated says so. When none of them runs, the id can be used
// again.
func (s *Store) ClaimRemote(ctx context.Context, c RemoteClaim) (won []Claimed, repeated bool, err error) {
	if c.ID == uuid.Nil {
		won, err = s.claimRemote(ctx, c)
		return won, false, err
	}
	if won, err = s.repeatRemote(ctx, c); err != nil || len(won) > 0 {
		return won, true, err
	}
	won, err = s.claimRemote(ctx, c)
	if errors.Is(err, errClaimed) { // at the same time; the other one was quicker
		won, err = s.repeatRemote(ctx, c)
		return won, true, err
	}
	return won, false, err
}

// repeatRemote returns what a worker claimed under an id and still runs. Where that is nothing,
// the id is forgotten.
func (s *Store) repeatRemote(ctx context.Context, c RemoteClaim) ([]Claimed, error) {
	rows, err := s.queries().RepeatRemoteClaim(ctx, db.RepeatRemoteClaimParams{TenantID: c.Tenant, WorkerID: &c.Worker, ClaimID: c.ID})
	if err != nil {
		return nil, fmt.Errorf("repeat a claim: %w", postgres.Fault(err))
	}
	if len(rows) == 0 {
		_, err := s.queries().ForgetRemoteClaim(ctx, db.ForgetRemoteClaimParams{TenantID: c.Tenant, WorkerID: c.Worker, ClaimID: c.ID})
		if err != nil {
			return nil, fmt.Errorf("forget a claim: %w", postgres.Fault(err))
		}
		return nil, nil
	}
	won := make([]Claimed, len(rows))
	for i, r := range rows {
		won[i] = fromClaim(db.ClaimExecutionsRow{
			ID: r.ID, TenantID: r.TenantID, JobID: r.JobID, JobVersion: r.JobVersion, ScheduledAt: r.ScheduledAt, TriggerType: r.TriggerType,
			JobType: r.JobType, Priority: r.Priority, Parameters: r.Parameters, Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, LeaseToken: r.LeaseToken,
			TimeoutMs: r.LeftMs, StartedAt: r.StartedAt, ClaimedAt: r.RepeatedAt, DueAt: r.ScheduledAt,
		})
	}
	return won, nil
}

// claimRemote claims what was not claimed before. Under an id it is what one transaction brings.
func (s *Store) claimRemote(ctx context.Context, c RemoteClaim) (won []Claimed, err error) {
	ways := []func(context.Context, RemoteClaim) ([]Claimed, error){s.claimRemoteReady, s.claimRemoteLimited}
	if rand.IntN(limitedFirst) == 0 {
		ways[0], ways[1] = ways[1], ways[0]
	}
	for _, way := range ways {
		left := c
		if left.Most -= len(won); left.Most <= 0 || c.ID != uuid.Nil && len(won) > 0 {
			break
		}
		more, err := way(ctx, left)
		if won = append(won, more...); err != nil && len(won) == 0 {
			return nil, err
		}
	}
	return won, nil
}

// claimRemoteReady claims those that wait for a worker alone, in one transaction.
func (s *Store) claimRemoteReady(ctx context.Context, c RemoteClaim) (won []Claimed, err error) {
	err = s.db.InTxLed(ctx, func(tx *postgres.Tx) error {
		ids, err := tx.ListRemoteExecutions(ctx, db.ListRemoteExecutionsParams{TenantID: c.Tenant, Functions: c.Functions, Most: int32(c.Most)})
		if err != nil || len(ids) == 0 {
			return err
		}
		won, err = claimReady(ctx, tx.Queries, db.ClaimExecutionsParams{
			WorkerID: &c.Worker, LeaseToken: &c.Token, Ids: ids, LeftTypes: s.leftTypes, MaxRunning: s.maxRunning(),
		})
		if err != nil {
			return err
		}
		return awaitRemote(ctx, tx, c, won)
	})
	if err != nil {
		return nil, fmt.Errorf("claim executions for a tenant's worker: %w", err)
	}
	return won, nil
}

// claimRemoteLimited claims those whose concurrency slot or key is free. It is a transaction of its
// own: jobs are locked before the counts of their tenant.
func (s *Store) claimRemoteLimited(ctx context.Context, c RemoteClaim) (won []Claimed, err error) {
	from := db.ListRemoteUnblockedParams{TenantID: c.Tenant, Functions: c.Functions, Most: int32(c.Most)}
	if rand.IntN(2) == 0 { // a place at random; the first half of the time, as nothing may lie beyond
		from.AfterJob, from.AfterKey = uuid.New(), string(rune(' '+rand.IntN('~'-' ')))
	}
	found, err := s.queries().ListRemoteUnblocked(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("list a tenant's executions whose slot or key is free: %w", postgres.Fault(err))
	}
	if len(found) == 0 {
		return nil, nil
	}
	var of limited
	for _, f := range found {
		of.add(f.ID, f.JobID, f.NeedsSlot)
	}
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		free, _, err := s.lockJobs(ctx, tx, of) // what is held is listed again by the next claim
		if err != nil || len(free) == 0 {
			return err
		}
		if won, err = claimLocked(ctx, tx, db.ClaimLimitedExecutionsParams{
			WorkerID: &c.Worker, LeaseToken: &c.Token, Ids: free, LeftTypes: s.leftTypes, MaxRunning: s.maxRunning(),
		}); err != nil {
			return err
		}
		if len(won) == 0 {
			return unlockJobs(ctx, tx)
		}
		return awaitRemote(ctx, tx, c, won)
	})
	if err != nil {
		return nil, fmt.Errorf("claim limited executions for a tenant's worker: %w", err)
	}
	return won, nil
}

// awaitRemote writes, in the transaction that claimed them, that attempts await a report.
func awaitRemote(ctx context.Context, tx *postgres.Tx, c RemoteClaim, won []Claimed) error {
	if len(won) == 0 {
		return nil
	}
	var p db.AwaitCallbacksParams
	for _, w := range won {
		p.Ids, p.Attempts, p.LeaseTokens = append(p.Ids, w.ID), append(p.Attempts, int32(w.Attempt)), append(p.LeaseTokens, w.Token)
		p.TimeoutsMs, p.HeartbeatsMs = append(p.TimeoutsMs, int32(w.Timeout.Milliseconds())), append(p.HeartbeatsMs, int32(c.Heartbeat.Milliseconds()))
	}
	if _, err := tx.AwaitCallbacks(ctx, p); err != nil {
		return fmt.Errorf("write that executions await a report: %w", err)
	}
	if c.ID == uuid.Nil {
		return nil
	}
	n, err := tx.InsertRemoteClaim(ctx, db.InsertRemoteClaimParams{TenantID: c.Tenant, WorkerID: c.Worker, ClaimID: c.ID, LeaseToken: c.Token, ExecutionIds: p.Ids})
	if err == nil && n == 0 {
		return errClaimed
	}
	if err != nil {
		return fmt.Errorf("write under which id executions were claimed: %w", err)
	}
	return nil
}

// Shorten gives attempts that await a report less time: their executions have no more left.
func (s *Store) Shorten(ctx context.Context, attempts map[Fence]time.Duration) error {
	if len(attempts) == 0 {
		return nil
	}
	var p db.ShortenAwaitedParams
	for f, left := range attempts {
		p.Ids, p.LeaseTokens, p.TimeoutsMs = append(p.Ids, f.ID), append(p.LeaseTokens, f.Token), append(p.TimeoutsMs, int32(left.Milliseconds()))
	}
	if err := s.queries().ShortenAwaited(ctx, p); err != nil {
		return fmt.Errorf("shorten attempts: %w", postgres.Fault(err))
	}
	return nil
}

// Heartbeats writes signs of life of a tenant's attempts. It returns those that have not ended, and
// of each whether somebody asked for its end. A zero now means the database's clock.
func (s *Store) Heartbeats(ctx context.Context, now time.Time, tenant uuid.UUID, attempts []Fence) (cancelling map[Fence]bool, err error) {
	p := db.RecordHeartbeatsParams{Now: postgres.At(now), TenantID: tenant}
	for _, f := range attempts {
		p.Ids, p.Attempts, p.LeaseTokens = append(p.Ids, f.ID), append(p.Attempts, int32(f.Attempt)), append(p.LeaseTokens, f.Token)
	}
	if len(p.Ids) == 0 {
		return nil, nil
	}
	rows, err := s.queries().RecordHeartbeats(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("write heartbeats: %w", postgres.Fault(err))
	}
	cancelling = make(map[Fence]bool, len(rows))
	for _, r := range rows {
		cancelling[Fence{ID: r.ID, Attempt: int(r.Attempt), Token: r.LeaseToken}] = r.Cancelling
	}
	return cancelling, nil
}

// Claimable reports of each function whether an execution waits for it that could be claimed.
func (s *Store) Claimable(ctx context.Context, functions []RemoteFunction) ([]bool, error) {
	var p db.ListClaimableFunctionsParams
	for _, f := range functions {
		p.TenantIds, p.Functions = append(p.TenantIds, f.Tenant), append(p.Functions, f.Name)
	}
	rows, err := s.queries().ListClaimableFunctions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("ask which functions have executions: %w", postgres.Fault(err))
	}
	out := make([]bool, len(functions))
	for _, nth := range rows {
		out[nth-1] = true
	}
	return out, nil
}
