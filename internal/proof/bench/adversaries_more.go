package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// moreAdversaries are adversaries that no report has named yet: what else a tenant with
// an ordinary token can do.
func moreAdversaries() []adversary {
	return []adversary{
		{"million", "1,000,000 waiting of one tenant", prepareMillion, doNothing, noteCompleted},
		{"slots", "2,000 waiting runs of 20 s and the highest priority", prepareSlots, doNothing, noteCompleted},
		{"backfills", "backfills of 100 jobs, 6,000 a minute each", prepareBackfills, startBackfills, noteCompleted},
		{"writers", "50 clients that create and change jobs of 100 kB", nil, greedyWriters, nil},
		{"statistics", "50 clients of statistics, schedules and validations over 300,000 executions", prepareStatistics, greedyStatistics, nil},
		{"snapshot", "1,000 per-second jobs while somebody keeps an old snapshot", prepareSnapshot, underSnapshot, noteCompleted},
		{"results", "100 per-second jobs that answer 200 kB", prepareResults, doNothing, noteCompleted},
		{"cancels", "10 clients that cancel 100,000 waiting runs in bulk", prepareCancels, greedyCancels, noteCompleted},
	}
}

func prepareMillion(ctx context.Context, a *arena) error {
	id, err := a.makeJob(ctx, a.noisy, `{"name":"million","trigger":"manual","overlapPolicy":"allow",`+noop+`}`)
	if err != nil {
		return err
	}
	return a.state.waiting(ctx, id, 1_000_000, "")
}

func prepareSlots(ctx context.Context, a *arena) error {
	id, err := a.makeJob(ctx, a.noisy, `{"name":"slots","trigger":"manual","overlapPolicy":"allow","priority":9,`+sleeping(20*time.Second)+`}`)
	if err != nil {
		return err
	}
	return a.state.waiting(ctx, id, 2000, "")
}

func prepareBackfills(ctx context.Context, a *arena) error {
	for n := range 100 {
		body := fmt.Sprintf(`{"name":"backfill %d","cronExpression":"*/10 * * * * *","overlapPolicy":"allow",%s}`, n, noop)
		id, err := a.makeJob(ctx, a.noisy, body)
		if err != nil {
			return err
		}
		a.aims = append(a.aims, id)
	}
	return nil
}

func startBackfills(ctx context.Context, a *arena) error {
	to := clock.Now().Add(-time.Hour)
	body := fmt.Sprintf(`{"from":%q,"to":%q,"ratePerMinute":6000}`, to.Add(-27*time.Hour).Format(time.RFC3339), to.Format(time.RFC3339))
	begun := 0
	for _, id := range a.aims {
		if _, err := a.request(ctx, call{http.MethodPost, a.url + "/jobs/" + id.String() + "/backfills", body, a.noisy.token}, nil); err != nil {
			a.note("%s", oneLine(err))
			break
		}
		begun++
	}
	a.note("%d backfills begun", begun)
	return doNothing(ctx, a)
}

