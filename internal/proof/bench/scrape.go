package bench

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The metrics that are read, as package telemetry names them.
const (
	roundTrips = "scheduler_database_round_trips_total"
	executions = "scheduler_executions_total"
	stale      = "scheduler_stale_completions_total"
)

// series are the values of one scrape, by name and labels as they are written.
type series map[string]float64

// scrape reads /metrics of a process.
func scrape(ctx context.Context, address string) (series, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape %s: %s", address, answer.Status)
	}
	found := series{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("scrape %s: %q: %w", address, line, err)
		}
		found[line[:at]] = value
	}
	return found, lines.Err()
}

// sum adds up a metric over all labels, or over those that hold the text.
func (s series) sum(name string, label ...string) (total float64) {
	for key, value := range s {
		own, labels, _ := strings.Cut(key, "{")
		if own == name && (len(label) == 0 || strings.Contains(labels, label[0])) {
			total += value
		}
	}
	return total
}

// by is a metric by the value of its only label.
func (s series) by(name string) map[string]float64 {
	found := map[string]float64{}
	for key, value := range s {
		if own, labels, ok := strings.Cut(key, `{`); ok && own == name {
			_, label, _ := strings.Cut(strings.TrimSuffix(labels, `"}`), `="`)
			found[label] = value
		}
	}
	return found
}

// counters are what the product's processes count, all of them together.
type counters struct {
	executions, roundTrips, stale float64

	trips map[string]float64 // round trips by their statement
}

func (s *stack) counters(ctx context.Context) (c counters, err error) {
	c.trips = map[string]float64{}
	for _, p := range s.running {
		found, err := scrape(ctx, p.metrics)
		if err != nil {
			return counters{}, err
		}
		c.executions += found.sum(executions)
		c.roundTrips += found.sum(roundTrips)
		c.stale += found.sum(stale)
		for statement, n := range found.by(roundTrips) {
			c.trips[statement] += n
		}
	}
	return c, nil
}

func (c counters) since(earlier counters) counters {
	between := counters{
		executions: c.executions - earlier.executions, roundTrips: c.roundTrips - earlier.roundTrips,
		stale: c.stale - earlier.stale, trips: map[string]float64{},
	}
	for statement, n := range c.trips {
		between.trips[statement] = n - earlier.trips[statement]
	}
	return between
}

// leading are the statements with the most round trips, and how many an
// execution.
func (c counters) leading() string {
	names := slices.SortedFunc(maps.Keys(c.trips), func(a, b string) int { return cmp.Compare(c.trips[b], c.trips[a]) })
	var parts []string
	for _, name := range names[:min(len(names), 12)] {
		parts = append(parts, fmt.Sprintf("%s %.3f", name, c.trips[name]/c.executions))
	}
	return strings.Join(parts, ", ")
}
