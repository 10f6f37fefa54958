package chaos

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// crash ends PostgreSQL as a power cut would (it leaves everything to its
// log), and starts it again after a while.
func crash(ctx context.Context, s *stack, _ *member, f *fault) error {
	if err := s.servers.primary.server.Crash(ctx, syscall.SIGQUIT); err != nil {
		return err
	}
	sleep(ctx, f.lasts)
	return f.revived(ctx, s.servers.primary)
}

// revived waits until the host's server answers, which ends the fault.
func (f *fault) revived(ctx context.Context, h *host) (err error) {
	f.healed, err = h.revive(ctx)
	return err
}

// failover loses the primary for good, and makes a fresh standby from nothing.
func failover(ctx context.Context, s *stack, _ *member, f *fault) (err error) {
	sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGQUIT}[f.draw%2]
	f.what = sig.String()
	var ways []*cutter
	for _, m := range s.members {
		ways = append(ways, m.db)
	}
	if f.healed, err = s.servers.failover(ctx, ways, sig); err != nil {
		return err
	}
	return s.servers.rebuild(ctx)
}

// lateFailover loses the primary while its standby was out of reach for some
// time: what was answered meanwhile is nowhere else.
func lateFailover(ctx context.Context, s *stack, m *member, f *fault) error {
	s.servers.wire.Hold()
	sleep(ctx, f.lasts)
	return failover(ctx, s, m, f)
}

func silentStandby(ctx context.Context, s *stack, _ *member, f *fault) error {
	s.servers.wire.Hold()
	sleep(ctx, f.lasts)
	s.servers.wire.Up()
	return nil
}

// diskFull leaves no byte on the disk of a server, while its log grows.
func diskFull(ctx context.Context, s *stack, _ *member, f *fault) error {
	h := s.servers.either(f.draw)
	f.what = s.servers.named(h)
	if err := h.disk.fill(); err != nil {
		return err
	}
	if f.draw&2 != 0 {
		f.what += ", its log needs more"
		s.servers.admin().growLog(ctx, f.lasts)
	}
	sleep(ctx, f.lasts)
	if err := h.disk.release(); err != nil {
		return err
	}
	return f.revived(ctx, h)
}

// slowDisk makes every fsync of a server take longer.
func slowDisk(ctx context.Context, s *stack, _ *member, f *fault) error {
	h := s.servers.either(f.draw)
	slow := time.Duration(100+f.draw>>1%400) * time.Millisecond
	f.what = s.servers.named(h) + ", each fsync " + slow.String()
	err := h.orders.Set(slow, false, 0)
	sleep(ctx, f.lasts)
	return errors.Join(err, h.orders.Set(0, false, 0))
}

// failingDisk makes every fsync of a server fail, at which PostgreSQL gives up
// and reads its log again.
func failingDisk(ctx context.Context, s *stack, _ *member, f *fault) error {
	h := s.servers.either(f.draw)
	f.what = s.servers.named(h)
	err := h.orders.Set(0, true, 0)
	sleep(ctx, f.lasts)
	if err = errors.Join(err, h.orders.Set(0, false, 0)); err != nil {
		return err
	}
	return f.revived(ctx, h)
}

// named says which of the two a host is now.
func (s *servers) named(h *host) string {
	if h == s.primary {
		return "the primary"
	}
	return "the standby"
}
