package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// The load of the API, and the stored rows meanwhile.
const (
	apiRate   = 500 // requests a second
	apiMonths = 3   // that the history is spread over
	signature = "bench-4b1f0d6a39c27e58-of-no-use-elsewhere"
)

// request is one kind of what the API is asked.
type request struct {
	name  string
	share int // of all requests, in percent
	make  func(a apiUser) (method, path, body string)
}

// apiUser is who asks, and what it may ask for.
type apiUser struct {
	token     string
	job       uuid.UUID
	execution uuid.UUID
	from, to  time.Time // the month that the execution is of
}

const base = "/api/v1/scheduler"

// month31 asks for the statistics of the last 31 days.
func month31() string {
	now := clock.Now()
	return "/executions/stats?from=" + now.AddDate(0, 0, -31).Format(time.RFC3339Nano) + "&to=" + now.Format(time.RFC3339Nano)
}

// requests are the mix: four reads to one create, and of the reads as many of
// one thing as of lists; one in thirteen is for statistics, half of a whole month.
func requests() []request {
	read := func(path func(a apiUser) string) func(a apiUser) (string, string, string) {
		return func(a apiUser) (string, string, string) { return http.MethodGet, base + path(a), "" }
	}
	month := func(a apiUser) string {
		return "from=" + a.from.Format(time.RFC3339) + "&to=" + a.to.Format(time.RFC3339)
	}
	return []request{
		{"GET /jobs/{id}", 18, read(func(a apiUser) string { return "/jobs/" + a.job.String() })},
		{"GET /executions/{id}", 18, read(func(a apiUser) string { return "/executions/" + a.execution.String() })},
		{"GET /jobs", 13, read(func(apiUser) string { return "/jobs?limit=20" })},
		{"GET /executions", 13, read(func(a apiUser) string { return "/executions?limit=20&status=failed&" + month(a) })},
		{"GET /jobs/{id}/executions", 12, read(func(a apiUser) string { return "/jobs/" + a.job.String() + "/executions?limit=20" })},
		{"GET /executions/stats, 24 h", 3, read(func(apiUser) string { return "/executions/stats" })},
		{"the same, 31 days by day of a zone", 2, read(func(a apiUser) string { return month31() + "&groupBy=day&timezone=Europe/Berlin" })},
		{"the same, 31 days of one job", 1, read(func(a apiUser) string { return month31() + "&jobId=" + a.job.String() })},
		{"POST /jobs", 20, func(apiUser) (string, string, string) {
			return http.MethodPost, base + "/jobs", `{"name":"created under load","cronExpression":"0 0 2 1 1 *","timezone":"Europe/Berlin","jobType":"http",` +
				`"config":{"url":"https://example.com/report","method":"POST","body":{"report":"monthly"}},"tags":["bench"]}`
		}},
	}
}

// sample is one answered request.
type sample struct {
	kind   int
	took   time.Duration // from the moment at which it should have been sent
	status int
}

// measureAPI measures the REST API with a full history: requests of all tenants at
// fixed moments, whether or not earlier ones were answered.
func measureAPI(ctx context.Context, s *stack) (rows []row, err error) {
	if err := s.fillOnce(ctx); err != nil {
		return nil, err
	}
	address, stop, err := s.startAPI(ctx, withRedis)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	askers, err := s.apiUsers(ctx)
	if err != nil {
		return nil, err
	}
	s.say("%d requests a second", apiRate)
	if _, err := sendAll(ctx, address, askers, apiRate*int(warmUp/time.Second)); err != nil { // plans and pools become warm
		return nil, err
	}
	from := reading{at: clock.Now(), usages: usages()}
	from.all, from.own = busy()
	samples, err := sendAll(ctx, address, askers, apiRate*s.Seconds)
	if err != nil {
		return nil, err
	}
	to := reading{at: clock.Now(), usages: usages()}
	to.all, to.own = busy()
	rows = answered(samples, from, to)
	alone, err := byJob(ctx, address, askers)
	return append(rows, alone), err
}

// byJob asks for the statistics of all jobs, one tenant's after another's: they
// are a page that somebody opens now and then, and cost as much as a hundred
// other requests.
func byJob(ctx context.Context, address string, askers []apiUser) (row, error) {
	const times = 50
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	samples, from := make([]sample, times), reading{at: clock.Now()}
	from.all, from.own = busy()
	for i := range samples {
		who, mark := askers[rand.N(len(askers))], clock.Start()
		if _, err := send(ctx, client, call{http.MethodGet, "http://" + address + base + month31() + "&groupBy=job", "", who.token}); err != nil {
			return row{}, err
		}
		samples[i].took = mark.Elapsed()
	}
	to := reading{at: clock.Now()}
	to.all, to.own = busy()
	return line("GET /executions/stats, 31 days by job, one after the other", samples, from, to), nil
}

// startAPI starts the API process, and answers where it is and how to stop it.
func (s *stack) startAPI(ctx context.Context, backend string) (address string, stop func() error, err error) {
	return s.startAPIFrom(ctx, s.programs(), backend)
}

