package e2e_test

import (
	"os"
	"testing"

	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}
	os.Exit(code)
}
