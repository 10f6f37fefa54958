package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"slices"

	"github.com/scheduler-service/scheduler/internal/breaker"
	"github.com/scheduler-service/scheduler/internal/catalogue"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/command"
	"github.com/scheduler-service/scheduler/internal/executor/function"
	"github.com/scheduler-service/scheduler/internal/executor/httpcall"
	"github.com/scheduler-service/scheduler/internal/executor/javascript"
	"github.com/scheduler-service/scheduler/internal/executor/remote"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
	"github.com/scheduler-service/scheduler/internal/executor/wasm"
	functions "github.com/scheduler-service/scheduler/internal/function"
	"github.com/scheduler-service/scheduler/internal/identity/oidc"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/tenant/hosts"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// hintHandlers is how many hints a worker holds at once. They are served in
// turn, so more only keep hints from workers that are idle.
const hintHandlers = 16

// Entries are the functions of a worker's binary that run in restricted processes
// of their own.
func Entries() map[string]sandbox.Entry {
	all := runner.Entries()
	all[command.EntryName] = command.Keep
	return all
}

// Worker runs a worker until ctx is cancelled and what it runs is finished or
// released.
func Worker(ctx context.Context, c config.Worker, log *slog.Logger, functions map[string]function.Module) error {
	p := newProcess(log, config.Settings(c))
	p.functions = functions
	p, flush, err := p.traced(ctx, c.Process, "worker")
	if err != nil {
		return err
	}
	defer flush()
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
	beat, err := p.heartbeatPool(ctx, c)
	if err != nil {
		return err
	}
	defer beat.Close()
	keys, err := p.workerRing(ctx, c, db)
	if err != nil {
		return err
	}
	p = p.callbacksIn(c.PublicURL, keys)
	commands, err := p.commands(ctx, c)
	if err != nil {
		return err
	}
	defer commands.Close()
	breakers := breaker.NewBoard(db, dispatch.NewStore(db, dispatch.Config{}).LetGo, p.metrics, p.log)
	outgoing, refresh, err := p.outgoing(ctx, c, db, endpoints, breakers)
	if err != nil {
		return err
	}
	executors, err := p.executors(executorConfig{
		publicURL: c.PublicURL, oidcKeys: c.OIDCKeys, commands: commands, modules: functions.NewModules(db), egress: outgoing, runners: runner.Config{Memory: int64(c.RunnerMemory) << 20, CacheDir: c.RunnerCacheDir},
	}, c.JobTypes...)
	if err != nil {
		return err
	}
	defer executors.close()
	if executors.Registry, err = ownTypes(executors.Registry, c, commands); err != nil {
		return err
	}
	if err := catalogue.NewStore(db).Publish(ctx, publishedOf(p.functions)); err != nil {
		return err
	}
	ear, roots := hints.Ear(queue.CallPool), p.roots(db)
	w, intake, err := p.intake(c, worker.Config{
		DB: db, Beat: beat, Executor: executors.Registry, Secrets: secret.NewResolver(db, keys), Hints: hints, Metrics: p.metrics, Log: p.log, Traces: p.traces, Finished: roots.Finished,
		Host: hostname(), PID: os.Getpid(), Slots: c.Slots, TenantMaxRunning: p.live.Int("TENANT_MAX_RUNNING"),
		Callback: p.callbackAddresses(c.PublicURL, keys), Breakers: breakers,
		Heartbeat: c.Heartbeat, Fence: c.Fence, Lease: c.TTL, Drain: c.DrainTimeout,
		Called: ear.Hears, CallWorkers: caller(hints, queue.CallPool),
	})
	if err != nil {
		return err
	}
	p.ready.add(func() error { return holdsLease(w) })
	intake = append(intake, func(ctx context.Context) error { return ear.Listen(ctx, w.Wake) }, refresh)
	return beside(roots.Run, func() error {
		return w.Run(ctx, func(ctx context.Context) error { return together(ctx, intake...) })
	})
}

func holdsLease(w *worker.Worker) error {
	if !w.Ready() {
		return errors.New("the worker holds no lease")
	}
	return nil
}

// heartbeatPool is the one connection of the heartbeat.
func (p process) heartbeatPool(ctx context.Context, c config.Worker) (*postgres.DB, error) {
	beat, err := postgres.Open(ctx, postgres.Config{
		URL: c.DatabaseURL.Reveal(), Pooled: c.Pooled(), Role: postgres.Engine, Name: "scheduler-worker-heartbeat", MaxConns: 1,
		RoundTrip: p.metrics.RoundTrip,
	})
	if err != nil {
		return nil, err
	}
	p.metrics.WatchPool("postgres", "scheduler-worker-heartbeat", connections(beat))
	return beat, nil
}

// outgoing is how jobs call out: held to the hosts of their tenants. Until its context ends
// refresh keeps these up to date, the breakers, and the settings of the process.
func (p process) outgoing(ctx context.Context, c config.Worker, db *postgres.DB, endpoints []netip.AddrPort, breakers *breaker.Board) (_ egress.Config, refresh func(context.Context) error, _ error) {
	lists, err := hosts.Load(ctx, db)
	if err != nil {
		return egress.Config{}, nil, err
	}
	refresh = func(ctx context.Context) error {
		return loop.Runner{Metrics: p.metrics, Log: p.log}.Run(ctx, []loop.Pass{allowedHosts(lists), breakers.Pass(), p.live.Pass(db)})
	}
	return egress.Config{Allow: c.EgressAllow, Endpoints: endpoints, Admit: lists.Admit, Proxy: proxyOf(c.EgressProxy)}, refresh, nil
}

