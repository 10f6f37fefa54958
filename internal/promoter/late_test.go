package promoter

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// Each tenant has its own rate; a pass that is not committed hands out nothing;
// what has passed is forgotten, and how many tenants are known is bounded.
func TestCatchup(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	c := lateStarts{}
	a, b := uuid.New(), uuid.New()
	expect := func(p *places, tenant uuid.UUID, after time.Duration) {
		t.Helper()
		if got := p.next(tenant, now).Sub(now); got != after {
			t.Errorf("starts after %v, want %v", got, after)
		}
	}
	lost := c.begin()
	expect(lost, a, 0)
	expect(lost, a, time.Second)
	made := c.begin()
	expect(made, a, 0)
	expect(made, a, time.Second)
	expect(made, b, 0)
	made.commit(now)
	again := c.begin()
	expect(again, a, 2*time.Second)
	expect(again, b, time.Second)
	again.commit(now)
	if len(c.last) != 2 {
		t.Errorf("%d tenants are known, want 2", len(c.last))
	}
	now = now.Add(1500 * time.Millisecond)
	c.begin().commit(now)
	if len(c.last) != 1 {
		t.Errorf("%d tenants are known after the other's last place has passed, want 1", len(c.last))
	}
	full := c.begin()
	for range maxCatchingUp + 5 {
		full.next(uuid.New(), now)
	}
	full.commit(now)
	if len(c.last) > maxCatchingUp+1 {
		t.Errorf("%d tenants are known", len(c.last))
	}
	expect(c.begin(), uuid.New(), 6*time.Second) // behind the 6 others that found no room
}
