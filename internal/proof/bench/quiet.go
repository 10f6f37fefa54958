package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// The quiet tenant's rows and requests.
const (
	quietJobs    = 30
	quietHistory = 2000
	readsASecond = 10
	patience     = 10 * time.Second // of its client
)

// outcome is what the quiet tenant got.
type outcome struct {
	starts, reads []time.Duration // sorted
	failed        []string        // what was not answered with success
	notes         []string
	others        float64
}

// withinLimits says whether the bars were.
func (o outcome) withinLimits() bool {
	return len(o.failed) == 0 && quantile(o.starts, 99) <= maxStartLag && quantile(o.reads, 99) <= maxReadLatency
}

// line is the outcome's row of the table.
func (o outcome) line(what string) string {
	spread := func(all []time.Duration) string {
		return fmt.Sprintf("%d | %s / %s / %s", len(all), millis(quantile(all, 50)), millis(quantile(all, 99)), millis(quantile(all, 100)))
	}
	verdict := "yes"
	if !o.withinLimits() {
		verdict = "**no**"
	}
	notes := o.notes
	if len(o.failed) > 0 {
		notes = append([]string{o.failed[0]}, notes...)
	}
	return fmt.Sprintf("| %s | %s | %s | %d | %s | %s | %s |", what, spread(o.starts), spread(o.reads), len(o.failed), verdict,
		strings.ReplaceAll(strings.Join(notes, "; "), "|", "/"), optional("%.0f %%", 100*o.others))
}

// quietState makes what the quiet tenant has: some jobs, a history, and a job
// that is due each second.
func (a *arena) quietState(ctx context.Context) error {
	tick, err := a.makeJob(ctx, a.quiet, `{"name":"tick","cronExpression":"* * * * * *","overlapPolicy":"allow",`+noop+`}`)
	if err != nil {
		return err
	}
	a.tick = tick
	for n := range quietJobs {
		idle := fmt.Sprintf(`{"name":"idle %d","cronExpression":"0 0 2 1 1 *",%s}`, n, noop)
		if _, err := a.makeJob(ctx, a.quiet, idle); err != nil {
			return err
		}
	}
	return a.state.history(ctx, tick, quietHistory)
}

// noop is the part of a job's definition that says what it does: nothing.
const noop = `"jobType":"function","config":{"modulePath":"builtin","functionName":"noop"}`

// sleeping is the same of a job that takes so long.
func sleeping(d time.Duration) string {
	return fmt.Sprintf(`"jobType":"function","config":{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":%d}}`, d.Milliseconds())
}

// makeJob makes a job of a tenant by the API.
func (a *arena) makeJob(ctx context.Context, who resident, body string) (uuid.UUID, error) {
	var made struct{ ID uuid.UUID }
	_, err := a.request(ctx, call{http.MethodPost, a.url + "/jobs", body, who.token}, &made)
	return made.ID, err
}

// request sends a request and reads its answer into a value. An answer that is no
// success is an error.
func (a *arena) request(ctx context.Context, c call, into any) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, c.method, c.url, strings.NewReader(c.body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if c.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := (&http.Client{Timeout: 30 * time.Second}).Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		return answer.StatusCode, err
	}
	if answer.StatusCode/100 != 2 {
		return answer.StatusCode, fmt.Errorf("%s %s: %s: %.300s", c.method, strings.TrimPrefix(c.url, a.url), answer.Status, said)
	}
	if into == nil || len(said) == 0 {
		return answer.StatusCode, nil
	}
	return answer.StatusCode, json.Unmarshal(said, into)
}

// quickly is a client that does not wait for long.
func quickly() *http.Client { return &http.Client{Timeout: time.Second} }

// quietTenant is what was seen so far of the quiet tenant's requests.
type quietTenant struct {
	from, to time.Time // what became due in between counts

	mu     sync.Mutex
	reads  []time.Duration
	asked  []time.Time // when runs were asked for
	runs   []uuid.UUID // of these
	failed []string
}

