package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/proof/broken"
)

// host is where one PostgreSQL lives.
type host struct {
	dir    string
	disk   *disk            // nil: it has no file system of its own
	orders *broken.Orders   // nil: it obeys none
	asked  devstack.Options // but for what is the host's own
	env    []string
	server *devstack.Postgres // nil: none is there
}

// servers are the PostgreSQLs of a run: the one that takes writes and, where
// the machine can, its synchronous standby. Only one fault at a time strikes
// them, so that there is always one that has everything.
type servers struct {
	link    string  // leads to the directory of the primary's socket
	wire    *cutter // by which the standby follows
	primary *host
	standby *host // nil: there never is one
	slots   int
}

// newServers makes the hosts. Disks and orders are for those faults that the
// machine allows.
func newServers(ctx context.Context, dir string, library string, standby, disks bool) (*servers, error) {
	s := &servers{link: filepath.Join(dir, "primary")}
	var err error
	if s.wire, err = newCutter(filepath.Join(s.link, socketName)); err != nil {
		return s, err
	}
	if s.primary, err = newHost(ctx, dir, "host-1", library, disks); err == nil && standby {
		s.standby, err = newHost(ctx, dir, "host-2", library, disks)
	}
	return s, err
}

// socketName is PostgreSQL's, in its directory.
const socketName = ".s.PGSQL.5432"

func newHost(ctx context.Context, dir, name, library string, disks bool) (*host, error) {
	h := &host{dir: filepath.Join(dir, name)}
	var err error
	if library != "" {
		if h.orders, err = broken.NewOrders(filepath.Join(dir, name+".orders")); err != nil {
			return h, err
		}
		h.env = h.orders.Env(library)
	}
	if disks {
		h.disk, err = newDisk(ctx, dir, name)
	}
	return h, err
}

func (h *host) options() devstack.Options {
	// A small log, so that the small disk holds it.
	o := h.asked
	o.Dir, o.Durable, o.Env, o.Settings = h.dir, true, h.env, []string{"max_wal_size=160MB"}
	return o
}

// start starts the primary, as asked but for what is each host's own.
func (s *servers) start(ctx context.Context, asked devstack.Options) (err error) {
	s.primary.asked = asked
	if s.standby != nil {
		s.standby.asked = asked
	}
	if s.primary.server, err = devstack.StartPostgres(ctx, s.primary.options()); err != nil {
		return err
	}
	return s.routeToPrimary()
}

// routeToPrimary makes all ways lead to the primary.
func (s *servers) routeToPrimary() error {
	fresh := s.link + ".new"
	return errors.Join(os.Symlink(s.primary.server.Socket, fresh), os.Rename(fresh, s.link))
}

// url connects to the primary, whichever that is.
func (s *servers) url(database, user string) string {
	return "postgres://" + user + "@/" + database + "?host=" + s.link
}

func (s *servers) admin() store { return store{url: s.url("postgres", "postgres")} }

// follow gives the primary a fresh standby, and returns once no commit is
// answered that the standby does not have.
func (s *servers) follow(ctx context.Context) (err error) {
	if s.standby == nil {
		return nil
	}
	for range 3 {
		s.slots++
		s.standby.server, err = s.primary.server.Standby(ctx, s.standby.options(), "chaos_"+strconv.Itoa(s.slots), s.wire.addr)
		if err == nil {
			return s.admin().synchronous(ctx)
		}
		if errors.Is(err, devstack.ErrNoBackup) || !sleep(ctx, time.Second) {
			return err
		}
	}
	return err
}

// errNoStandby is why there was no failover.
var errNoStandby = errors.New("there is no standby that has everything")

// failover kills the primary, sees to it that nobody reaches it any more, and
// makes the standby the primary, to which all ways lead then. It returns when
// that was.
func (s *servers) failover(ctx context.Context, ways []*cutter, sig syscall.Signal) (time.Time, error) {
	if s.standby == nil || s.standby.server == nil {
		return time.Time{}, errNoStandby
	}
	if err := s.primary.server.Crash(ctx, sig); err != nil {
		return time.Time{}, err
	}
	for _, way := range append(ways, s.wire) {
		way.Down()
	}
	promoted := store{url: s.standby.server.AdminURL}.promote(ctx)
	if promoted != nil {
		return time.Time{}, promoted
	}
	s.primary, s.standby = s.standby, s.primary
	err := s.routeToPrimary()
	for _, way := range append(ways, s.wire) {
		way.Up()
	}
	return clock.Now(), err
}

// rebuild makes the primary that was lost the standby of the new one, from
// nothing.
func (s *servers) rebuild(ctx context.Context) error {
	err := s.standby.server.Stop()
	s.standby.server = nil
	return errors.Join(err, os.RemoveAll(filepath.Join(s.standby.dir, "postgres")), s.follow(ctx))
}

// revive sees to it that a host's server runs and answers, which it may not
// after its disk failed, and returns when it did.
func (h *host) revive(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("PostgreSQL does not come back"))
	defer cancel()
	for {
		var err error
		select {
		case <-h.server.Done():
			err = h.server.Restart(ctx)
		default:
			err = store{url: h.server.AdminURL}.answers(ctx)
		}
		if err == nil {
			if err = (store{url: h.server.AdminURL}).answers(ctx); err == nil {
				return clock.Now(), nil
			}
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return time.Time{}, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// either is one of the hosts that have a server.
func (s *servers) either(draw uint64) *host {
	if draw%2 == 1 && s.standby != nil && s.standby.server != nil {
		return s.standby
	}
	return s.primary
}

func (s *servers) close() (err error) {
	if s.wire != nil {
		s.wire.Up()
	}
	for _, h := range []*host{s.standby, s.primary} {
		if h == nil {
			continue
		}
		_ = h.orders.Set(0, false, 0)
		if h.server != nil {
			err = errors.Join(err, h.server.Stop())
		}
		if h.disk != nil {
			err = errors.Join(err, h.disk.close())
		}
		h.orders.Close()
		err = errors.Join(err, os.RemoveAll(h.dir))
	}
	if s.wire != nil {
		s.wire.close()
	}
	return err
}
