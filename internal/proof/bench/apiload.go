package bench

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/proof/bench/bare"
)

// askersAtOnce is how many connections ask at a time, each for the next thing as soon
// as it has the answer before.
const askersAtOnce = 16

// served is an API under load: the product's, the same of another build, or one
// that does nothing but read or write a row.
type served struct {
	what, address string
	program       string // as /proc names its process
	kinds         []request
}

// loadRequests are what one kind of load asks for, again and again.
func loadRequests() []request {
	read := func(name string, path func(a apiUser) string) request {
		return request{name: name, make: func(a apiUser) (string, string, string) { return http.MethodGet, base + path(a), "" }}
	}
	return []request{
		read("GET /jobs/{id}", func(a apiUser) string { return "/jobs/" + a.job.String() }),
		read("GET /jobs?limit=20", func(apiUser) string { return "/jobs?limit=20" }),
		read("GET /executions?limit=20", func(apiUser) string { return "/executions?limit=20" }),
		requests()[len(requests())-1], // POST /jobs
		{name: "POST /jobs/{id}/trigger", make: func(a apiUser) (string, string, string) {
			return http.MethodPost, base + "/jobs/" + a.job.String() + "/trigger", "{}"
		}},
	}
}

// measureAPILoad measures how many requests of each kind the API answers in a second,
// and what each costs, beside the same of another build where -before names one, and
// beside an API that only reads or writes one row.
func measureAPILoad(ctx context.Context, s *stack) (rows []row, err error) {
	if err := s.fillOnce(ctx); err != nil {
		return nil, err
	}
	users, err := s.apiUsers(ctx)
	if err != nil {
		return nil, err
	}
	all, stop, err := s.serveAll(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	measured := map[string][]row{}
	for range s.Repeats {
		for i := range loadRequests() {
			for _, one := range all { // in turn, so that all have the same neighbours
				if i >= len(one.kinds) {
					continue
				}
				r, err := s.loadRow(ctx, one, one.kinds[i], users)
				if err != nil {
					return rows, err
				}
				measured[r.what] = append(measured[r.what], r)
			}
		}
	}
	for _, one := range all {
		for _, kind := range one.kinds {
			again := measured[one.what+kind.name]
			slices.SortFunc(again, func(a, b row) int { return cmp.Compare(a.perSecond, b.perSecond) })
			rows = append(rows, again[len(again)/2])
		}
	}
	return rows, nil
}

// serveAll starts the API, that of another build, and the bare one.
func (s *stack) serveAll(ctx context.Context) (all []served, stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		for _, one := range stops {
			err = errors.Join(err, one())
		}
		return err
	}
	programs := []served{{what: "", program: apiName, kinds: loadRequests()}}
	if s.Before != "" {
		programs = append(programs, served{what: "before: ", program: apiName, kinds: loadRequests()})
	}
	stops = append(stops, func() error { return s.stop(s.running...) })
	for i, one := range programs {
		from := s.programs()
		if i > 0 {
			from = s.Before
		}
		if one.address, _, err = s.startAPIFrom(ctx, from, withRedis); err != nil {
			return nil, stop, err
		}
		all = append(all, one)
	}
	address, end, err := bare.Serve(ctx, s.postgres.AdminURL, []byte(signature))
	if end != nil {
		stops = append(stops, end)
	}
	return append(all, served{what: "limit: ", address: address, kinds: bareRequests()}), stop, err
}

// bareRequests read a row by its key, and write one.
func bareRequests() []request {
	return []request{
		{name: "one row read", make: func(a apiUser) (string, string, string) {
			return http.MethodGet, "/rows/" + bare.ID(int(a.job[14])<<8+int(a.job[15])), ""
		}},
		{name: "one row written", make: func(a apiUser) (string, string, string) {
			_, _, body := requests()[len(requests())-1].make(a)
			return http.MethodPost, "/rows", body
		}},
	}
}

