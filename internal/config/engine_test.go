package config_test

import (
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/config"
)

// Behind a pooler a login acts as one role, and an API process acts as two.
func TestEngineLogin(t *testing.T) {
	t.Parallel()
	const other = "postgres://engine@db/scheduler"
	for _, test := range []struct {
		mode, engine, want string // want: empty where it is refused
	}{{"session", "", "postgres://"}, {"session", other, other}, {"transaction", other, other}, {"transaction", "", ""}} {
		loaded, err := config.Load[config.API](env("DATABASE_POOL_MODE", test.mode, "DATABASE_ENGINE_URL", test.engine))
		switch {
		case (err == nil) != (test.want != ""), err != nil && !strings.Contains(err.Error(), "DATABASE_ENGINE_URL: is not set"):
			t.Errorf("%+v: %v", test, err)
		case err == nil && !strings.HasPrefix(loaded.Engine(), test.want):
			t.Errorf("%+v: the engine's address is %q", test, loaded.Engine())
		}
	}
}

// A process listens at PostgreSQL where no Redis is used, unless it knows nothing but a pooler that
// lends connections for one transaction.
func TestListensAt(t *testing.T) {
	t.Parallel()
	const given, direct = "postgres://scheduler@db/scheduler", "postgres://scheduler@primary/scheduler"
	for _, test := range []struct{ backend, redis, mode, direct, want string }{
		{"auto", "", "session", "", given},
		{"auto", "redis://cache:6379", "session", direct, ""},
		{"postgres", "redis://cache:6379", "session", "", given},
		{"postgres", "", "transaction", "", ""},
		{"postgres", "", "transaction", direct, direct},
		{"postgres", "", "session", direct, direct},
	} {
		loaded, err := config.Load[config.Promoter](env(
			"DATABASE_URL", given, "QUEUE_BACKEND", test.backend, "REDIS_URL", test.redis, "DATABASE_POOL_MODE", test.mode, "DATABASE_DIRECT_URL", test.direct))
		if err != nil {
			t.Fatal(err)
		}
		if got := loaded.ListensAt(); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
