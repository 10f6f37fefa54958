package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// process is one of the product's, as an operating system process of its own.
type process struct {
	*child.Process

	name    string // of the program
	metrics string // address of /metrics
	log     string // file with what it logged
}

const (
	apiName      = "api"
	promoterName = "promoter"
	workerName   = "worker"
)

// start starts a promoter or a worker and waits until it does its work.
func (s *stack) start(ctx context.Context, name, backend string) (*process, error) {
	environment := []string{"QUEUE_BACKEND=" + backend, "SCHEDULER_MAX_CONCURRENT_JOBS=" + strconv.Itoa(s.Slots)}
	return s.startWith(ctx, filepath.Join(s.programs(), name), environment, func(p *process) bool { return p.ready(ctx) })
}

// startWith starts a program with more environment and waits until it is ready.
func (s *stack) startWith(ctx context.Context, program string, more []string, ready func(p *process) bool) (*process, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(program)
	p := &process{
		name: name, metrics: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		log: filepath.Join(s.dir, fmt.Sprintf("%s-%d.log", name, port)),
	}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(program) // it lives until it is stopped
	cmd.Env = append([]string{
		"DATABASE_URL=" + s.database, "REDIS_URL=" + s.redis.URL, "LOG_LEVEL=warn", "PROMETHEUS_PORT=" + strconv.Itoa(port),
		"EGRESS_ALLOW=127.0.0.0/8", "CPU_PROFILES=" + s.Profiles,
	}, more...)
	cmd.Stderr = out
	if p.Process, err = child.Start(cmd); err != nil {
		return nil, err
	}
	s.running = append(s.running, p)
	return p, s.await(ctx, 20*time.Second, "the "+name+" to start", func() (bool, error) {
		return ready(p), nil
	})
}

// ready says whether the process does its work: a promoter has looked for due
// jobs, a worker has renewed its lease.
func (p *process) ready(ctx context.Context) bool {
	series, err := scrape(ctx, p.metrics)
	if err != nil {
		return false
	}
	return series.sum(roundTrips, `statement="ClaimDueJobs"`) > 0 || series.sum(roundTrips, `statement="RenewWorker"`) > 0
}

// stop ends processes as an operator would, and says when one had to be
// killed or had ended by itself.
func (s *stack) stop(processes ...*process) error {
	var failures []error
	for _, p := range processes {
		if err := p.ended(); err != nil {
			failures = append(failures, err)
		}
		failures = append(failures, p.Stop(child.Step{Signal: syscall.SIGTERM, Within: 35 * time.Second}))
		s.running = without(s.running, p)
	}
	return errors.Join(failures...)
}

func without(all []*process, one *process) []*process {
	var rest []*process
	for _, p := range all {
		if p != one {
			rest = append(rest, p)
		}
	}
	return rest
}

// ended is why a process is gone that should run; nil while it runs.
func (p *process) ended() error {
	select {
	case <-p.Done():
	default:
		return nil
	}
	said, _ := os.ReadFile(p.log)
	if len(said) > 2000 {
		said = said[len(said)-2000:]
	}
	return fmt.Errorf("the %s ended by itself (%v): %s", p.name, p.Err(), said)
}

// await looks ten times a second whether a condition holds. It fails when a
// process of ours has ended meanwhile, and after the limit.
func (s *stack) await(ctx context.Context, limit time.Duration, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("waited %v for %s", limit, what))
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds()
		for _, p := range s.running {
			err = errors.Join(err, p.ended())
		}
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// freePort is a port that nobody listened on a moment ago.
func freePort(ctx context.Context) (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