// loadRow measures one kind of request for as long as -seconds says. Executions that
// were triggered do not wait any more when others are listed.
func (s *stack) loadRow(ctx context.Context, one served, kind request, users []apiUser) (row, error) {
	if err := s.store.clearWaiting(ctx); err != nil {
		return row{}, err
	}
	if _, err := askAll(ctx, one, kind, users, time.Second/2); err != nil { // plans and pools become warm
		return row{}, err
	}
	from, err := s.read(ctx)
	if err != nil {
		return row{}, err
	}
	took, err := askAll(ctx, one, kind, users, time.Duration(s.Seconds)*time.Second)
	if err != nil {
		return row{}, err
	}
	to, err := s.read(ctx)
	if err != nil {
		return row{}, err
	}
	n := float64(len(took))
	r := costs(from, to, n)
	slices.Sort(took)
	r.what, r.load, r.backlog = one.what+kind.name, true, none
	r.perSecond = n / to.at.Sub(from.at).Seconds()
	r.answers = &latency{p50: quantile(took, 50), p99: quantile(took, 99)}
	r.program = one.program
	s.say("%s: %.0f a second", r.what, r.perSecond)
	s.sayCosts(from, to, n)
	return r, nil
}

// askAll asks for one kind of thing on askersAtOnce connections and answers how long
// each answer took. An answer that is not a success is an error.
func askAll(ctx context.Context, one served, kind request, users []apiUser, lasts time.Duration) ([]time.Duration, error) {
	var group sync.WaitGroup
	took, failures := make([][]time.Duration, askersAtOnce), make([]error, askersAtOnce)
	mark := clock.Start()
	for i := range askersAtOnce {
		group.Go(func() {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", one.address)
			if err != nil {
				failures[i] = err
				return
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			for failures[i] == nil && mark.Elapsed() < lasts && ctx.Err() == nil {
				asked := clock.Start()
				failures[i] = ask(conn, in, kind, users[rand.N(len(users))])
				took[i] = append(took[i], asked.Elapsed())
			}
		})
	}
	group.Wait()
	return slices.Concat(took...), errors.Join(append(failures, ctx.Err())...)
}

// ask sends a request and reads its answer. It writes the lines itself, because an
// HTTP client takes as much of the processors as the API that is measured.
func ask(conn net.Conn, in *bufio.Reader, kind request, who apiUser) error {
	method, path, body := kind.make(who)
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n", method, path, who.token)
	if body != "" {
		fmt.Fprintf(&text, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	text.WriteString("\r\n" + body)
	if _, err := io.WriteString(conn, text.String()); err != nil {
		return err
	}
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		said, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("%s %s: %s: %.300s", method, path, answer.Status, said)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// printLoad writes the table of the API under load.
func printLoad(out io.Writer, c Config, rows []row) {
	fmt.Fprintf(out, "Requests a second on %d connections, each with one request at a time, %d jobs and %d executions stored, of %d tenants; %s, the load among them:\n\n"+
		"| request | a second | p50 / p99 (ms) | round trips each | WAL each (B) | CPU each: API / PostgreSQL / Redis (µs) | others had |\n| --- | --- | --- | --- | --- | --- | --- |\n",
		askersAtOnce, c.Jobs, c.History, tenants, thisMachine())
	for _, r := range rows {
		if !r.load {
			continue
		}
		api := "–"
		if r.program != "" {
			api = fmt.Sprintf("%.0f", r.cpu[r.program])
		}
		fmt.Fprintf(out, "| %s | %.0f | %s / %s | %s | %s | %s / %.0f / %.0f | %s |\n", r.what, r.perSecond, tenths(r.answers.p50), tenths(r.answers.p99),
			optional("%.2f", r.trips), optional("%.0f", r.wal), api, r.cpu["postgres"], r.cpu["redis-server"], optional("%.0f %%", 100*r.others))
	}
}
