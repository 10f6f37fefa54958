package job

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Duration is a distance in time that reads ISO 8601 ("PT30S") and Go ("30s")
// notation. It is stored in Go's and shown in ISO 8601. The zero value means
// none.
type Duration time.Duration

// ISO writes the one form of ISO 8601 that callers are shown: days of 24 hours,
// hours, minutes and seconds, each only where there are any. It reads
// as the same duration. It is for durations that ParseInterval allows.
func (d Duration) ISO() string {
	rest := time.Duration(d)
	take := func(unit time.Duration, letter string) string {
		n := rest / unit
		if rest -= n * unit; n == 0 {
			return ""
		}
		return strconv.FormatInt(int64(n), 10) + letter
	}
	text, clock := "P"+take(24*time.Hour, "D"), take(time.Hour, "H")+take(time.Minute, "M")
	if whole, part := rest/time.Second, rest%time.Second/time.Millisecond; rest > 0 {
		clock += strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%03d", whole, part), "0"), ".") + "S"
	}
	if clock != "" {
		text += "T" + clock
	}
	return text
}

// MarshalText writes Go's notation, which stands in stored versions.
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
