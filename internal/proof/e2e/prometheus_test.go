package e2e_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// rulesFile holds the alert rules that operators load.
var rulesFile = filepath.Join("..", "..", "..", "deploy", "prometheus", "alerts.yml")

// prometheus scrapes the processes of an installation and evaluates the rules with
// Prometheus' own engine (tools/alerts). A round stands for scrapeEvery, however soon it
// follows the last one, so that a rule which holds for five minutes is tried in a
// second: rates and ages are those of rounds.
type prometheus struct {
	s       *installation
	in      *json.Encoder
	out     *json.Decoder
	at      time.Duration
	targets []target
	tried   map[string]bool
}

type target struct{ instance, address string }

// scrapeEvery is the interval of deploy/prometheus/prometheus.yml.
const scrapeEvery = 15 * time.Second

func newPrometheus(s *installation) *prometheus {
	s.t.Helper()
	evaluator := filepath.Join(s.t.TempDir(), "alerts")
	build := exec.Command("go", "build", "-o", evaluator, ".")
	build.Dir = filepath.Join("..", "..", "..", "tools", "alerts")
	if said, err := build.CombinedOutput(); err != nil {
		s.t.Fatalf("build tools/alerts: %v\n%s", err, said)
	}
	cmd := exec.Command(evaluator, rulesFile)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = in.Close() // it ends then
		if err := cmd.Wait(); err != nil {
			s.t.Errorf("tools/alerts: %v", err)
		}
	})
	return &prometheus{s: s, in: json.NewEncoder(in), out: json.NewDecoder(out), tried: map[string]bool{}}
}

// watch has an instance scraped from now on, and returns what its process is told to
// serve its metrics.
func (p *prometheus) watch(instance string) []string {
	p.s.t.Helper()
	address := freeAddr(p.s.t)
	p.targets = append(p.targets, target{instance, address})
	return p.env(instance)
}

// env is that of an instance that is watched already: its process comes again.
func (p *prometheus) env(instance string) []string {
	for _, t := range p.targets {
		if t.instance == instance {
			_, port, _ := net.SplitHostPort(t.address)
			return []string{"METRICS_ENABLED=true", "PROMETHEUS_PORT=" + port}
		}
	}
	p.s.t.Fatalf("nobody watches %s", instance)
	return nil
}

// forget has an instance scraped no more.
func (p *prometheus) forget(instance string) {
	for i, t := range p.targets {
		if t.instance == instance {
			p.targets = append(p.targets[:i], p.targets[i+1:]...)
			return
		}
	}
}

// metrics is what an instance answers now.
func (p *prometheus) metrics(t target) (text string, up bool) {
	answer, err := (&http.Client{Timeout: time.Minute}).Get("http://" + t.address + "/metrics")
	if err != nil {
		return "", false
	}
	defer answer.Body.Close() // it was only read
	body, err := io.ReadAll(answer.Body)
	return string(body), err == nil && answer.StatusCode == http.StatusOK
}

// sum adds up the series of a metric, of all instances, whose labels hold a text.
func (p *prometheus) sum(metric, label string) (total float64) {
	for _, t := range p.targets {
		text, _ := p.metrics(t)
		for line := range strings.Lines(text) {
			name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
			if own, labels, _ := strings.Cut(name, "{"); ok && own == metric && strings.Contains(labels, label) {
				n, _ := strconv.ParseFloat(value, 64)
				total += n
			}
		}
	}
	return total
}

// round scrapes everything and returns the summaries of the alerts that fire.
func (p *prometheus) round() map[string][]string {
	p.s.t.Helper()
	type scrape struct {
		Instance string `json:"instance"`
		Up       bool   `json:"up"`
		Text     string `json:"text"`
	}
	p.at += scrapeEvery
	scrapes := make([]scrape, len(p.targets))
	for i, t := range p.targets {
		scrapes[i].Instance = t.instance
		scrapes[i].Text, scrapes[i].Up = p.metrics(t)
	}
	if err := p.in.Encode(map[string]any{"at": p.at.Milliseconds(), "scrapes": scrapes}); err != nil {
		p.s.t.Fatal(err)
	}
	var answer struct {
		Firing map[string][]string
		Error  string
	}
	if err := p.out.Decode(&answer); err != nil || answer.Error != "" {
		p.s.t.Fatalf("tools/alerts: %v %s", err, answer.Error)
	}
	return answer.Firing
}

// fires goes through rounds, before each of which something happens, until an alert
// fires.
func (p *prometheus) fires(alert string, each func(round int)) {
	p.s.t.Helper()
	for n := range 400 {
		if each != nil {
			each(n)
		}
		if said := p.round()[alert]; len(said) > 0 {
			p.s.t.Logf("%s fires after %d rounds: %s", alert, n+1, said)
			return
		}
	}
	p.s.t.Errorf("%s does not fire", alert)
}

// clears goes through rounds until an alert does not fire any more.
func (p *prometheus) clears(alert string, each func(round int)) {
	p.s.t.Helper()
	for n := range 400 {
		if each != nil {
			each(n)
		}
		if len(p.round()[alert]) == 0 {
			p.tried[alert] = true
			return
		}
	}
	p.s.t.Errorf("%s does not clear", alert)
}

// triedAll fails for a rule that was not tried.
func (p *prometheus) triedAll(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^\s+- alert: (\w+)$`).FindAllStringSubmatch(string(text), -1)
	for _, name := range names {
		if !p.tried[name[1]] {
			t.Errorf("%s was not seen to fire and to clear", name[1])
		}
	}
	if len(names) < 10 {
		t.Errorf("only %d rules were found", len(names))
	}
}

// relay passes bytes on to a server, each way as late as it is told.
type relay struct {
	mu    sync.Mutex
	delay time.Duration
}

func (r *relay) set(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = delay
}

func (r *relay) late() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.delay
}

// listen relays to an address and returns its own.
func (r *relay) listen(t *testing.T, network, to string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(network, to)
			if err != nil {
				_ = from.Close()
				continue
			}
			go r.pass(from, server)
			go r.pass(server, from)
		}
	}()
	return listener.Addr().String()
}

func (r *relay) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if late := r.late(); late > 0 {
				<-time.After(late)
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