// measureQuietTenant is the quiet tenant for so long from a scheduled time on: it reads and
// triggers at fixed moments, whether or not it was answered before. It returns
// when all was answered and what became due last had its time to start.
func (a *arena) measureQuietTenant(ctx context.Context, from time.Time, lasts time.Duration) (*quietTenant, error) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 256, MaxConnsPerHost: 256}}
	defer client.CloseIdleConnections()
	paths := []string{"/jobs?limit=20", "/jobs/" + a.tick.String(), "/executions?limit=20"}
	w := &quietTenant{from: from.Truncate(time.Second).Add(time.Second), to: from.Add(lasts)}
	var sent sync.WaitGroup
	for n := range int(lasts/time.Second) * readsASecond {
		at := from.Add(time.Duration(n) * time.Second / readsASecond)
		if err := until(ctx, at); err != nil {
			return w, err
		}
		sent.Go(func() {
			_, err := send(ctx, client, call{http.MethodGet, a.url + paths[n%len(paths)], "", a.quiet.token})
			w.read(clock.Now().Sub(at), err)
		})
		if n%readsASecond == readsASecond/2 {
			sent.Go(func() { a.trigger(ctx, w, at) })
		}
	}
	sent.Wait()
	return w, until(ctx, w.to.Add(maxStartLag))
}

func (w *quietTenant) read(took time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads = append(w.reads, took)
	if err != nil {
		w.failed = append(w.failed, oneLine(err))
	}
}

// trigger asks for a run.
func (a *arena) trigger(ctx context.Context, w *quietTenant, at time.Time) {
	var made struct{ ID uuid.UUID }
	_, err := a.request(ctx, call{http.MethodPost, a.url + "/jobs/" + a.tick.String() + "/trigger", "{}", a.quiet.token}, &made)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.failed = append(w.failed, oneLine(err))
		return
	}
	w.asked, w.runs = append(w.asked, at), append(w.runs, made.ID)
}

// judge reads when the runs started. One that has not started is as late as it
// is now.
func (a *arena) judge(ctx context.Context, w *quietTenant) (outcome, error) {
	due, err := a.state.startsOf(ctx, a.tick, w.from, w.to)
	if err != nil {
		return outcome{}, err
	}
	asked, err := a.state.startsSince(ctx, w.runs, w.asked)
	if err != nil {
		return outcome{}, err
	}
	if err := a.explain(ctx, w, due, asked); err != nil {
		return outcome{}, err
	}
	o := outcome{starts: slices.Concat(due, asked), reads: w.reads, failed: w.failed}
	if !a.lateSince.IsZero() {
		late, err := a.state.startsOfName(ctx, a.quiet.TenantID, a.noisy.TenantID, lateName, a.lateSince)
		if err != nil {
			return outcome{}, err
		}
		o.starts = append(o.starts, late...)
	}
	slices.Sort(o.starts)
	slices.Sort(o.reads)
	return o, nil
}

// explain notes which runs started too late, and how late their rows were made: the rest
// of the time they waited for a worker.
func (a *arena) explain(ctx context.Context, w *quietTenant, due, asked []time.Duration) error {
	promoted, err := a.state.promotionsOf(ctx, a.tick, w.from, w.to)
	if err != nil {
		return err
	}
	stored, err := a.state.rowsSince(ctx, w.runs, w.asked)
	if err != nil {
		return err
	}
	a.noteLate("due", due, promoted)
	a.noteLate("requested", asked, stored)
	return nil
}

// noteLate notes which runs of one kind started too late, and how late the latest of their
// rows was made. Each second has one run of each kind.
func (a *arena) noteLate(kind string, starts, made []time.Duration) {
	n, first, last, latest := 0, 0, 0, time.Duration(0)
	for i, d := range starts {
		if d <= maxStartLag {
			continue
		}
		if n++; n == 1 {
			first = i
		}
		last, latest = i, max(latest, made[i])
	}
	if n > 0 {
		a.note("%d %s runs too late, those of second %d to %d; the latest of their rows was made after %s ms", n, kind, first+1, last+1, millis(latest))
	}
}
