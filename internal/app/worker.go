package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/function"
	"github.com/scheduler-service/scheduler/internal/executor/httpcall"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// hintHandlers is how many hints a worker holds at once. They are served in
// turn, so more only keep hints from workers that are idle.
const hintHandlers = 16

// Worker runs a worker until ctx is cancelled and what it runs is finished or
// released.
func Worker(ctx context.Context, c config.Worker, log *slog.Logger, functions map[string]function.Module) error {
	p := newProcess(log)
	p.functions = functions
	return p.observed(ctx, c.MetricsAddr(), func(ctx context.Context) error { return p.worker(ctx, c, nil) })
}

// worker runs one; jobs may reach the endpoints beside what the configuration
// allows.
func (p process) worker(ctx context.Context, c config.Worker, endpoints []netip.AddrPort) error {
	p = p.named("worker")
	db, hints, err := p.stores(ctx, c.Stores, postgres.Config{Role: postgres.Engine, Name: "worker", MaxConns: workerConns})
	if err != nil {
		return err
	}
	defer db.Close()
	defer hints.Close()
	beat, err := postgres.Open(ctx, postgres.Config{
		URL: c.DatabaseURL.Reveal(), Role: postgres.Engine, Name: "scheduler-worker-heartbeat", MaxConns: 1,
		RoundTrip: p.metrics.RoundTrip,
	})
	if err != nil {
		return err
	}
	defer beat.Close()
	executors, close, err := p.executors(c.EgressAllow, endpoints, c.JobTypes...)
	if err != nil {
		return err
	}
	defer close()
	keys, err := p.workerRing(ctx, c, db)
	if err != nil {
		return err
	}
	w, intake, err := p.intake(c, worker.Config{
		DB: db, Beat: beat, Executor: executors, Secrets: secret.NewResolver(db, keys), Hints: hints, Metrics: p.metrics, Log: p.log,
		Host: hostname(), PID: os.Getpid(), Slots: c.Slots, TenantMaxRunning: c.TenantMaxRunning,
		Heartbeat: c.Heartbeat, Fence: c.Fence, Lease: c.TTL, Drain: c.DrainTimeout,
	})
	if err != nil {
		return err
	}
	p.ready.add(func() error {
		if !w.Ready() {
			return errors.New("the worker holds no lease")
		}
		return nil
	})
	return w.Run(ctx, func(ctx context.Context) error { return together(ctx, intake...) })
}

// intake makes the worker and the ways in which it learns what to run: it polls, and
// gets hints where there is a Redis.
func (p process) intake(settings config.Worker, c worker.Config) (*worker.Worker, []func(context.Context) error, error) {
	if settings.Redis() == "" {
		w := worker.New(c)
		return w, []func(context.Context) error{w.PollLoop}, nil
	}
	var consumer *queue.Consumer // made below; nothing asks before it runs
	c.Away = func() bool { return consumer.Away() }
	w := worker.New(c)
	consumer, err := queue.NewConsumer(queue.Config{URL: settings.Redis(), Concurrency: hintHandlers}, w.Handle, p.log)
	if err != nil {
		return nil, nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	return w, []func(context.Context) error{consumer.Run, w.PollLoop}, nil
}

// executors makes the job types that this version has, or only some of them.
// The API makes them all, to check configurations before they are stored.
func (p process) executors(allow []netip.Prefix, endpoints []netip.AddrPort, only ...string) (*executor.Registry, func(), error) {
	client, err := egress.New(egress.Config{Allow: allow, Endpoints: endpoints})
	if err != nil {
		return nil, nil, fmt.Errorf("make the client for outgoing calls: %w", err)
	}
	all := executor.NewRegistry(map[string]executor.Executor{
		"http":     httpcall.New(client, clock.Now),
		"function": function.New(p.functions),
	})
	if len(only) > 0 {
		if all, err = all.Only(only...); err != nil {
			client.Close()
			return nil, nil, fmt.Errorf("WORKER_JOB_TYPES: %w", err)
		}
	}
	return all, client.Close, nil
}
