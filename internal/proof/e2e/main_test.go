package e2e_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait for processes most of the time, so that more of them than there
	// are processors take less time together.
	if err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	code := pgtest.Main(m)
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}
	os.Exit(code)
}
