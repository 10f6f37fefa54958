package app

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// Standalone is the other processes in one, for a laptop, a demonstration or a
// small installation: on stores of its own where none are given, with an echo
// endpoint to call, and with a word about what to do next on out.
func Standalone(ctx context.Context, c config.Standalone, log *slog.Logger, front parts.Front, out io.Writer) error {
	took := clock.Start()
	fmt.Fprintln(out, "The scheduler starts. How to use it stands below when it is ready.")
	listener, err := net.Listen("tcp", c.API.HTTPAddr)
	if err != nil {
		return fmt.Errorf("HTTP_ADDR: %w", err)
	}
	defer listener.Close() // closed by the API already when it ran
	c, own, err := privateStores(ctx, c, log)
	defer own.stop()
	if err != nil {
		return err
	}
	if c, err = withOwnKeys(c); err != nil {
		return err
	}
	c = c.WithRunnerCache(filepath.Join(c.DataDir, "runners"))
	c = withOwnAddress(c, listener)
	if err := Migrate(ctx, c.Migrate, log); err != nil {
		return err
	}
	echo, err := listenEcho(c.EchoAddr, c.DataDir, log)
	if err != nil {
		return err
	}
	endpoints := []netip.AddrPort{echo.endpoint()}
	p, flush, err := newProcess(log, config.Settings(c)).traced(ctx, c.API.Process, "standalone")
	if err != nil {
		return err
	}
	defer flush()
	p.front = front
	next := guide{config: c, api: listener.Addr(), echo: echo.url(), stores: own.about(c), started: took}
	once := newCode(func() (string, error) { return next.token(identity.Admin) })
	next.code = once.text
	return p.observed(ctx, c.API.MetricsAddr(), func(ctx context.Context) error {
		return together(ctx,
			own.watch,
			echo.serve,
			func(ctx context.Context) error {
				return p.api(ctx, c.API, listener, opening{endpoints: endpoints, signIn: once.redeem})
			},
			func(ctx context.Context) error { return p.promoter(ctx, c.Promoter, endpoints) },
			func(ctx context.Context) error { return p.worker(ctx, c.Worker, endpoints) },
			func(ctx context.Context) error { return next.print(ctx, out) })
	})
}

// withOwnKeys is the configuration with the keys that it names, and those of the last start
// for the others.
func withOwnKeys(c config.Standalone) (config.Standalone, error) {
	ring := func() string { return keyring.Generate("standalone") }
	for _, own := range []struct {
		missing  bool
		file     string
		generate func() string
		with     func(config.Standalone, string) config.Standalone
	}{
		{c.API.JWTSecret.Reveal() == "" && c.API.JWKSURL.IsZero(), "jwt-key", randomKey, config.Standalone.WithJWTSecret},
		{len(c.API.ServiceTokens) == 0 && len(c.API.Peers()) == 0, "service-token", randomKey, config.Standalone.WithServiceToken},
		{c.API.SecretsKeys.Reveal() == "", "secrets-keys", ring, config.Standalone.WithSecretsKeys},
		{c.API.OIDCKeys.Reveal() == "", "oidc-keys", ring, config.Standalone.WithOIDCKeys},
	} {
		if !own.missing {
			continue
		}
		key, err := kept(filepath.Join(c.DataDir, own.file), own.generate)
		if err != nil {
			return c, err
		}
		c = own.with(c, key)
	}
	return c, nil
}

// withOwnAddress is the configuration with the address of the API for those on this
// machine, where none is named.
func withOwnAddress(c config.Standalone, l net.Listener) config.Standalone {
	if !c.API.PublicURL.IsZero() {
		return c
	}
	scheme := "http"
	if c.API.TLSCertFile != "" {
		scheme = "https"
	}
	return c.WithPublicURL(fmt.Sprintf("%s://127.0.0.1:%d", scheme, portOf(l)))
}

// stores are the private servers that were started; nil for what was given.
type stores struct {
	postgres *devstack.Postgres
	redis    *devstack.Redis
	log      *slog.Logger
}

// privateStores starts what the configuration does not name, and answers the
// configuration with the addresses. The stores are the caller's to stop, also
// after an error.
func privateStores(ctx context.Context, c config.Standalone, log *slog.Logger) (config.Standalone, *stores, error) {
	s := &stores{log: log}
	options := devstack.Options{Dir: c.DataDir, Log: log, Durable: true, Confirm: newPerson(os.Stdin, os.Stderr).confirm}
	database, owner, redis := c.API.DatabaseURL.Reveal(), c.Migrate.OwnerURL.Reveal(), c.API.RedisURL.Reveal()
	var err error
	if database == "" {
		if s.postgres, err = devstack.StartPostgres(ctx, options); err != nil {
			return c, s, err
		}
		const name, login, schemaOwner = "scheduler", "scheduler", "scheduler_owner"
		if err := postgres.EnsureDatabase(ctx, s.postgres.AdminURL, name, schemaOwner); err != nil {
			return c, s, err
		}
		database, owner = s.postgres.URL(name, login), s.postgres.URL(name, schemaOwner)
	}
	if redis == "" && c.API.NeedsRedis() {
		if s.redis, err = devstack.StartRedis(ctx, options); err != nil {
			return c, s, err
		}
		redis = s.redis.URL
	}
	c, err = c.WithStores(database, owner, redis)
	return c, s, err
}

// stop ends the private servers; Redis first, since it holds no fact.
func (s *stores) stop() {
	if s.redis != nil {
		if err := s.redis.Stop(); err != nil {
			s.log.Warn("redis did not stop cleanly", "error", err)
		}
	}
	if s.postgres != nil {
		if err := s.postgres.Stop(); err != nil {
			s.log.Warn("postgresql did not stop cleanly", "error", err)
		}
	}
}

// watch fails when a private PostgreSQL ends by itself: nothing works without
// it. A Redis that ends is survived.
func (s *stores) watch(ctx context.Context) error {
	if s.postgres == nil {
		return nil
	}
	select {
	case <-s.postgres.Done():
		if ctx.Err() == nil {
			return errors.New("the private PostgreSQL ended by itself: see its log below DATA_DIR")
		}
	case <-ctx.Done():
	}
	return nil
}

// about says what the stores are, for a person.
func (s *stores) about(c config.Standalone) string {
	database, redis := c.API.DatabaseURL.String(), c.API.RedisURL.String()
	if s.postgres != nil {
		database = "a private PostgreSQL, data below " + c.DataDir
	}
	switch {
	case s.redis != nil:
		redis = "a private " + s.redis.Kind
	case c.API.Redis() == "":
		redis = "no Redis"
	}
	return database + "; " + redis
}

// kept reads the key of the last start from a file, or makes one. It is the
// owner's alone to read.
func kept(path string, generate func() string) (string, error) {
	found, err := os.ReadFile(path)
	if err == nil && len(found) >= 32 {
		return string(found), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read a key: %w", err)
	}
	key := generate()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("keep a key: %w", err)
	}
	if err := os.WriteFile(path, []byte(key), 0o600); err != nil {
		return "", fmt.Errorf("keep a key: %w", err)
	}
	return key, nil
}

func randomKey() string {
	random := make([]byte, 48)
	_, _ = rand.Read(random) // it never fails; see its documentation
	return base64.RawURLEncoding.EncodeToString(random)
}
