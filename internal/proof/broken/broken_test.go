package broken_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/proof/broken"
)

// A program that loads the library waits for each fsync, or fails with it, as ordered and from
// the order on. The wait is a lower bound, which no load of the machine can break.
func TestFsyncObeysOrders(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("sync")
	if _, missing := exec.LookPath("cc"); err != nil || missing != nil || runtime.GOOS != "linux" {
		t.Skip("it takes Linux, a C compiler and the program sync")
	}
	dir := t.TempDir()
	library, err := broken.Compile(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	orders, err := broken.NewOrders(filepath.Join(dir, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(orders.Close)
	sync := func() (took time.Duration, said string) {
		cmd := exec.CommandContext(t.Context(), program, filepath.Join(dir, "broken.c"))
		cmd.Env = append(append(os.Environ(), "LC_ALL=C"), orders.Env(library)...)
		began := clock.Start()
		out, _ := cmd.CombinedOutput()
		return began.Elapsed(), string(out)
	}
	if _, said := sync(); said != "" {
		t.Errorf("without an order: %s", said)
	}
	const slow = 300 * time.Millisecond
	if err := orders.Set(slow, false, 0); err != nil {
		t.Fatal(err)
	}
	if took, said := sync(); took < slow || said != "" {
		t.Errorf("an fsync that takes %v more took %v: %s", slow, took, said)
	}
	if err := orders.Set(0, true, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, said := sync(); !strings.Contains(said, "Input/output error") || !orders.Skewed() {
		t.Errorf("an fsync that fails said %q; skewed is %t", said, orders.Skewed())
	}
}
