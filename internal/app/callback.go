package app

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/hint"
	"github.com/scheduler-service/scheduler/internal/monitor/intake"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/remote"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// callbacksIn is the process with jobs that may complete by callback, where it knows the
// address of the API and has a key for the tokens.
func (p process) callbacksIn(public config.URL, keys *keyring.Ring) process {
	p.callbacks = !public.IsZero() && keys.Current() != ""
	return p
}

// callbackAddresses makes the address at which the target of an attempt reports; nil where
// none can.
func (p process) callbackAddresses(public config.URL, keys *keyring.Ring) func(dispatch.Claimed) (string, error) {
	if !p.callbacks {
		return nil
	}
	base := strings.TrimSuffix(public.Reveal(), "/") + "/callbacks/"
	return func(c dispatch.Claimed) (string, error) {
		token, err := callback.Token(keys, callback.Attempt{Tenant: c.Tenant, Fence: dispatch.Fence{ID: c.ID, Attempt: c.Attempt, Token: c.Token}})
		return base + token, err
	}
}

// desks take what targets and workers of tenants report and what monitors tell, and hand executions out to workers.
type desks struct {
	pings     *intake.Desk
	callbacks *callback.Desk
	claims    *remote.Desk
	listen    func(ctx context.Context) error // for calls: executions wait in the pool
	close     func()
}

// desks makes them. A token names its tenant, and its fence one attempt; a claim names its
// tenant. The statements are those of the workers, so they act as postgres.Engine.
func (p process) desks(ctx context.Context, c config.API, hints *queue.Publisher, keys *keyring.Ring, finished func(tenant, execution uuid.UUID)) (desks, error) {
	pings, closePings, err := p.pings(ctx, c)
	if err != nil {
		return desks{}, err
	}
	if keys.Current() == "" { // no token can be sealed or opened
		return desks{
			pings: pings, callbacks: callback.New(callback.Config{}), claims: remote.NewDesk(remote.Config{}), close: closePings,
			listen: func(ctx context.Context) error { <-ctx.Done(); return nil },
		}, nil
	}
	db, err := p.engine(ctx, c, "api-callbacks", callbackConns)
	if err != nil {
		closePings()
		return desks{}, err
	}
	callbacks := callback.New(callback.Config{
		DB: db, Hints: hint.New(hint.Config{DB: db, Queue: hints, Log: p.log}), Metrics: p.metrics, Log: p.log,
		TenantMaxRunning: p.live.Int("TENANT_MAX_RUNNING"), Keys: keys, CallWorkers: caller(hints, queue.CallPool), Finished: finished,
	})
	claims := remote.NewDesk(remote.Config{DB: db, Keys: keys, Callbacks: callbacks, Metrics: p.metrics, Log: p.log, TenantMaxRunning: p.live.Int("TENANT_MAX_RUNNING"), Traces: p.traces})
	ear := hints.Ear(queue.CallPool)
	return desks{
		pings: pings, callbacks: callbacks, claims: claims,
		close:  func() { db.Close(); closePings() },
		listen: func(ctx context.Context) error { return ear.Listen(ctx, claims.Wake) },
	}, nil
}
