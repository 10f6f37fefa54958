package devstack

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
)

// asProgram makes the test binary a program with a stack of its own.
const asProgram = "DEVSTACK_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if text := os.Getenv(asProgram); text != "" {
		os.Exit(program(text))
	}
	os.Exit(leaktest.Main(m))
}

// order is what a program is told to run.
type order struct {
	Dir     string
	Durable bool
}

// running is what it says about it.
type running struct {
	PostgresPID int
	AdminURL    string
	Home, Data  string
	RedisURL    string
	ClientURL   string
	Account     string
	Error       string
}

// program starts a stack, tells about it and stops it at the end of its input.
func program(text string) int {
	var todo order
	if err := json.Unmarshal([]byte(text), &todo); err != nil {
		panic(err)
	}
	var told running
	o := Options{Dir: todo.Dir, Durable: todo.Durable}
	pg, err := StartPostgres(context.Background(), o)
	if err == nil {
		defer pg.Stop()
		told.PostgresPID, told.AdminURL = pg.process.PID(), pg.AdminURL
		told.Home, told.Data = pg.cluster.dir, pg.cluster.data
		told.Account = pg.cluster.account.String()
		var r *Redis
		if r, err = StartRedis(context.Background(), o); err == nil {
			defer r.Stop()
			told.RedisURL, told.ClientURL = r.URL, r.ClientURL
		}
	}
	if err != nil {
		told.Error = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startProgram runs cmd, which is the test binary, as such a program.
func startProgram(t *testing.T, cmd *exec.Cmd, todo order) (told running, end io.Closer) {
	t.Helper()
	// The program may run as somebody who cannot install them.
	needRedis(t)
	needPostgres(t)
	text, err := json.Marshal(todo)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Environ(), asProgram+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, &told); err != nil {
		t.Fatal(err)
	}
	if told.Error != "" {
		t.Fatal(told.Error)
	}
	return told, in
}

// eventually fails the test unless the condition holds within a minute, which
// is much also for a machine that does other things.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := until(t.Context(), time.Minute, func() (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// openDir is a directory that every account may enter: those of testing are
// below one that only their owner may.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(throwawayBase(child.Candidates()[0]), "devstack-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestKilledProgramLeavesNothingRunning kills a program at once with its stack
// and starts another on the same directory without waiting.
func TestKilledProgramLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	told, _ := startProgram(t, cmd, order{Dir: dir, Durable: true})
	tell(t, told.AdminURL, "CREATE TABLE kept AS SELECT 'still here' AS what")
	if err := client(t, &Redis{URL: told.RedisURL, ClientURL: told.ClientURL}).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	pg := startPostgres(t, Options{Dir: dir, Durable: true})
	r := startRedis(t, Options{Dir: dir, Durable: true})
	eventually(t, "the end of the killed program's server", func() bool { return !child.HasArgument(told.PostgresPID, told.Data) })
	if got := ask(t, pg.AdminURL, "SELECT what FROM kept"); got != "still here" {
		t.Errorf("got %q", got)
	}
	if got := client(t, r).Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("Redis kept %q", got)
	}
}

func TestKilledTestsAreSweptUp(t *testing.T) {
	t.Parallel()
	base := openDir(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	told, _ := startProgram(t, cmd, order{Dir: base})
	if filepath.Dir(told.Home) != base || !exists(told.Data) {
		t.Fatalf("the throwaway lies in %s", told.Home)
	}
	first := startPostgres(t, Options{Dir: base})
	if !exists(told.Data) {
		t.Fatal("another's live server was swept away")
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	second := startPostgres(t, Options{Dir: base})
	if exists(told.Home) {
		t.Error("the killed one's directory is still there")
	}
	eventually(t, "the end of its server", func() bool { return !child.HasArgument(told.PostgresPID, told.Data) })
	for _, p := range []*Postgres{first, second} {
		if got := ask(t, p.AdminURL, "SELECT 'alive'"); got != "alive" {
			t.Errorf("got %q", got)
		}
	}
}

// TestAsNobody runs a stack as an account without any rights.
func TestAsNobody(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else; the other tests run as ourselves")
	}
	dir := openDir(t)
	binary := filepath.Join(dir, "test.exe")
	// By another process: a child that a test forks at this moment would hold the
	// file open for writing, and no such file can be run.
	if out, err := exec.CommandContext(t.Context(), "cp", os.Args[0], binary).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(binary, 0o755); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(dir, "nobodys")
	if err := os.Mkdir(base, 0o700); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	if err := os.Chown(base, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprintf("durable=%v", durable), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), binary)
			cmd.Dir = "/"
			cmd.Env = []string{"PATH=/usr/bin:/bin", "TMPDIR=" + base}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			told, end := startProgram(t, cmd, order{Dir: base, Durable: durable})
			if told.Account != "ourselves" {
				t.Errorf("runs as %s", told.Account)
			}
			if got := ask(t, told.AdminURL, "SELECT 'alive'"); got != "alive" {
				t.Errorf("got %q", got)
			}
			_ = end.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if exists(told.Data) != durable {
				t.Errorf("data is there: %v", exists(told.Data))
			}
		})
	}
}
