package chaos

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// A process that found no store is started again after a second. One that was ended
// meanwhile is not: nobody would end it, and the run would wait for it without end.
func TestEndedMemberStaysAway(t *testing.T) {
	t.Parallel()
	m := &member{role: "promoter", name: "p", program: []string{"false"}, logs: t.TempDir()}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // or it would be started for ever
	defer cancel()
	if err := m.start(ctx); err != nil {
		t.Fatal(err)
	}
	<-m.gone
	m.end(syscall.SIGKILL)
	m.watchers.Wait()
	if m.starts != 1 || m.process != nil {
		t.Errorf("it was started %d times, and runs: %t", m.starts, m.process != nil)
	}
}
