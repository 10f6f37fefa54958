package app

import (
	"context"
	"sync"

	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/trace"
	"github.com/scheduler-service/scheduler/internal/trace/root"
	"github.com/scheduler-service/scheduler/internal/version"
)

// traced is the process with traces, where the configuration wants any. The caller ends them
// when the process has ended.
func (p process) traced(ctx context.Context, c config.Process, name string) (process, func(), error) {
	if !c.HasTraces() {
		return p, func() {}, nil
	}
	service := c.ServiceName
	if service == "" {
		service = "scheduler-" + name
	}
	traces, err := trace.New(ctx, trace.Config{
		URL: c.TracesURL.Reveal(), Headers: c.TracesHeaders(), Service: service, Version: version.String(), Host: hostname(), Resource: c.Resource(),
		Share: c.TracesShare(), Trusting: c.TrustsCallers(), Log: p.log,
	})
	if err != nil {
		return p, nil, err
	}
	p.traces = traces
	p.log.InfoContext(ctx, "traces go to a collector", "address", c.TracesURL, "share", c.TracesShare())
	return p, traces.Close, nil
}

// roots writes the roots of traces, beside what a process does.
func (p process) roots(db *postgres.DB) *root.Writer {
	store := execution.NewStore(db, execution.Config{TenantMaxRunning: p.live.Int("TENANT_MAX_RUNNING")})
	return root.New(root.Config{Traces: p.traces, Read: store.Timeline, Log: p.log})
}

// beside runs something for as long as do takes, and returns when both have ended.
func beside(run func(ctx context.Context) error, do func() error) error {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = run(ctx) }) // it returns nil
	defer running.Wait()
	defer stop()
	return do()
}
