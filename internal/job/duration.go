package job

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Duration is a distance in time that reads ISO 8601 ("PT30S") and Go ("30s")
// notation and is written in Go's. The zero value means none.
type Duration time.Duration

// MarshalText writes Go's notation.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalJSON reads a text in either notation.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("a duration is a text: %w", err)
	}
	if text == "" {
		*d = 0
		return nil
	}
	parsed, err := schedule.ParseInterval(text)
	if err != nil {
		return fmt.Errorf("duration %q: %w", text, err)
	}
	*d = Duration(parsed)
	return nil
}
