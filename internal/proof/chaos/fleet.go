package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
	"github.com/scheduler-service/scheduler/internal/proof/broken"
)

// member is one process of the product. It keeps its name and its ways to the
// stores while the operating system's processes under it come and go.
type member struct {
	role, name string
	program    []string
	env        []string
	logs       string         // directory
	db, redis  *cutter        // redis is nil where there is none
	orders     *broken.Orders // nil: its clock cannot be moved
	metrics    string         // URL; empty: it serves none

	mu       sync.Mutex
	process  *child.Process // nil while it is down
	gone     chan struct{}  // closed once process is nil again
	starts   int
	wanted   bool // it should run; otherwise it was ended on purpose
	frozen   bool
	refused  int // starts that found no store
	maxRSS   int // kB
	watchers sync.WaitGroup
	crashes  []string
}

// begun are the lines that a process writes once it works.
var begun = map[string]string{"api": "api listens", "promoter": "promoter starts", "worker": "worker registered"} // a table

// start starts the process, unless it runs.
func (m *member) start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = true
	return m.launch(ctx)
}

// launch starts the process, unless it runs. The caller holds the lock.
func (m *member) launch(ctx context.Context) error {
	if m.process != nil || ctx.Err() != nil {
		return nil
	}
	m.starts++
	log := filepath.Join(m.logs, fmt.Sprintf("%s.%d.log", m.name, m.starts))
	out, err := os.Create(log)
	if err != nil {
		return err
	}
	defer out.Close()                                   // the child has its own
	cmd := exec.Command(m.program[0], m.program[1:]...) // it lives until it is ended
	cmd.Env = m.env
	cmd.Stdout, cmd.Stderr = out, out
	if m.orders != nil {
		cmd.ExtraFiles = []*os.File{m.orders.File()}
	}
	p, err := child.Start(cmd)
	if err != nil {
		return err
	}
	m.process, m.gone = p, make(chan struct{})
	gone := m.gone
	m.watchers.Go(func() { m.waitForExit(ctx, p, log, gone) })
	return nil
}

// waitForExit waits for the end of a process. One that ended by itself crashed,
// unless it never began because a store was away: then it is started again, as
// whatever looks after processes in production would.
func (m *member) waitForExit(ctx context.Context, p *child.Process, log string, gone chan<- struct{}) {
	<-p.Done()
	said, _ := os.ReadFile(log)
	m.mu.Lock()
	m.process, m.frozen = nil, false
	wanted := m.wanted
	code := p.Err()
	switch {
	case runtimeEnd.Match(said):
		m.crashes = append(m.crashes, fmt.Sprintf("%s panicked (%v): %s", m.name, code, tail(said)))
	case !wanted:
	case bytes.Contains(said, []byte(begun[m.role])):
		m.crashes = append(m.crashes, fmt.Sprintf("%s ended by itself (%v): %s", m.name, code, tail(said)))
	default:
		m.refused++
	}
	m.mu.Unlock()
	close(gone)
	if !wanted || !sleep(ctx, time.Second) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wanted { // nobody ended it meanwhile
		_ = m.launch(ctx) // its next end says why
	}
}

// end takes the process down: at once with SIGKILL, politely with SIGTERM. It
// returns once it is gone.
func (m *member) end(sig syscall.Signal) {
	worked := m.began()
	m.mu.Lock()
	m.wanted = false
	p, gone := m.process, m.gone
	m.mu.Unlock()
	if p == nil {
		return
	}
	err := p.Stop(child.Step{Signal: sig, Within: 40 * time.Second})
	<-gone
	if sig != syscall.SIGTERM || !worked {
		return
	}
	if err == nil {
		err = p.Err() // asked to end, it must end well
	}
	if err != nil {
		m.mu.Lock()
		m.crashes = append(m.crashes, fmt.Sprintf("%s did not end well when asked: %v", m.name, err))
		m.mu.Unlock()
	}
}

// freeze stops the process where it stands, or lets it go on.
func (m *member) freeze(frozen bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return
	}
	sig := syscall.SIGCONT
	if frozen {
		sig = syscall.SIGSTOP
	}
	if syscall.Kill(m.process.PID(), sig) == nil {
		m.frozen = frozen
	}
}

// began says whether the process that runs now has begun to work.
func (m *member) began() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return false
	}
	return bytes.Contains(m.said(), []byte(begun[m.role]))
}

// said is what the last process has written so far. The caller holds mu.
func (m *member) said() []byte {
	text, _ := os.ReadFile(filepath.Join(m.logs, fmt.Sprintf("%s.%d.log", m.name, m.starts)))
	return text
}

// lastWords is the end of what the last process has written so far.
func (m *member) lastWords() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	const most = 2000 // bytes
	text := m.said()
	return fmt.Sprintf("(start %d, runs: %t) %s", m.starts, m.process != nil, text[max(0, len(text)-most):])
}

// weigh notes how much memory the process has had at most.
func (m *member) weigh() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.process.PID()))
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			m.maxRSS = max(m.maxRSS, kb)
		}
	}
}

// runtimeEnd is how the Go runtime says that a program ends. A line of the log may
// quote the panic of a job's function, and does not begin with it.
var runtimeEnd = regexp.MustCompile(`(?m)^(panic: |fatal error: |WARNING: DATA RACE)`)

// crashed is what is wrong with how it ended, so far.
func (m *member) crashed() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.crashes...)
}

// close ends the process and its ways.
func (m *member) close() error {
	m.freeze(false)
	m.end(syscall.SIGTERM)
	m.watchers.Wait()
	m.db.close()
	m.redis.close()
	m.orders.Close()
	if crashes := m.crashed(); len(crashes) > 0 {
		return errors.New(strings.Join(crashes, "; "))
	}
	return nil
}

// tail is the end of a log.
func tail(said []byte) string {
	if len(said) > 3000 {
		said = said[len(said)-3000:]
	}
	return string(said)
}