// startAPIFrom starts the API program of a directory.
func (s *stack) startAPIFrom(ctx context.Context, programs, backend string) (address string, stop func() error, err error) {
	stop = func() error { return s.stop(s.running...) }
	port, err := freePort(ctx)
	if err != nil {
		return "", stop, err
	}
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	_, err = s.startWith(ctx, filepath.Join(programs, apiName), []string{"QUEUE_BACKEND=" + backend, "HTTP_ADDR=" + address, "JWT_SECRET=" + signature, "SHUTDOWN_NOTICE_MS=0", "TENANT_REQUESTS_PER_SECOND=1000000"}, func(*process) bool {
		_, err := send(ctx, &http.Client{Timeout: time.Second}, call{http.MethodGet, "http://" + address + "/health/ready", "", ""})
		return err == nil
	})
	return address, stop, err
}

// apiUsers are a few thousand of what may be asked for, of all tenants.
func (s *stack) apiUsers(ctx context.Context) ([]apiUser, error) {
	var all []apiUser
	for _, who := range s.tenants {
		token, err := identity.Mint([]byte(signature), identity.Claims{
			Subject: who.Subject, Tenant: who.TenantID, Roles: []identity.Role{identity.Admin},
		}, clock.Now(), time.Hour)
		if err != nil {
			return nil, err
		}
		some, err := s.store.some(ctx, who.TenantID, 500, s.History)
		if err != nil {
			return nil, err
		}
		for _, one := range some {
			month := time.Date(one.scheduledAt.Year(), one.scheduledAt.Month(), 1, 0, 0, 0, 0, time.UTC)
			all = append(all, apiUser{token: token, job: one.job, execution: one.id, from: month, to: month.AddDate(0, 1, 0)})
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there is no execution to ask for")
	}
	return all, nil
}

// ask sends n requests, one every 1/apiRate s, whether or not earlier ones were
// answered: an API that falls behind must not slow down those who ask.
func sendAll(ctx context.Context, address string, askers []apiUser, n int) ([]sample, error) {
	kinds, order := requests(), make([]int, 0, 100)
	for kind, r := range kinds {
		order = append(order, slices.Repeat([]int{kind}, r.share)...)
	}
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 256, MaxConnsPerHost: 256}}
	defer client.CloseIdleConnections()
	samples, failures := make([]sample, n), make([]error, n)
	var sent sync.WaitGroup
	begin := clock.Now()
	for i := range n {
		at := begin.Add(time.Duration(i) * time.Second / apiRate)
		if err := until(ctx, at); err != nil {
			return nil, err
		}
		kind := order[i%len(order)]
		who := askers[rand.N(len(askers))]
		method, path, body := kinds[kind].make(who)
		sent.Go(func() {
			status, err := send(ctx, client, call{method, "http://" + address + path, body, who.token})
			samples[i], failures[i] = sample{kind, clock.Now().Sub(at), status}, err
		})
	}
	sent.Wait()
	return samples, errors.Join(failures...)
}

// call is one request on the wire.
type call struct{ method, url, body, token string }

// send answers the status. One that is not a success is an error: what is
// refused is not measured.
func send(ctx context.Context, client *http.Client, c call) (int, error) {
	r, err := http.NewRequestWithContext(ctx, c.method, c.url, strings.NewReader(c.body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if c.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %.300s", c.method, c.url, answer.Status, said)
	}
	return answer.StatusCode, err
}

// answered makes the rows: one for each kind of request, and one of all reads.
func answered(samples []sample, from, to reading) []row {
	kinds := requests()
	of := func(belongs func(sample) bool) []sample {
		return slices.DeleteFunc(slices.Clone(samples), func(s sample) bool { return !belongs(s) })
	}
	rows := []row{line("all reads", of(func(s sample) bool { return kinds[s.kind].name != "POST /jobs" }), from, to)}
	for kind, r := range kinds {
		rows = append(rows, line(r.name, of(func(s sample) bool { return s.kind == kind }), from, to))
	}
	for name, u := range to.usages {
		if name == apiName || name == "postgres" {
			each := (u.cpu - from.usages[name].cpu) / float64(len(samples))
			rows[0].what += fmt.Sprintf("; %s %.0f µs and %.0f MB", filepath.Base(name), each, u.memory)
		}
	}
	return rows
}

// line makes a row of answers between two readings.
func line(what string, samples []sample, from, to reading) row {
	all := make([]time.Duration, len(samples))
	for i, one := range samples {
		all[i] = one.took
	}
	slices.Sort(all)
	return row{what: what, perSecond: float64(len(all)) / to.at.Sub(from.at).Seconds(), answers: &latency{
		p50: quantile(all, 50), p95: quantile(all, 95), p99: quantile(all, 99), max: quantile(all, 100),
	}, others: others(from, to), backlog: none}
}

// quantile of sorted times: the smallest that so many percent do not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}
