package e2e_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/queue/redistest"
)

// guardedRedis starts a Redis that speaks TLS alone and knows two users: an
// administrator, and the one that docs/run/databases.md describes.
func guardedRedis(t *testing.T) (addr, roots string) {
	t.Helper()
	documented, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "run", "databases.md"))
	if err != nil {
		t.Fatal(err)
	}
	user := regexp.MustCompile(`(?m)^user scheduler .*$`).FindString(string(documented))
	if user == "" {
		t.Fatal("docs/run/databases.md describes no user of Redis")
	}
	addr = freeAddr(t)
	chain, private := certify(t, t.TempDir(), 1)
	_, port, _ := net.SplitHostPort(addr)
	redistest.New(t,
		"bind=127.0.0.1", "tls-port="+port, "tls-cert-file="+chain, "tls-key-file="+private, "tls-ca-cert-file="+chain, "tls-auth-clients=no",
		"user=default off", "user=admin on >admin ~* &* +@all", strings.Replace(strings.Replace(user, "user ", "user=", 1), "PASSWORD", "worker", 1))
	if got, err := redisSays(addr, "admin", "PING"); err != nil || got != "+PONG" {
		t.Fatalf("Redis answers %q, %v", got, err)
	}
	return addr, chain
}

// redisSays is the first line of the answer to a command of a user.
func redisSays(addr, user, command string) (string, error) {
	password := map[string]string{"admin": "admin", "scheduler": "worker"}[user]
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "AUTH %s %s\r\n%s\r\n", user, password, command); err != nil {
		return "", err
	}
	answer := bufio.NewReader(conn)
	if ok, err := answer.ReadString('\n'); err != nil || !strings.HasPrefix(ok, "+OK") {
		return ok, err
	}
	line, err := answer.ReadString('\n')
	return strings.TrimSpace(line), err
}

// The user of Redis that the documents describe is enough for every process,
// over TLS, and may neither empty the server nor see what others keep there.
func TestLeastUserOfRedis(t *testing.T) {
	t.Parallel()
	addr, roots := guardedRedis(t)
	s := &installation{t: t, database: pgtest.Empty(t), backend: hinted, tenant: uuid.New()}
	s.env = []string{"REDIS_URL=rediss://scheduler:worker@" + addr + "/0", "SSL_CERT_FILE=" + roots}
	s.up(1)
	target, calls := sink(t)
	job := s.create(api.JobSpec{Name: "a", JobType: api.JobTypeHTTP, Config: config(t, map[string]any{"url": target, "method": "POST", "body": "x"})})
	asked := func(command string) string {
		got, err := redisSays(addr, "admin", command)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	s.eventually("a hint was sent and handled", func() bool {
		s.trigger(job.ID)
		<-calls
		return asked("KEYS asynq:*:processed*") != "*0"
	})
	if got := asked("ACL LOG"); got != "*0" {
		t.Errorf("something that the processes need was denied: ACL LOG answers %s", got)
	}
	for _, command := range []string{
		"FLUSHALL", "FLUSHDB", "KEYS *", "CONFIG GET *", "GET other", "SET other 1", "PUBLISH other x", "ACL LIST", "SHUTDOWN", "DEBUG SLEEP 0",
		`EVAL "return redis.call('get','other')" 0`, `EVAL "return redis.call('flushall')" 0`,
	} {
		if got, err := redisSays(addr, "scheduler", command); err != nil || !strings.HasPrefix(got, "-") {
			t.Errorf("%s: %q, %v, want it denied", command, got, err)
		}
	}
	for _, command := range []string{"PING", "SET sched:mine 1"} {
		if got, err := redisSays(addr, "scheduler", command); err != nil || !strings.HasPrefix(got, "+") {
			t.Errorf("%s: %q, %v", command, got, err)
		}
	}
}
