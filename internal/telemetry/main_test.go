package telemetry

import (
	"os"
	"testing"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }
