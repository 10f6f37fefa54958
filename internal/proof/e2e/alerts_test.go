package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/postgres/refusal"
)

// drill is an installation in which one thing after another goes wrong, and the
// Prometheus that watches it.
type drill struct {
	*installation

	prometheus *prometheus
	relay      *relay // before Redis
	worker     *process
	good       uuid.UUID // a job that succeeds
	bad        uuid.UUID // a job that fails
}

func newDrill(t *testing.T) *drill {
	t.Helper()
	s := stores(t, hinted)
	d := &drill{installation: s, prometheus: newPrometheus(s), relay: &relay{}}
	at, err := url.Parse(s.redis.URL)
	if err != nil {
		t.Fatal(err)
	}
	network, address := "tcp", at.Host
	if at.Host == "" {
		network, address = "unix", at.Path
	}
	s.env = []string{"REDIS_URL=redis://" + d.relay.listen(t, network, address)}
	s.process("migrate", "DATABASE_OWNER_URL="+s.database.OwnerURL).wait()
	s.url = d.api("api")
	s.process("promoter", d.prometheus.watch("promoter")...)
	d.prometheus.watch("worker")
	d.startWorker()
	s.client = s.clientOf(s.tenant, identity.Admin)
	s.eventually("the API is ready", func() bool { return s.call(t, http.MethodGet, "/health/ready", "", "") == http.StatusOK })
	d.good = s.create(sleepJob(t, "good", 0)).ID
	// The target answers 404, which opens no circuit breaker.
	never, once := 0, api.JobSpec{Name: "bad", JobType: api.JobTypeHTTP, Config: config(t, map[string]any{"url": d.url + "/nothing"})}
	once.RetryConfig = &api.RetryConfig{MaxRetries: &never}
	d.bad = s.create(once).ID
	d.prometheus.round()
	return d
}

// api starts an API process that is watched, and returns its address.
func (d *drill) api(instance string, env ...string) (url string) {
	addr := freeAddr(d.t)
	env = append(append(env, d.prometheus.watch(instance)...),
		"HTTP_ADDR="+addr, "JWT_SECRET="+key, "TENANT_AUTO_CREATE=true", "EGRESS_ALLOW=127.0.0.0/8", "TENANT_REQUESTS_PER_SECOND=1000000")
	d.process("api", env...)
	return "http://" + addr
}

func (d *drill) startWorker() {
	d.worker = d.process("worker", append(d.prometheus.env("worker"), "EGRESS_ALLOW=127.0.0.0/8", "SCHEDULER_DRAIN_TIMEOUT_MS=2000",
		"SCHEDULER_HEARTBEAT_MS=500", "SCHEDULER_FENCE_MS=3000", "SCHEDULER_LEASE_TTL_MS=4000")...)
}

// run triggers runs of a job and waits until the last has finished.
func (d *drill) run(job uuid.UUID, n int) {
	d.t.Helper()
	var last api.Execution
	for range n {
		last = d.trigger(job)
	}
	d.eventually("the run has finished", func() bool {
		status := d.execution(last.ID).Status
		return status == api.ExecutionStatusCompleted || status == api.ExecutionStatusFailed
	})
}

// shows waits until a metric has grown beyond a number.
func (d *drill) shows(metric, label string, beyond float64) {
	d.t.Helper()
	d.eventually(fmt.Sprintf("%s{%s} is more than %v", metric, label, beyond), func() bool { return d.prometheus.sum(metric, label) > beyond })
}

