package worker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// store is the worker's door to the database. Its queries see all tenants;
// they are a short, named list in package arch.
type store struct {
	db   *postgres.DB
	beat *postgres.DB // the heartbeat's own connection
	// maxRunning is the limit of tenants that have none of their own.
	maxRunning int32
	// types are the job types that this worker runs; it looks for no others.
	types []string
}

// heldRow is an execution that the database says a worker runs.
type heldRow struct {
	id, token  uuid.UUID
	cancelling bool
}

// pooled lists what waits in the pool and may start, in the order in which it
// should, and where the next look goes on. busy are the runs of each tenant at
// this worker.
func (s *store) pooled(ctx context.Context, most int, after uuid.UUID, busy map[uuid.UUID]int) ([]candidate, uuid.UUID, error) {
	p := db.ListPooledExecutionsParams{
		BatchSize: int32(most), Spread: int32(most), Stretch: lineStretch, AfterTenant: after, JobTypes: s.types, MaxRunning: s.maxRunning,
		BusyTenants: make([]uuid.UUID, 0, len(busy)), BusyRuns: make([]int32, 0, len(busy)),
	}
	for tenant, runs := range busy {
		p.BusyTenants, p.BusyRuns = append(p.BusyTenants, tenant), append(p.BusyRuns, int32(runs))
	}
	found, err := db.New(s.db.Pool()).ListPooledExecutions(ctx, p)
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("list pooled executions: %w", postgres.Fault(err))
	}
	return candidates(found.Ids, found.TenantIds), found.NextAfter, nil
}

// placed lists runs that wait for a place of their job of which one is free,
// and where the next look goes on.
func (s *store) placed(ctx context.Context, most int, after stretchEnd) ([]candidate, stretchEnd, error) {
	found, err := db.New(s.db.Pool()).ListPlacedExecutions(ctx, db.ListPlacedExecutionsParams{
		BatchSize: int32(most), Stretch: jobStretch, AfterJob: after.job, AfterTenant: after.tenant, AfterKey: after.key, JobTypes: s.types,
	})
	if err != nil {
		return nil, stretchEnd{}, fmt.Errorf("list executions that have a place: %w", postgres.Fault(err))
	}
	return candidates(found.Ids, found.TenantIds), stretchEnd{job: found.NextAfter, tenant: found.NextTenant, key: found.NextKey}, nil
}

// stretchEnd is where a look for places and keys ended; zero where there were
// no more.
type stretchEnd struct {
	job, tenant uuid.UUID
	key         string
}

func candidates(ids, tenants []uuid.UUID) []candidate {
	out := make([]candidate, len(ids))
	for i, id := range ids {
		out[i] = candidate{id: id, tenant: tenants[i]}
	}
	return out
}

// pool puts executions into the pool.
func (s *store) pool(ctx context.Context, ids []uuid.UUID) error {
	if _, err := db.New(s.db.Pool()).PoolExecutions(ctx, ids); err != nil {
		return fmt.Errorf("pool executions: %w", postgres.Fault(err))
	}
	return nil
}

// gatherBatch bounds how many executions one gather takes: more than hints
// that wait in a lane can name.
const gatherBatch = 2 * queue.Window * queue.MaxIDs

// gather puts whatever waits for its hint into the pool.
func (s *store) gather(ctx context.Context) error {
	_, err := db.New(s.db.Pool()).PoolLateExecutions(ctx, db.PoolLateExecutionsParams{
		AheadMs: int32(hintPatience.Milliseconds()), BatchSize: gatherBatch,
	})
	if err != nil {
		return fmt.Errorf("pool hinted executions: %w", postgres.Fault(err))
	}
	return nil
}

func (s *store) versions(ctx context.Context, keys []versionKey) (map[versionKey]definition, error) {
	p := db.ListJobVersionsByKeysParams{JobIds: make([]uuid.UUID, len(keys)), Versions: make([]int32, len(keys))}
	for i, k := range keys {
		p.JobIds[i], p.Versions[i] = k.job, int32(k.version)
	}
	rows, err := db.New(s.db.Pool()).ListJobVersionsByKeys(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("read job versions: %w", postgres.Fault(err))
	}
	out := make(map[versionKey]definition, len(rows))
	for _, r := range rows {
		d := definition{sealed: r.Sealed, size: len(r.Spec) + len(r.Sealed) + 256}
		d.err = json.Unmarshal(r.Spec, &d.spec)
		out[versionKey{r.JobID, int(r.Version)}] = d
	}
	return out, nil
}

func (s *store) complete(ctx context.Context, batch []ended) ([]verdict, error) {
	rows, err := db.New(s.db.Pool()).CompleteExecutions(ctx, completeParams(batch))
	if err != nil {
		return nil, fmt.Errorf("complete executions: %w", postgres.Fault(err))
	}
	out := make([]verdict, len(rows))
	for i, r := range rows {
		out[i] = verdict{id: r.ID, status: r.Verdict, jobType: r.JobType, next: r.NextIds}
		if r.Crowded {
			out[i].freed.tenant = r.TenantID
		}
		if r.ConcurrencyKey != nil {
			out[i].freed.key, out[i].freed.keyTenant = *r.ConcurrencyKey, r.TenantID
		}
	}
	return out, nil
}

