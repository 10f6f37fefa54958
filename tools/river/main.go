// Command river drains no-op jobs with River, for `go run ./cmd/bench -only river`, which
// starts it on a database of its own beside the product's. It is a module of its own, so that
// the product does not depend on River.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	url := flag.String("database", "", "address of an empty database")
	jobs := flag.Int("jobs", 20_000, "jobs to drain")
	slots := flag.Int("slots", 1000, "jobs that run at once")
	poll := flag.Duration("poll", 20*time.Millisecond, "distance between two polls; River's default is 1 s")
	flag.Parse()
	perSecond, err := drain(ctx, *url, *jobs, *slots, *poll)
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
	fmt.Printf("%.1f\n", perSecond)
}

// noop is a job that does nothing.
type noop struct {
	N int `json:"n"`
}

// Kind names the job's type.
func (noop) Kind() string { return "noop" }

// worker counts the jobs down.
type worker struct {
	river.WorkerDefaults[noop]

	left *atomic.Int64
	done chan<- struct{}
}

// Work implements river.Worker.
func (w *worker) Work(context.Context, *river.Job[noop]) error {
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
	return nil
}

// drain inserts jobs, works them off, and returns how many a second, from the start of the
// client to the last recorded outcome.
func drain(ctx context.Context, url string, jobs, slots int, poll time.Duration) (perSecond float64, err error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return 0, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return 0, err
	}
	left, done, workers := &atomic.Int64{}, make(chan struct{}), river.NewWorkers()
	left.Store(int64(jobs))
	river.AddWorker(workers, &worker{left: left, done: done})
	client, err := river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}}, Workers: workers,
		FetchCooldown: poll, FetchPollInterval: poll,
	})
	if err != nil {
		return 0, err
	}
	if err := insert(ctx, client, jobs); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	select {
	case <-done:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	err = client.Stop(context.WithoutCancel(ctx)) // which records the outcomes that are left
	took := time.Since(began)
	var recorded int
	err = errors.Join(err, pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'").Scan(&recorded))
	if err == nil && recorded != jobs {
		err = fmt.Errorf("%d of %d jobs are recorded as completed", recorded, jobs)
	}
	return float64(jobs) / took.Seconds(), err
}

// insert makes the jobs in batches.
func insert(ctx context.Context, client *river.Client[pgx.Tx], jobs int) error {
	const batch = 1000
	for n := 0; n < jobs; n += batch {
		var some []river.InsertManyParams
		for i := n; i < min(n+batch, jobs); i++ {
			some = append(some, river.InsertManyParams{Args: noop{N: i}})
		}
		if _, err := client.InsertManyFast(ctx, some); err != nil {
			return err
		}
	}
	return nil
}