// TestAlertsFireAndClear breaks an installation of separate processes in every way that
// an alert rule is about, and mends it. The rules are evaluated by Prometheus' own
// engine over what the processes expose; see prometheus for the time.
func TestAlertsFireAndClear(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.failures()
	d.refusals()
	d.deadWorker()
	d.shows("scheduler_dead_letters", "", 10_000)
	d.prometheus.fires("SchedulerDeadLetters", nil)
	d.exec("DELETE FROM dead_letters WHERE fingerprint = '0123456789abcdef'")
	d.lateRuns()
	d.lostLeases()
	d.wrongClock()
	d.emptyRedis()
	d.slowRedis()
	d.memory()
	d.eventually("the dead letters are counted again", func() bool { return d.prometheus.sum("scheduler_dead_letters", "") < 10_000 })
	for _, alert := range []string{"SchedulerWorkersLost", "SchedulerFailedForGood", "SchedulerDeadLetters"} {
		d.prometheus.clears(alert, nil)
	}
	d.prometheus.triedAll(t)
}

func (d *drill) failures() {
	p := d.prometheus
	burning := d.objective()
	d.exec(`INSERT INTO dead_letters (execution_id, tenant_id, job_id, error_type, error_message, fingerprint, failed_at, scheduled_at)
		SELECT gen_random_uuid(), $1, $2, 'USER_ERROR', 'no', '0123456789abcdef', now(), now() FROM generate_series(1, 10001)`, d.tenant, d.bad) // they are counted each minute
	p.fires("SchedulerErrorRate", func(int) { d.run(d.bad, 1) })
	p.fires("SchedulerFailedForGood", func(int) { d.run(d.bad, 10) })
	d.shows("scheduler_objectives", `state="fast_burn"`, 0)
	p.fires("SchedulerObjectiveBurns", nil)
	if answer, err := d.client.DeleteObjectiveWithResponse(d.t.Context(), burning); err != nil || answer.StatusCode() != http.StatusNoContent {
		d.t.Fatalf("delete an objective: %v", err)
	}
	p.clears("SchedulerErrorRate", func(int) { d.run(d.good, 2) })
	d.eventually("no objective burns", func() bool { return p.sum("scheduler_objectives", "") == 0 })
	p.clears("SchedulerObjectiveBurns", nil)
}

// objective makes one that the job which fails does not meet.
func (d *drill) objective() uuid.UUID {
	d.t.Helper()
	answer, err := d.client.CreateObjectiveWithResponse(d.t.Context(), api.ObjectiveSpec{Name: "it succeeds", Kind: api.ObjectiveKindSuccess, JobID: new(d.bad), Target: 0.99})
	if err != nil || answer.JSON201 == nil {
		d.t.Fatalf("create an objective: %v", err)
	}
	return answer.JSON201.ID
}

// refusals are a job and an execution that the database refuses to store.
func (d *drill) refusals() {
	p := d.prometheus
	spec := sleepJob(d.t, "refused", 0)
	spec.CronExpression = new("* * * * * *")
	job := d.create(spec).ID
	refused := refusal.Refusal{Name: "drill", Table: "active_executions", Rows: fmt.Sprintf("NEW.job_id = '%s'", job), SQLSTATE: "23514"}
	p.round()
	d.exec(refused.Begin())
	d.shows("scheduler_parked_jobs_total", "refused", 0)
	p.fires("SchedulerJobsParked", nil)
	d.exec(refused.End())
	p.clears("SchedulerJobsParked", nil)

	refused = refusal.Refusal{Name: "drill", Table: "job_executions", Rows: fmt.Sprintf("NEW.job_id = '%s'", d.good), SQLSTATE: "23514"}
	d.exec(refused.Begin())
	d.trigger(d.good)
	d.shows("scheduler_parked_executions", "", 0)
	p.fires("SchedulerExecutionsParked", nil)
	d.exec(refused.End())
	d.exec("UPDATE active_executions SET sweep_at = now() WHERE parked_at IS NOT NULL")
	d.eventually("it is stored", func() bool { return p.sum("scheduler_parked_executions", "") == 0 })
	p.clears("SchedulerExecutionsParked", nil)
}

