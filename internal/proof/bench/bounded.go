package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/devstack/child"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Limits of what another tenant gets while an adversary does its worst.
const (
	maxStartLag    = time.Second            // from the scheduled time, or the request, to the start, at p99
	maxReadLatency = 250 * time.Millisecond // of a read, at p99
	// settled is how long the processes run before an adversary begins.
	settled = 3 * time.Second
)

// errLimitExceeded says that an adversary took from another tenant what is its own.
var errLimitExceeded = errors.New("a limit was exceeded")

// bounded runs each adversary beside a quiet tenant, on a database and with
// processes of its own, and prints a table. The error names the adversaries
// beside which a limit was exceeded or a set-up failed.
func bounded(ctx context.Context, s *stack, out io.Writer) error {
	head := "| beside | starts | p50 / p99 / max (ms) | reads | p50 / p99 / max (ms) | failed | held | seen | others had |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
	if _, err := fmt.Fprintf(out, "One API, %d promoter(s) and %d worker(s) with the defaults, QUEUE_BACKEND=%s, on %s. "+
		"The quiet tenant has one run due each second, asks for one more each second, and reads ten times a second. "+
		"Bars: starts %v, reads %v at p99, nothing failed.\n\n%s",
		s.Promoters, s.Workers, s.Backend, thisMachine(), maxStartLag, maxReadLatency, head); err != nil {
		return err
	}
	var missed []string
	for _, who := range adversaries() {
		if len(s.Against) > 0 && !slices.Contains(s.Against, who.name) {
			continue
		}
		got, err := s.against(ctx, who)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(out, "| %s | | | | | | not run | %s | |\n", who.what, oneLine(err))
			missed = append(missed, who.name)
			continue
		}
		fmt.Fprintln(out, got.line(who.what))
		if !got.withinLimits() {
			missed = append(missed, who.name)
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("%w: %s", errLimitExceeded, strings.Join(missed, ", "))
	}
	return nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// resident is a tenant with tokens to speak for it.
type resident struct {
	tenant.Actor

	token  string // of an administrator of the tenant
	viewer string // of somebody who may only read
}

// arena is one installation with a quiet tenant and a noisy one.
type arena struct {
	*stack

	state        *setup
	url          string // of the API
	quiet, noisy resident
	platform     string // token of an administrator of the platform
	tick         uuid.UUID
	lateSince    time.Time      // when single runs of the quiet tenant were made late; zero: none were
	aims         []uuid.UUID    // that the adversary is about
	ends         []func() error // of what an adversary has started
	notes        []string       // what else there is to say, for the table
}

// note keeps what an adversary saw.
func (a *arena) note(format string, args ...any) {
	a.notes = append(a.notes, fmt.Sprintf(format, args...))
}

// against measures one adversary.
func (s *stack) against(ctx context.Context, who adversary) (got outcome, err error) {
	s.say("%s: setting up", who.name)
	a, err := s.newArena(ctx, who.name)
	defer func() { err = errors.Join(err, a.close(), s.forget(context.WithoutCancel(ctx), who.name)) }()
	if err != nil {
		return outcome{}, err
	}
	if err := a.quietState(ctx); err != nil {
		return outcome{}, err
	}
	if who.prepare != nil {
		if err := who.prepare(ctx, a); err != nil {
			return outcome{}, fmt.Errorf("set %s up: %w", who.name, err)
		}
	}
	if err := a.state.settle(ctx); err != nil {
		return outcome{}, err
	}
	for _, name := range slices.Concat(slices.Repeat([]string{promoterName}, s.Promoters), slices.Repeat([]string{workerName}, s.Workers)) {
		environment := []string{"QUEUE_BACKEND=" + s.Backend, "EGRESS_ALLOW=127.0.0.0/8"}
		if _, err := a.startWith(ctx, filepath.Join(a.programs(), name), environment, func(p *process) bool { return p.ready(ctx) }); err != nil {
			return outcome{}, err
		}
	}
	if err := until(ctx, clock.Now().Add(settled).Truncate(time.Second)); err != nil {
		return outcome{}, err
	}
	return a.fight(ctx, who)
}

// fight lets the adversary loose for the measured time.
func (a *arena) fight(ctx context.Context, who adversary) (outcome, error) {
	a.say("%s: %v beside %s", who.name, time.Duration(a.Seconds)*time.Second, who.what)
	from := reading{at: clock.Now()}
	from.all, from.own = busy()
	attacking, stop := context.WithCancel(ctx)
	defer stop()
	attacked := make(chan error, 1)
	go func() { attacked <- who.attack(attacking, a) }()
	seen, err := a.measureQuietTenant(ctx, clock.Now(), time.Duration(a.Seconds)*time.Second)
	stop()
	if attackErr := <-attacked; attackErr != nil && !errors.Is(attackErr, context.Canceled) {
		a.note("the adversary: %s", oneLine(attackErr))
	}
	if err != nil {
		return outcome{}, err
	}
	to := reading{at: clock.Now()}
	to.all, to.own = busy()
	got, err := a.judge(ctx, seen)
	got.others = others(from, to)
	for _, p := range a.running {
		err = errors.Join(err, p.ended())
	}
	if who.after != nil && err == nil {
		err = who.after(ctx, a)
	}
	got.notes = a.notes
	return got, err
}

// newArena makes a database, a Redis, the tenants and an API.
func (s *stack) newArena(ctx context.Context, name string) (*arena, error) {
	own := *s
	own.running, own.tenants, own.store, own.api, own.redis = nil, nil, nil, nil, nil
	a := &arena{stack: &own}
	var err error
	if own.database, err = s.prepare(ctx, database(name)); err != nil {
		return a, err
	}
	// A throwaway, so that no hint of an earlier adversary is left.
	if own.redis, err = devstack.StartRedis(ctx, devstack.Options{Dir: filepath.Join(s.dir, "redis-"+name)}); err != nil {
		return a, err
	}
	if a.state, err = newSetup(ctx, s.postgres.URL(database(name), "postgres")); err != nil {
		return a, err
	}
	if err := own.openProduct(ctx); err != nil {
		return a, err
	}
	if a.quiet, err = speaker(own.tenants[0]); err != nil {
		return a, err
	}
	if a.noisy, err = speaker(own.tenants[1]); err != nil {
		return a, err
	}
	if a.platform, err = mint(own.tenants[2], identity.PlatformAdmin); err != nil {
		return a, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return a, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	a.url = "http://" + address + base
	return a, a.startAPIAt(ctx, address)
}

// startAPIAt starts the API process with the defaults.
func (a *arena) startAPIAt(ctx context.Context, address string) error {
	environment := []string{
		"HTTP_ADDR=" + address, "JWT_SECRET=" + signature, "SHUTDOWN_NOTICE_MS=0", "QUEUE_BACKEND=" + a.Backend, "EGRESS_ALLOW=127.0.0.0/8",
	}
	_, err := a.startWith(ctx, filepath.Join(a.programs(), apiName), environment, func(*process) bool {
		_, err := send(ctx, quickly(), call{"GET", "http://" + address + "/health/ready", "", ""})
		return err == nil
	})
	return err
}

// close ends what the arena started. Work under way is of no use to
// anybody, so its processes are killed.
func (a *arena) close() (err error) {
	for _, end := range a.ends {
		err = errors.Join(err, end())
	}
	for _, p := range a.running {
		err = errors.Join(err, p.Stop(child.Step{Signal: syscall.SIGKILL, Within: 10 * time.Second}))
	}
	if a.api != nil {
		a.api.Close()
	}
	if a.store != nil {
		a.store.db.Close()
	}
	if a.state != nil {
		err = errors.Join(err, a.state.close(context.Background()))
	}
	if a.redis != nil {
		err = errors.Join(err, a.redis.Stop())
	}
	return err
}

// forget removes what an adversary stored.
func (s *stack) forget(ctx context.Context, name string) error {
	admin, err := newSetup(ctx, s.postgres.AdminURL)
	if err != nil {
		return err
	}
	return errors.Join(admin.drop(ctx, database(name)), admin.close(ctx))
}

// database is the name of an adversary's database.
func database(name string) string { return "bounded_" + name }

func speaker(who tenant.Actor) (r resident, err error) {
	r.Actor = who
	if r.token, err = mint(who, identity.Admin); err != nil {
		return r, err
	}
	r.viewer, err = mint(who, identity.Viewer)
	return r, err
}

func mint(who tenant.Actor, role identity.Role) (string, error) {
	return identity.Mint([]byte(signature), identity.Claims{
		Subject: who.Subject, Tenant: who.TenantID, Roles: []identity.Role{role},
	}, clock.Now(), time.Hour)
}