func greedyWriters(ctx context.Context, a *arena) error {
	text := strings.Repeat("x", 100_000)
	body := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"cronExpression":"0 0 2 1 1 *","jobType":"function","config":{"modulePath":"builtin","functionName":"noop","parameters":{"text":"%s%s"}}}`,
			name, uuid.NewString(), text)
	}
	id, err := a.makeJob(ctx, a.noisy, body("changed"))
	if err != nil {
		return err
	}
	return a.clients(ctx, 50, func(n int) call {
		if n%2 == 0 {
			return call{http.MethodPost, a.url + "/jobs", body("created"), a.noisy.token}
		}
		return call{http.MethodPut, a.url + "/jobs/" + id.String(), body("changed"), a.noisy.token}
	})
}

func prepareStatistics(ctx context.Context, a *arena) error {
	id, err := a.makeJob(ctx, a.noisy, `{"name":"listed","cronExpression":"*/7 * * * * *","startDate":"2030-01-01T00:00:00Z",`+noop+`}`)
	if err != nil {
		return err
	}
	a.aims = append(a.aims, id)
	if err := a.state.copies(ctx, id, 2999); err != nil {
		return err
	}
	return a.state.history(ctx, id, 300_000)
}

func greedyStatistics(ctx context.Context, a *arena) error {
	check := secondly("checked", "")
	return a.clients(ctx, 50, func(n int) call {
		switch n % 4 {
		case 0:
			return call{http.MethodGet, a.url + month31() + "&groupBy=job", "", a.noisy.viewer}
		case 1:
			return call{http.MethodGet, a.url + month31() + "&groupBy=day&timezone=Europe/Berlin", "", a.noisy.viewer}
		case 2:
			return call{http.MethodGet, a.url + "/jobs/" + a.aims[0].String() + "/schedule", "", a.noisy.viewer}
		default:
			return call{http.MethodPost, a.url + "/jobs/validate", check, a.noisy.token}
		}
	})
}

func prepareSnapshot(ctx context.Context, a *arena) error {
	return a.many(ctx, 1000, secondly("busy", ""))
}

// underSnapshot keeps dead rows from being removed, as a dump of the database
// does.
func underSnapshot(ctx context.Context, a *arena) error {
	old, err := newSetup(ctx, a.postgres.URL(database("snapshot"), "postgres"))
	if err != nil {
		return err
	}
	return errors.Join(old.keepSnapshot(ctx), doNothing(ctx, a), old.close(context.WithoutCancel(ctx)))
}

func prepareResults(ctx context.Context, a *arena) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	text := []byte(strings.Repeat("0123456789abcdef", 200_000/16))
	target := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(text)
	})}
	go func() { _ = target.Serve(listener) }() // ends by Close
	a.ends = append(a.ends, target.Close)
	return a.many(ctx, 100, fmt.Sprintf(`{"name":"results","cronExpression":"* * * * * *","overlapPolicy":"allow","jobType":"http","config":{"url":"http://%s/","method":"GET"}}`, listener.Addr()))
}

func prepareCancels(ctx context.Context, a *arena) error {
	id, err := a.makeJob(ctx, a.noisy, `{"name":"cancelled","trigger":"manual","overlapPolicy":"allow",`+sleeping(time.Second)+`}`)
	if err != nil {
		return err
	}
	return a.state.waiting(ctx, id, 100_000, "")
}

func greedyCancels(ctx context.Context, a *arena) error {
	return a.clients(ctx, 10, func(int) call {
		return call{http.MethodPost, a.url + "/executions/bulk/cancel", `{"all":true}`, a.noisy.token}
	})
}

func prepareKey(ctx context.Context, a *arena) error {
	id, err := a.makeJob(ctx, a.noisy, `{"name":"keyed","trigger":"manual","overlapPolicy":"allow","concurrencyKey":"one",`+noop+`}`)
	if err != nil {
		return err
	}
	return a.state.waiting(ctx, id, 100_000, "one")
}

func prepareKeys(ctx context.Context, a *arena) error {
	id, err := a.makeJob(ctx, a.noisy, `{"name":"keys","trigger":"manual","overlapPolicy":"allow",`+noop+`}`)
	a.aims = []uuid.UUID{id}
	if err != nil {
		return err
	}
	return a.state.expiredKeys(ctx, a.noisy.TenantID, 250_000)
}

// keyedTriggers asks a hundred times a second, each time with a new key.
func keyedTriggers(ctx context.Context, a *arena) error {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100, MaxConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	var sent sync.WaitGroup
	defer sent.Wait()
	for n, begin := 0, clock.Now(); ; n++ {
		if until(ctx, begin.Add(time.Duration(n)*10*time.Millisecond)) != nil {
			return nil
		}
		sent.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/jobs/"+a.aims[0].String()+"/trigger", strings.NewReader("{}"))
			if err != nil {
				return
			}
			r.Header = http.Header{"Authorization": {"Bearer " + a.noisy.token}, "Content-Type": {"application/json"}, "Idempotency-Key": {uuid.NewString()}}
			if answer, err := client.Do(r); err == nil {
				_ = answer.Body.Close()
			}
		})
	}
}

func noteExpiredKeys(ctx context.Context, a *arena) error {
	n, err := a.state.keysExpired(ctx)
	a.note("%d expired keys left", n)
	return errors.Join(err, noteCompleted(ctx, a))
}