// deadWorker is a worker that dies with what it runs, and the backlog without it.
func (d *drill) deadWorker() {
	p := d.prometheus
	long := d.trigger(d.create(sleepJob(d.t, "long", time.Hour)).ID)
	d.eventually("it runs", func() bool { return d.execution(long.ID).Status == api.ExecutionStatusRunning })
	p.round()
	d.worker.kill()
	p.fires("SchedulerProcessAway", nil)
	d.shows("scheduler_reclaimed_total", "worker_dead", 0)
	p.fires("SchedulerWorkersLost", nil)

	d.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts,
			timeout_ms, pooled, available_at, sweep_at)
		SELECT gen_random_uuid(), tenant_id, id, version, now() - i * interval '1 ms', 'manual', job_type, priority, 1, 10000, true, now(), 'infinity'
		FROM scheduled_jobs, generate_series(1, 5001) i WHERE id = $1`, d.good)
	d.shows("scheduler_backlog_executions", `state="waiting"`, 5000)
	p.fires("SchedulerBacklog", nil)
	d.exec("DELETE FROM active_executions")
	d.eventually("nothing waits", func() bool { return p.sum("scheduler_backlog_executions", `state="waiting"`) == 0 })
	p.clears("SchedulerBacklog", nil)
	d.startWorker()
	d.eventually("the worker is back", func() bool { return p.sum("scheduler_build_info", "") == 3 })
	p.clears("SchedulerProcessAway", nil)
}

// lateRuns are runs that wait for a worker that stands still now and then.
func (d *drill) lateRuns() {
	d.run(d.good, 1)
	each := func(round int) {
		if round%8 != 0 {
			return
		}
		d.signal(syscall.SIGSTOP)
		late := d.trigger(d.good)
		d.eventually("it is late", func() bool {
			return d.now().Sub(d.timeOf("SELECT available_at FROM active_executions WHERE id = $1", late.ID)) > 1200*time.Millisecond
		})
		d.signal(syscall.SIGCONT)
		d.eventually("it has run", func() bool { return d.execution(late.ID).Status == api.ExecutionStatusCompleted })
	}
	d.prometheus.fires("SchedulerLate", each)
	d.prometheus.clears("SchedulerLate", nil)
}

func (d *drill) signal(what syscall.Signal) {
	d.t.Helper()
	if err := d.worker.cmd.Process.Signal(what); err != nil {
		d.t.Fatal(err)
	}
}

// lostLeases has somebody hold the table of leases.
func (d *drill) lostLeases() {
	conn, err := pgx.Connect(d.t.Context(), d.database.AdminURL)
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close(d.t.Context()) // and gives the table back
	if _, err := conn.Exec(d.t.Context(), "BEGIN; LOCK TABLE scheduler_locks"); err != nil {
		d.t.Fatal(err)
	}
	d.prometheus.fires("SchedulerLockTimeouts", func(round int) {
		if round%4 == 1 {
			before := d.prometheus.sum("scheduler_lock_timeouts_total", "")
			d.call(d.t, http.MethodGet, "/health", "", "")
			d.shows("scheduler_lock_timeouts_total", "", before)
		}
	})
	if _, err := conn.Exec(d.t.Context(), "ROLLBACK"); err != nil {
		d.t.Fatal(err)
	}
	d.prometheus.clears("SchedulerLockTimeouts", nil)
}

// wrongClock is a database whose clock is wrong for one promoter.
func (d *drill) wrongClock() {
	const clock = "CREATE OR REPLACE FUNCTION wrong.now() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT pg_catalog.now() + interval '%d minutes' $$"
	d.exec("CREATE SCHEMA wrong; GRANT USAGE ON SCHEMA wrong TO PUBLIC; " + fmt.Sprintf(clock, 2))
	at, err := url.Parse(d.database.URL)
	if err != nil {
		d.t.Fatal(err)
	}
	query := at.Query()
	query.Set("search_path", "wrong,pg_catalog,public")
	at.RawQuery = query.Encode()
	second := d.process("promoter", append(d.prometheus.watch("second promoter"), "DATABASE_URL="+at.String())...)
	d.shows("scheduler_promotion_halted", "", 0)
	d.prometheus.fires("SchedulerPromotionHalted", nil)
	d.exec(fmt.Sprintf(clock, 0))
	d.eventually("it promotes", func() bool { return d.prometheus.sum("scheduler_promotion_halted", "") == 0 })
	d.prometheus.clears("SchedulerPromotionHalted", nil)
	d.prometheus.forget("second promoter")
	second.stop()
}

// emptyRedis is a Redis that loses what it holds while something runs.
func (d *drill) emptyRedis() {
	long := d.trigger(d.create(sleepJob(d.t, "long too", time.Hour)).ID)
	d.eventually("it runs", func() bool { return d.execution(long.ID).Status == api.ExecutionStatusRunning })
	const changes = "scheduler_redis_generation_changes_total"
	before := d.prometheus.sum(changes, "")
	d.prometheus.round()
	d.redis.FlushAll(d.t)
	d.shows(changes, "", before)
	d.prometheus.fires("SchedulerRedisLostItsData", nil)
	d.prometheus.clears("SchedulerRedisLostItsData", nil)
}

// slowRedis answers late while many ask the API.
func (d *drill) slowRedis() {
	plain := *d.client.ClientInterface.(*api.Client)
	plain.Client = http.DefaultClient // which is told of each answer
	client := &api.ClientWithResponses{ClientInterface: &plain}
	done := make(chan struct{})
	var askers sync.WaitGroup
	d.relay.set(10 * time.Millisecond)
	for range 48 {
		askers.Go(func() {
			// On a busy machine a statement may take longer than it may, but not time and again.
			for failed := 0; failed < 5; {
				select {
				case <-done:
					return
				default:
					answer, err := client.ListJobsWithResponse(d.t.Context(), &api.ListJobsParams{})
					if err == nil && answer.StatusCode() < http.StatusInternalServerError {
						continue
					}
					if failed++; failed == 5 {
						d.t.Errorf("list jobs: %v", err)
					}
				}
			}
		})
	}
	d.prometheus.fires("SchedulerRedisPool", nil)
	close(done)
	askers.Wait()
	d.relay.set(0)
	d.prometheus.clears("SchedulerRedisPool", nil)
}

// memory is an API process that gives nothing back.
func (d *drill) memory() {
	url := d.api("greedy api", "GOGC=off")
	body := `{"name":"` + strings.Repeat("x", 900<<10) + `"}`
	mine := d.url
	d.url = url
	d.eventually("it is ready", func() bool { return d.call(d.t, http.MethodGet, "/health/ready", "", "") == http.StatusOK })
	token, err := identity.Mint([]byte(key), identity.Claims{Subject: "ada", Tenant: d.tenant, Roles: []identity.Role{identity.Admin}}, d.now(), time.Hour)
	if err != nil {
		d.t.Fatal(err)
	}
	for d.held("greedy api") <= 0.95e9 {
		if status := d.call(d.t, http.MethodPost, "/api/v1/scheduler/jobs", token, body); status != http.StatusBadRequest {
			d.t.Fatalf("a job with a long name: %d", status)
		}
	}
	d.url = mine
	d.prometheus.fires("SchedulerMemory", nil)
	d.prometheus.forget("greedy api")
	d.prometheus.targets = append(d.prometheus.targets, target{"greedy api", "127.0.0.1:1"}) // it is gone
	d.prometheus.clears("SchedulerMemory", nil)
	d.prometheus.forget("greedy api")
}

// held is how much memory an instance says that it holds.
func (d *drill) held(instance string) float64 {
	for _, t := range d.prometheus.targets {
		if t.instance == instance {
			one := &prometheus{s: d.installation, targets: []target{t}}
			return one.sum("scheduler_memory_usage_bytes", "")
		}
	}
	return 0
}
