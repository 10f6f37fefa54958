package maintenance

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// CountPage counts the next rows only, as where a pass ends after them.
func (m *Maintainer) CountPage(ctx context.Context) error {
	m.counting.restart()
	_, err := m.countPage(ctx)
	return err
}

// CountRest is how long the counting rests since it ended.
func (m *Maintainer) CountRest() time.Duration { return m.counting.rest }

// RestCounting lets it rest for so long.
func (m *Maintainer) RestCounting(rest time.Duration) { m.counting.rest = rest }

// AnyID is where the samples of a process begin.
func AnyID(now time.Time) uuid.UUID { return anyID(now) }