// allowedHosts keeps the tenants' lists of hosts up to date.
func allowedHosts(lists *hosts.Lists) loop.Pass {
	return loop.Pass{Name: "allowed_hosts", Every: hosts.Every, Do: func(ctx context.Context, _ *loop.Turn) error { return lists.Refresh(ctx) }}
}

// proxyOf is the proxy of a configuration; nil where it names none.
func proxyOf(address config.URL) *url.URL {
	if address.IsZero() {
		return nil
	}
	parsed, _ := url.Parse(address.Reveal()) // the configuration was read with it
	return parsed
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

// publishedOf is what a worker publishes of the modules that are compiled into it.
func publishedOf(modules map[string]function.Module) (all []catalogue.Function) {
	for path, module := range modules {
		for name, definition := range module {
			all = append(all, catalogue.Function{Module: path, Name: name, Description: definition.Description, Parameters: definition.Parameters})
		}
	}
	return all
}

// commands makes what runs commands here, if anything does, and says how they are kept
// apart.
func (p process) commands(ctx context.Context, c config.Worker) (*command.Executor, error) {
	settings := checksCommands(c.Commands)
	if settings.Level == command.Off {
		if slices.Contains(c.JobTypes, command.Type) {
			return nil, errors.New("WORKER_JOB_TYPES names command, and COMMAND_JOBS is off")
		}
		return command.NewChecker(settings), nil
	}
	settings.Paths, settings.Dir = c.CommandPaths, c.CommandDir
	runs, err := command.New(ctx, settings)
	if err != nil {
		return nil, err
	}
	say := p.log.InfoContext
	if settings.Level == command.Unsafe {
		say = p.log.WarnContext
	}
	say(ctx, "this worker runs commands", "level", settings.Level, "isolation", runs.Isolation())
	return runs, nil
}

// checksCommands is what API and worker know of commands.
func checksCommands(c config.Commands) command.Config {
	return command.Config{Level: command.Level(c.CommandJobs), Memory: c.CommandMemory, Network: c.CommandNetwork}
}

// ownTypes leaves commands to other workers where they are off.
func ownTypes(all *executor.Registry, c config.Worker, commands *command.Executor) (*executor.Registry, error) {
	if len(c.JobTypes) > 0 || commands.Runs() {
		return all, nil
	}
	return all.Only(slices.DeleteFunc(all.Types(), func(name string) bool { return name == command.Type })...)
}

// executors makes the job types that this version has, or only some of them.
// The API makes them all, to check configurations before they are stored.
func (p process) executors(c executorConfig, only ...string) (jobTypes, error) {
	issuer, err := oidc.New(c.publicURL.Reveal(), c.oidcKeys.Reveal())
	if err != nil {
		return jobTypes{}, fmt.Errorf("OIDC_KEYS: %w", err)
	}
	documents, err := issuer.Documents()
	if err != nil {
		return jobTypes{}, fmt.Errorf("OIDC_KEYS: %w", err)
	}
	client, err := egress.New(c.egress)
	if err != nil {
		return jobTypes{}, fmt.Errorf("make the client for outgoing calls: %w", err)
	}
	calls := httpcall.New(client, clock.Now).WithIssuer(issuer)
	if p.callbacks {
		calls = calls.WithCallbacks()
	}
	c.runners.Log = p.log
	runners := runner.New(c.runners)
	closeAll := func() {
		runners.Close()
		client.Close()
	}
	own := function.New(p.functions)
	if c.published != nil {
		own = function.NewChecker(p.functions, c.published)
	}
	modules := wasm.New(runners, c.modules)
	all := executor.NewRegistry(map[string]executor.Executor{
		"http":       calls,
		"function":   own,
		"javascript": javascript.New(runners, client, p.log),
		"command":    c.commands,
		"wasm":       modules,
		remote.Type:  remote.Executor{},
	})
	if c.published == nil { // a worker, which leaves it to those of tenants
		all, _ = all.Only(slices.DeleteFunc(all.Types(), func(name string) bool { return name == remote.Type })...)
	}
	if len(only) > 0 {
		if all, err = all.Only(only...); err != nil {
			closeAll()
			return jobTypes{}, fmt.Errorf("WORKER_JOB_TYPES: %w", err)
		}
	}
	p.metrics.KnowTypes(all.Types())
	return jobTypes{Registry: all, documents: documents, modules: modules, close: closeAll}, nil
}

// jobTypes are the job types of a process, and how to end what they keep.
type jobTypes struct {
	*executor.Registry
	documents map[string]json.RawMessage // by which targets verify calls, by path
	modules   *wasm.Executor
	close     func()
}

// executorConfig is what the job types need to know: the networks that jobs may reach,
// endpoints beside these, and what tenants' code may take.
type executorConfig struct {
	egress    egress.Config
	runners   runner.Config
	commands  *command.Executor
	published *catalogue.Known // by workers; nil for a worker, which runs its own
	modules   wasm.Source      // of a worker
	publicURL config.URL       // at which targets verify calls
	oidcKeys  config.Secret    // that sign calls
}
