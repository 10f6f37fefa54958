package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// The processes under test are built with a package time of Go whose wall
// clock is wrong by as many seconds as stand in the third number of their file
// descriptor 3, which only the harness hands them. So everything in them is
// wrong alike, libraries too, the monotonic clock is right, as when a machine's
// clock is set, and what is shipped knows nothing of it. The file is mapped,
// because the runtime asks for the time where it must not wait.
const (
	rightClock = "	sec, nsec, mono := runtimeNow()\n	if mono == 0 {\n		return Time{uint64(nsec), sec + unixToInternal, Local}"
	wrongClock = `package time

import (
	"syscall"
	"unsafe"
)

var orders = func() *[4]int64 {
	at, _, failed := syscall.RawSyscall6(syscall.SYS_MMAP, 0, 32, syscall.PROT_READ, syscall.MAP_SHARED, 3, 0)
	if failed != 0 || (*[4]int64)(unsafe.Pointer(at))[3] != 0x63684f53 {
		return new([4]int64)
	}
	return (*[4]int64)(unsafe.Pointer(at))
}()

func wrongNow() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = runtimeNow()
	if orders != nil {
		sec += orders[2]
	}
	return sec, nsec, mono
}
`
)

// overlay writes the file that go build takes for -overlay.
func overlay(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	at := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(at, "time.go"))
	if err != nil {
		return "", err
	}
	if bytes.Count(source, []byte(rightClock)) != 1 {
		return "", errors.New("this Go reads its clock in another way")
	}
	source = bytes.Replace(source, []byte(rightClock), []byte(strings.Replace(rightClock, "runtimeNow", "wrongNow", 1)), 1)
	list := map[string]map[string]string{"Replace": {}}
	for name, text := range map[string][]byte{"time.go": source, "wrong.go": []byte(wrongClock)} {
		from := filepath.Join(dir, name)
		if err := os.WriteFile(from, text, 0o600); err != nil {
			return "", err
		}
		list["Replace"][filepath.Join(at, name)] = from
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// skewed is one interval of a fault in which clocks were wrong.
type skewed struct {
	by         time.Duration
	begun, end time.Time
	everybody  bool // of its role
	database   bool // PostgreSQL's clock, not theirs
	alarms     int  // answers that said that promotion is halted
	answers    int
}

// halts says whether a promoter with such a clock must not promote.
func (s skewed) halts() bool { return s.by.Abs() > 31*time.Second }

// works says whether it must.
func (s skewed) works() bool { return s.by.Abs() < 29*time.Second }

// offsets are how far clocks go wrong: what is borne, and what is not.
func offsets(draw uint64) (first, second time.Duration) {
	of := []time.Duration{-5 * time.Minute, -time.Minute, -20 * time.Second, 20 * time.Second, time.Minute, 5 * time.Minute, time.Hour}
	return of[draw%7], of[draw/7%7]
}

// skewPostgres moves the clock by which everything durable is decided. The
// other checks compare its times with ours, so this fault comes alone.
func skewPostgres(ctx context.Context, s *stack, _ *member, f *fault) error {
	hosts := []*host{s.servers.primary}
	if s.servers.standby != nil {
		hosts = append(hosts, s.servers.standby)
	}
	first := []time.Duration{-45 * time.Second, 45 * time.Second}[f.draw%2]
	move := func(by time.Duration) (err error) {
		for _, h := range hosts {
			err = errors.Join(err, h.orders.Set(0, false, by))
		}
		return err
	}
	f.what = "off by " + first.String() + ", then " + (-first).String()
	err := f.wrong(ctx, s.role("promoter"), []time.Duration{first, -first}, move)
	for i := range f.skews {
		f.skews[i].database = true
	}
	return err
}

// role lists the processes of a role.
func (s *stack) role(role string) (all []*member) {
	for _, m := range s.members {
		if m.role == role {
			all = append(all, m)
		}
	}
	return all
}

// skew moves the clock of a process, moves it elsewhere half-way, and sets it
// right.
func skew(ctx context.Context, _ *stack, m *member, f *fault) error {
	return f.skew(ctx, []*member{m}, false)
}

// skewAll does so to all processes of a role alike.
func skewAll(role string) strike {
	return func(ctx context.Context, s *stack, _ *member, f *fault) error {
		return f.skew(ctx, s.role(role), true)
	}
}

func (f *fault) skew(ctx context.Context, of []*member, everybody bool) error {
	first, second := offsets(f.draw)
	f.what = "off by " + first.String() + ", then " + second.String()
	err := f.wrong(ctx, of[:1], []time.Duration{first, second}, func(by time.Duration) (err error) {
		for _, m := range of {
			err = errors.Join(err, m.orders.Set(0, false, by))
		}
		return err
	})
	for i := range f.skews {
		f.skews[i].everybody = everybody
	}
	return err
}

// wrong moves clocks by each of the offsets in turn and right again, and takes
// down what promoters say of it.
func (f *fault) wrong(ctx context.Context, asked []*member, offsets []time.Duration, move func(by time.Duration) error) (err error) {
	for _, by := range offsets {
		one := skewed{by: by, begun: clock.Now()}
		err = errors.Join(err, move(by))
		mark := clock.Start()
		for sleep(ctx, 250*time.Millisecond) && mark.Elapsed() < f.lasts/2 {
			for _, m := range asked {
				// It may have found before the jump what it says just after it.
				if halted, answered := m.halted(ctx); answered && mark.Elapsed() > clockSettleTime {
					one.answers++
					if halted {
						one.alarms++
					}
				}
			}
		}
		one.end = clock.Now()
		f.skews = append(f.skews, one)
	}
	return errors.Join(err, move(0))
}

// skewed says whether the clock of an API is wrong, which may then take an
// endDate for passed.
func (s *stack) skewed() bool {
	for _, m := range s.role("api") {
		if m.orders.Skewed() {
			return true
		}
	}
	return false
}

// clockSettleTime is how long after its clock has jumped a promoter may still work, or
// stand still: a pass, and its pause after one that failed.
const clockSettleTime = 1500 * time.Millisecond

// halted asks a promoter's metrics, where the alarm is.
func (m *member) halted(ctx context.Context) (halted, answered bool) {
	if m.metrics == "" {
		return false, false
	}
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.metrics, nil)
	if err != nil {
		return false, false
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return false, false
	}
	defer answer.Body.Close() // it was read
	text, err := io.ReadAll(answer.Body)
	return bytes.Contains(text, []byte("\nscheduler_promotion_halted 1\n")), err == nil
}
