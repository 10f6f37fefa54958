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
