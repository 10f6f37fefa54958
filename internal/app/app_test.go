package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"slices"
	"testing"

	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/executor/command"
)

// A process that is told to stop while it starts ends well; one whose part
// failed does not, whatever its other parts say of the end that follows.
func TestPartsEndTogether(t *testing.T) {
	t.Parallel()
	defect := errors.New("a defect")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	starting := func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("connect to the database: %w", ctx.Err())
	}
	failing := func(context.Context) error { return defect }
	running := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for _, test := range []struct {
		name  string
		ctx   context.Context
		parts []func(context.Context) error
		want  error
	}{
		{"stopped while it starts", stopped, []func(context.Context) error{starting, running}, nil},
		{"stopped, and a part fails", stopped, []func(context.Context) error{starting, failing}, defect},
		{"a part fails", t.Context(), []func(context.Context) error{failing, running}, defect},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := together(test.ctx, test.parts...); !errors.Is(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// The heap of a process that has just started grows by more than its ballast until garbage
// is collected.
func TestGarbageIsCollectedSeldom(t *testing.T) {
	t.Parallel()
	newProcess(slog.New(slog.DiscardHandler), nil)
	runtime.GC()
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(goal)
	if got, least := goal[0].Value.Uint64(), 2*uint64(len(ballast)); len(ballast) == 0 || got < least {
		t.Errorf("garbage is collected at a heap of %d bytes, with a ballast of %d", got, len(ballast))
	}
}

// A worker may be told to run each of the job types that there are, and makes
// no others then.
func TestJobTypesOfAWorker(t *testing.T) {
	t.Parallel()
	all, err := newProcess(slog.New(slog.DiscardHandler), nil).executors(executorConfig{commands: command.NewChecker(command.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	defer all.close()
	for _, one := range all.Types() {
		c, err := config.Load[config.Worker](func(name string) (string, bool) {
			value, ok := map[string]string{"DATABASE_URL": "postgres://u@h/d", "WORKER_JOB_TYPES": one}[name]
			return value, ok
		})
		if err != nil {
			t.Fatal(err)
		}
		some, err := newProcess(slog.New(slog.DiscardHandler), nil).executors(executorConfig{commands: command.NewChecker(command.Config{})}, c.JobTypes...)
		if err != nil {
			t.Fatal(err)
		}
		defer some.close()
		if got := some.Types(); !slices.Equal(got, []string{one}) {
			t.Errorf("a worker for %s makes %v", one, got)
		}
	}
}
