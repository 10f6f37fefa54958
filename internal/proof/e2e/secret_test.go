package e2e_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

const canary = "canary-3c9f01b7e5"

// echo answers everything that it is sent, in several forms; below /away it
// redirects to another host, which tells what it was sent.
func echo(t *testing.T) (target string, calls, elsewhere chan string) {
	t.Helper()
	calls, elsewhere = make(chan string, 100), make(chan string, 100)
	told := func(r *http.Request) string {
		body, _ := io.ReadAll(r.Body)
		return fmt.Sprintf("%s %v %s", r.URL, r.Header, body)
	}
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { elsewhere <- told(r) }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := told(r)
		calls <- text
		if strings.HasPrefix(r.URL.Path, "/away") {
			w.Header().Set("Location", other.URL+"/landed")
			w.WriteHeader(http.StatusFound)
			return
		}
		w.Header().Set("X-Echo", r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
		quoted, _ := json.Marshal(text)
		_, _ = fmt.Fprintf(w, "%s\n%s\n%s\n%x", text, quoted, base64.StdEncoding.EncodeToString([]byte(text)), text)
	}))
	t.Cleanup(server.Close)
	return server.URL, calls, elsewhere
}

// monitor takes down every command that Redis is sent.
func (s *installation) monitor() *lockedBuffer {
	s.t.Helper()
	at, err := url.Parse(s.redis.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	network, address := "tcp", at.Host
	if at.Host == "" {
		network, address = "unix", at.Path
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		s.t.Fatal(err)
	}
	seen := &lockedBuffer{}
	go func() { _, _ = io.Copy(seen, bufio.NewReader(conn)) }()
	return seen
}

// dump is every row of every table, as text.
func (s *installation) dump() string {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.database.AdminURL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(context.Background()) // nothing was written
	rows, err := conn.Query(s.t.Context(), "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')")
	if err != nil {
		s.t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.t.Fatal(err)
	}
	var all strings.Builder
	for _, table := range tables {
		var text string
		if err := conn.QueryRow(s.t.Context(), "SELECT coalesce(string_agg(t::text, chr(10)), '') FROM "+table+" t").Scan(&text); err != nil {
			s.t.Fatal(err)
		}
		all.WriteString(table + ": " + text + "\n")
	}
	return all.String()
}

// engineLogin is a login that is a member of the engine's role and of nothing else.
func (s *installation) engineLogin() string {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.database.AdminURL)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close(context.Background()) }) // nothing is unwritten
	name := "engine_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := conn.Exec(s.t.Context(), "CREATE ROLE "+name+" LOGIN NOINHERIT; GRANT scheduler_engine TO "+name); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if _, err := conn.Exec(context.Background(), "DROP ROLE "+name); err != nil {
			s.t.Error(err)
		}
	})
	at, err := url.Parse(s.database.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	at.User = url.User(name)
	return at.String()
}

// Secrets and credentials reach their target and nothing else: no answer of
// the API, no row, no command of Redis, no log line of any process, and no
// host that the target redirects to. A rotation changes nothing of it.
func TestSecretsReachTheirTargetAlone(t *testing.T) {
	t.Parallel()
	s := stores(t, hinted)
	first, second := keyring.Generate("k1"), keyring.Generate("k2")
	s.env = []string{"SECRETS_KEYS=" + first + "," + second, "LOG_LEVEL=debug"}
	redis := s.monitor()
	s.up(1)
	target, calls, elsewhere := echo(t)
	answers := &strings.Builder{}
	get := func(path string) {
		answer, err := s.client.ClientInterface.(*api.Client).Client.Do(s.request(path))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close() // it was only read
		body, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s answered %d %s", path, answer.StatusCode, body)
		}
		answers.Write(body)
	}
	put, err := s.client.PutSecretWithResponse(t.Context(), "key", nil, api.SecretValue{Value: text(canary + "-stored")})
	if err != nil || put.JSON201 == nil {
		t.Fatalf("%v %s", err, put.Body)
	}
	define := func(path string) uuid.UUID {
		definition := fmt.Sprintf(`{"url":"%s%s?sig=%s-url&x={{secret:key}}","method":"POST","headers":{"Authorization":"Bearer %s-header","X-Api-Key":"{{secret:key}}"},"body":{"password":"%s-body","note":"a {{secret:key}}"}}`,
			target, path, canary, canary, canary)
		return s.create(api.JobSpec{Name: "secret", JobType: "http", Config: config(t, json.RawMessage(definition))}).ID
	}
	run := func(id uuid.UUID) api.Execution {
		t.Helper()
		made := s.trigger(id).ID
		var e api.Execution
		s.eventually("the run is finished", func() bool {
			e = s.execution(made)
			return e.Status == "completed" || e.Status == "failed"
		})
		raw, _ := json.Marshal(e)
		answers.Write(raw)
		return e
	}
	id := define("/hook")
	e := run(id)
	if e.Status != "completed" || !strings.Contains(string(e.Result), "***") {
		t.Errorf("ended %s: %s", e.Status, e.Result)
	}
	for call, parts := <-calls, []string{"-stored", "-url", "-header", "-body"}; len(parts) > 0; parts = parts[1:] {
		if !strings.Contains(call, canary+parts[0]) {
			t.Errorf("the target did not get %s: %s", parts[0], call)
		}
	}
	login := "DATABASE_URL=" + s.engineLogin()
	s.process("migrate rotate-secrets", login, "SECRETS_KEYS="+second+","+first).wait()
	if e := run(id); e.Status != "completed" || !strings.Contains(<-calls, canary+"-stored") {
		t.Errorf("after the rotation: %s", e.Status)
	}
	run(define("/away"))
	<-calls
	select {
	case told := <-elsewhere:
		if strings.Contains(told, "canary") {
			t.Errorf("another host was told: %s", told)
		}
	default: // the body is not sent on, so the redirect may end the run
	}
	s.process("migrate verify-audit", login).wait()
	for _, path := range []string{"/jobs", "/jobs/" + id.String(), "/jobs/" + id.String() + "/versions", "/executions", "/secrets", "/secrets/key", "/audit?limit=100", "/audit/verify"} {
		get(path)
	}
	found := map[string]string{"the API": answers.String(), "redis": redis.String(), "the database": s.dump()}
	for _, p := range s.started {
		found[p.name] = p.log.String()
	}
	for where, text := range found {
		for form, hidden := range map[string]string{"plain": canary, "hex": hex.EncodeToString([]byte(canary)), "base64": base64.StdEncoding.EncodeToString([]byte(canary))[:16]} {
			if i := strings.Index(text, hidden); i >= 0 {
				t.Errorf("%s holds it (%s): …%s…", where, form, text[max(0, i-200):min(len(text), i+60)])
			}
		}
		if len(text) < 40 {
			t.Errorf("%s told nothing to look at: %q", where, text)
		}
	}
}

// request is a GET of the API with the client's token.
func (s *installation) request(path string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/api/v1/scheduler"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, edit := range s.client.ClientInterface.(*api.Client).RequestEditors {
		if err := edit(s.t.Context(), r); err != nil {
			s.t.Fatal(err)
		}
	}
	return r
}

func text(s string) *string { return &s }
