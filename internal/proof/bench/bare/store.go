// Package bare is the least that any API of rows does: verify a token, read a row by
// its key or write one, answer it as JSON. It has no limits, no tenants, no record of
// changes and no contract; no API with them is faster on the same machine.
//
// It owns a table of its own. It refuses to measure, which package bench does.
package bare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Rows is how many rows there are to read, with the ids from ID(0) on.
const Rows = 100_000

// conns is how many connections to the database there are, as many as the product's.
const conns = 20

// ID is the id of a row.
func ID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n%Rows) }

// Serve serves GET /rows/{id} and POST /rows from this process, to who has a token of
// the secret, until it is stopped.
func Serve(ctx context.Context, database string, secret []byte) (address string, stop func() error, err error) {
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return "", nil, fmt.Errorf("open the bare database: %w", err)
	}
	config.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return "", nil, fmt.Errorf("open the bare database: %w", postgres.Fault(err))
	}
	for _, statement := range []string{
		`CREATE TABLE bare (id uuid PRIMARY KEY, body jsonb NOT NULL)`,
		`INSERT INTO bare SELECT ('00000000-0000-4000-8000-' || lpad(i::text, 12, '0'))::uuid,
			jsonb_build_object('id', i, 'name', 'nightly', 'config', jsonb_build_object('url', 'https://example.com/nightly', 'method', 'POST')) FROM generate_series(0, 99999) i`,
		`VACUUM ANALYZE bare`,
	} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			pool.Close()
			return "", nil, fmt.Errorf("prepare the bare database: %w", postgres.Fault(err))
		}
	}
	tokens, err := identity.NewTokens(identity.Config{Secret: secret, Clock: clock.Now})
	if err != nil {
		pool.Close()
		return "", nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		pool.Close()
		return "", nil, err
	}
	server := &http.Server{Handler: handler(pool, tokens), ReadHeaderTimeout: time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	stop = func() error {
		err := server.Close()
		if serving := <-ended; !errors.Is(serving, http.ErrServerClosed) {
			err = errors.Join(err, serving)
		}
		pool.Close()
		return err
	}
	return listener.Addr().String(), stop, nil
}

func handler(pool *pgxpool.Pool, tokens *identity.Tokens) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, answer func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			_, err := tokens.Authenticate(r.Context(), r.Header)
			var body any
			if err == nil {
				body, err = answer(r)
			}
			if err != nil {
				panic(http.ErrAbortHandler) // who measures sees the connection end
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(body)
		})
	}
	handle("GET /rows/{id}", func(r *http.Request) (any, error) {
		var body json.RawMessage
		err := pool.QueryRow(r.Context(), `SELECT body FROM bare WHERE id = $1`, r.PathValue("id")).Scan(&body)
		return body, err
	})
	handle("POST /rows", func(r *http.Request) (any, error) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		var body map[string]any
		if err := json.Unmarshal(text, &body); err != nil {
			return nil, err
		}
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		_, err = pool.Exec(r.Context(), `INSERT INTO bare VALUES ($1, $2)`, id, json.RawMessage(text))
		return body, err
	})
	return mux
}
