// Command river drains no-op jobs with River, or runs a number of them at the beginning of each second, for
// `go run ./cmd/bench -only river`, which starts it on a database of its own beside the
// product's. It is a module of its own, so that the product does not depend on River.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
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
	seconds := flag.Int("seconds", 0, "how many seconds -jobs are due at the beginning of each, in place of the drain; two more come before and do not count. It prints how many jobs were recorded a second, and how late their handlers started (p50, p99 and max in µs)")
	flag.Parse()
	said, err := "", error(nil)
	if *seconds > 0 {
		said, err = eachSecond(ctx, *url, *jobs, *seconds, *slots, *poll)
	} else {
		said, err = drain(ctx, *url, *jobs, *slots, *poll)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
	fmt.Println(said)
}

// noop is a job that does nothing.
type noop struct {
	N int `json:"n"`
}

// Kind names the job's type.
func (noop) Kind() string { return "noop" }

// worker counts the jobs down, and notes how late each started.
type worker struct {
	river.WorkerDefaults[noop]

	left *atomic.Int64
	done chan struct{}
	late []atomic.Int64 // of each job, in µs
}

// Work implements river.Worker.
func (w *worker) Work(_ context.Context, job *river.Job[noop]) error {
	w.late[job.Args.N].Store(time.Since(job.ScheduledAt).Microseconds())
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
	return nil
}

// run is River on a database, with its tables made.
type run struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	worker *worker
	jobs   int
}

func newRun(ctx context.Context, url string, jobs, slots int, poll time.Duration) (*run, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	r := &run{pool: pool, jobs: jobs, worker: &worker{left: &atomic.Int64{}, done: make(chan struct{}), late: make([]atomic.Int64, jobs)}}
	r.worker.left.Store(int64(jobs))
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		workers := river.NewWorkers()
		river.AddWorker(workers, r.worker)
		r.client, err = river.NewClient(driver, &river.Config{
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}}, Workers: workers,
			FetchCooldown: poll, FetchPollInterval: poll,
		})
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return r, nil
}

// work starts the client, waits until all jobs ran and are recorded, and says how long that took.
func (r *run) work(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	if err := r.client.Start(ctx); err != nil {
		return 0, err
	}
	select {
	case <-r.worker.done:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	err = r.client.Stop(context.WithoutCancel(ctx)) // which records the outcomes that are left
	took = time.Since(began)
	var recorded int
	err = errors.Join(err, r.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed' AND attempt = 1").Scan(&recorded))
	if err == nil && recorded != r.jobs {
		err = fmt.Errorf("%d of %d jobs are recorded as completed at the first attempt", recorded, r.jobs)
	}
	return took, err
}

// drain inserts jobs, works them off, and says how many a second, from the start of the
// client to the last recorded outcome.
func drain(ctx context.Context, url string, jobs, slots int, poll time.Duration) (perSecond string, err error) {
	r, err := newRun(ctx, url, jobs, slots, poll)
	if err != nil {
		return "", err
	}
	defer r.pool.Close()
	if err := r.insert(ctx, func(int) time.Time { return time.Time{} }); err != nil {
		return "", err
	}
	took, err := r.work(ctx)
	return fmt.Sprintf("%.1f", float64(jobs)/took.Seconds()), err
}

const (
	// lead is how long before the first of them jobs are inserted. River's leader makes jobs
	// available up to 5 s before they are due, and looks for them every 5 s.
	lead = 12 * time.Second
	// warmUp is how many seconds do not count.
	warmUp = 2
)

// eachSecond inserts the jobs of some seconds. Those of one second are due at its beginning. It
// says how many a second were recorded as completed, and how late their handlers started.
func eachSecond(ctx context.Context, url string, each, seconds, slots int, poll time.Duration) (said string, err error) {
	r, err := newRun(ctx, url, each*(warmUp+seconds), slots, poll)
	if err != nil {
		return "", err
	}
	defer r.pool.Close()
	first := time.Now().Add(lead).Truncate(time.Second)
	if err := r.insert(ctx, func(n int) time.Time { return first.Add(time.Duration(n/each) * time.Second) }); err != nil {
		return "", err
	}
	if left := time.Until(first); left < lead/2 {
		return "", fmt.Errorf("the first jobs are due in %v already, before River's leader sees them", left)
	}
	if _, err := r.work(ctx); err != nil {
		return "", err
	}
	var recorded int
	begin := first.Add(warmUp * time.Second)
	err = r.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE finalized_at >= $1 AND finalized_at < $2", begin, begin.Add(time.Duration(seconds)*time.Second)).Scan(&recorded)
	if err != nil {
		return "", err
	}
	var late []int64
	for n := warmUp * each; n < len(r.worker.late); n++ {
		late = append(late, r.worker.late[n].Load())
	}
	slices.Sort(late)
	at := func(percent int) int64 { return late[max(0, (len(late)*percent+99)/100-1)] }
	return fmt.Sprintf("%.1f %d %d %d", float64(recorded)/float64(seconds), at(50), at(99), at(100)), nil
}

// insert makes the jobs in batches, each due at its time, or now where that is zero.
func (r *run) insert(ctx context.Context, due func(n int) time.Time) error {
	const batch = 1000
	for n := 0; n < r.jobs; n += batch {
		var some []river.InsertManyParams
		for i := n; i < min(n+batch, r.jobs); i++ {
			one := river.InsertManyParams{Args: noop{N: i}}
			if at := due(i); !at.IsZero() {
				one.InsertOpts = &river.InsertOpts{ScheduledAt: at}
			}
			some = append(some, one)
		}
		if _, err := r.client.InsertManyFast(ctx, some); err != nil {
			return err
		}
	}
	return nil
}