// freed is what the end of a run leaves to others. Nothing of it may be.
type freed struct {
	tenant    uuid.UUID // that had to leave something behind lately
	keyTenant uuid.UUID // whose key it is
	key       string
}

// nextWindow is how many executions of one line are looked at that wait for a
// place or a key too, and nextMost how many of a tenant are named as the next.
const (
	nextWindow = 32
	nextMost   = 64
)

// next lists whose turn it is, once runs ended.
func (s *store) next(ctx context.Context, ends []freed) ([]released, error) {
	p := db.ListNextExecutionsParams{MaxRunning: s.maxRunning, WindowSize: nextWindow, Most: nextMost, TenantIds: []uuid.UUID{}, KeyTenantIds: []uuid.UUID{}, Keys: []string{}}
	seen := map[freed]bool{}
	for _, f := range ends {
		if crowded := (freed{tenant: f.tenant}); f.tenant != uuid.Nil && !seen[crowded] {
			seen[crowded] = true
			p.TenantIds = append(p.TenantIds, f.tenant)
		}
		if f.key != "" {
			p.KeyTenantIds, p.Keys = append(p.KeyTenantIds, f.keyTenant), append(p.Keys, f.key)
		}
	}
	if len(p.TenantIds)+len(p.Keys) == 0 {
		return nil, nil
	}
	rows, err := db.New(s.db.Pool()).ListNextExecutions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list the next in line: %w", postgres.Fault(err))
	}
	out := make([]released, len(rows))
	for i, r := range rows {
		out[i] = released{id: r.ID, priority: int(r.Priority)}
	}
	return out, nil
}

// completeParams takes one array per column, all of one length.
func completeParams(batch []ended) db.CompleteExecutionsParams {
	n := len(batch)
	p := db.CompleteExecutionsParams{
		Ids: make([]uuid.UUID, n), Attempts: make([]int32, n), LeaseTokens: make([]uuid.UUID, n), Succeeded: make([]bool, n),
		RetryMs: make([]int64, n), DurationsMs: make([]int64, n), Results: make([]string, n), ErrorTypes: make([]string, n),
		ErrorMessages: make([]string, n), ErrorStacks: make([]string, n), MemoryMb: make([]float32, n), CpuMs: make([]int64, n),
	}
	for i, e := range batch {
		p.Ids[i], p.Attempts[i], p.LeaseTokens[i] = e.id, int32(e.attempt), e.token
		p.Succeeded[i], p.RetryMs[i], p.DurationsMs[i] = e.outcome.Err == nil, e.retryMS, e.durationMS
		p.Results[i], p.MemoryMb[i], p.CpuMs[i] = string(e.outcome.Result), float32(e.outcome.MemoryPeakMB), e.outcome.CPUTime.Milliseconds()
		if err := e.outcome.Err; err != nil {
			p.ErrorTypes[i], p.ErrorMessages[i], p.ErrorStacks[i] = string(err.Type), err.Message, err.Stack
		}
	}
	return p
}

func (s *store) held(ctx context.Context, worker uuid.UUID) ([]heldRow, error) {
	rows, err := db.New(s.beat.Pool()).ListHeldExecutions(ctx, db.ListHeldExecutionsParams{WorkerID: &worker})
	if err != nil {
		return nil, fmt.Errorf("list held executions: %w", postgres.Fault(err))
	}
	out := make([]heldRow, len(rows))
	for i, r := range rows {
		out[i] = heldRow{id: r.ID, token: *r.LeaseToken, cancelling: r.Cancelling}
	}
	return out, nil
}

// cancelled reads which of the worker's runs somebody wants to end.
func (s *store) cancelled(ctx context.Context, worker uuid.UUID) ([]heldRow, error) {
	rows, err := db.New(s.db.Pool()).ListCancelledRuns(ctx, &worker)
	if err != nil {
		return nil, fmt.Errorf("list cancelled executions: %w", postgres.Fault(err))
	}
	out := make([]heldRow, len(rows))
	for i, r := range rows {
		out[i] = heldRow{id: r.ID, token: *r.LeaseToken, cancelling: true}
	}
	return out, nil
}

func (s *store) release(ctx context.Context, rows []heldRow) (map[queue.Lane][]uuid.UUID, error) {
	p := db.ReleaseExecutionsParams{Ids: make([]uuid.UUID, len(rows)), LeaseTokens: make([]uuid.UUID, len(rows))}
	for i, r := range rows {
		p.Ids[i], p.LeaseTokens[i] = r.id, r.token
	}
	back, err := db.New(s.db.Pool()).ReleaseExecutions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("release executions: %w", postgres.Fault(err))
	}
	out := make([]released, len(back))
	for i, r := range back {
		out[i] = released{id: r.ID, priority: int(r.Priority)}
	}
	return lanesOf(out), nil
}
