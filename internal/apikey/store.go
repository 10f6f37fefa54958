package apikey

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/tenant"
	"github.com/scheduler-service/scheduler/internal/turn"
)

const (
	// rememberFor is how long a process trusts a key that it has read before it
	// reads it again: a revoked key works at most that long in another process.
	rememberFor = 2 * time.Second
	// maxBelieved bounds the memory of keys.
	maxBelieved = 10_000
	// touchEvery is how old lastUsedAt gets before it is written again.
	touchEvery = time.Minute
)

// Store keeps a tenant's keys. Each method acts for one tenant; the id of
// another tenant's key is answered as one that does not exist.
type Store struct {
	db *postgres.DB

	mu       sync.Mutex
	believed map[string]remembered // by the hash of the key
}

// remembered is a key as it was read.
type remembered struct {
	id    uuid.UUID
	who   identity.Principal
	until time.Time // when the key ends; zero: never
	found clock.Mark
}

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store { return &Store{db: db, believed: map[string]remembered{}} }

// Position is a place in a list of keys, newest first.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// Create stores a valid key and returns its text, which is kept nowhere.
func (s *Store) Create(ctx context.Context, who tenant.Actor, spec Spec) (key Key, text string, err error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return Key{}, "", fmt.Errorf("make a key id: %w", err)
	}
	text = mint(id, who.TenantID)
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if err := tenant.CheckQuota(ctx, tx, who.TenantID, tenant.APIKeys); err != nil {
			return err
		}
		row, err := tx.InsertApiKey(ctx, db.InsertApiKeyParams{
			ID: id, TenantID: who.TenantID, Name: spec.Name, Prefix: text[:shown], Hash: hash(text),
			Scopes: plain(spec.Scopes), ExpiresAt: spec.ExpiresAt, CreatedBy: who.Subject, Now: tx.At,
		})
		if err != nil {
			return fmt.Errorf("insert API key: %w", err)
		}
		key = fromRow(row)
		return nil
	})
	return key, text, err
}

// Get reads one key.
func (s *Store) Get(ctx context.Context, who tenant.Actor, id uuid.UUID) (key Key, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.GetApiKey(ctx, db.GetApiKeyParams{TenantID: who.TenantID, ID: id})
		if err != nil {
			return missing(err)
		}
		key = fromRow(row)
		return nil
	})
	return key, err
}

// List reads a page of keys, newest first, from after a position on (nil: from
// the first).
func (s *Store) List(ctx context.Context, who tenant.Actor, limit int, after *Position) (list []Key, err error) {
	params := db.ListApiKeysParams{
		TenantID: who.TenantID, PageSize: int32(limit), BeforeID: uuid.Max, BeforeCreatedAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	if after != nil {
		params.BeforeCreatedAt, params.BeforeID = after.CreatedAt, after.ID
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListApiKeys(ctx, params)
		if err != nil {
			return fmt.Errorf("list API keys: %w", err)
		}
		for _, row := range rows {
			list = append(list, fromRow(row))
		}
		return nil
	})
	return list, err
}

// Rotate replaces the text of a key; the old one works for the grace still.
// A caller that may do less than the key is Forbidden to have it.
func (s *Store) Rotate(ctx context.Context, who identity.Principal, id uuid.UUID, grace time.Duration) (key Key, text string, err error) {
	text = mint(id, who.Actor.TenantID)
	err = s.db.InTenant(ctx, who.Actor.TenantID, func(tx *postgres.Tx) error {
		old, err := tx.GetApiKey(ctx, db.GetApiKeyParams{TenantID: who.Actor.TenantID, ID: id})
		if err != nil {
			return missing(err)
		}
		if exceeds(fromRow(old).Scopes, who) {
			return fault.New(fault.Forbidden, fault.CodeForbidden, "the key has permissions that you do not have, so you cannot rotate it")
		}
		until := tx.At.Add(grace)
		row, err := tx.RotateApiKey(ctx, db.RotateApiKeyParams{
			TenantID: who.Actor.TenantID, ID: id, Hash: hash(text), OldUntil: &until, Now: tx.At,
		})
		if err != nil {
			return missing(err)
		}
		key = fromRow(row)
		return nil
	})
	s.forget(id)
	return key, text, err
}

// Delete revokes a key: at once in this process, within two seconds in others.
func (s *Store) Delete(ctx context.Context, who tenant.Actor, id uuid.UUID) error {
	err := s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		n, err := tx.DeleteApiKey(ctx, db.DeleteApiKeyParams{TenantID: who.TenantID, ID: id})
		if err == nil && n == 0 {
			return NotFound()
		}
		return err
	})
	s.forget(id)
	return err
}

// Before is a way in that takes API keys and leaves all else to next.
func (s *Store) Before(next func(context.Context, http.Header) (identity.Principal, error)) func(context.Context, http.Header) (identity.Principal, error) {
	return func(ctx context.Context, h http.Header) (identity.Principal, error) {
		token, err := identity.Bearer(h)
		if err != nil || !strings.HasPrefix(token, mark) {
			return next(ctx, h)
		}
		return s.authenticate(ctx, token)
	}
}

func (s *Store) authenticate(ctx context.Context, text string) (identity.Principal, error) {
	id, tenantID, ok := read(text)
	if !ok {
		return identity.Principal{}, refused()
	}
	sum := hash(text)
	if who, ok := s.remembered(string(sum)); ok {
		return who, nil
	}
	var found remembered
	err := s.db.InTenant(turn.Login(ctx), tenantID, func(tx *postgres.Tx) error {
		row, err := tx.GetApiKey(ctx, db.GetApiKeyParams{TenantID: tenantID, ID: id})
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
			return refused()
		}
		if err != nil {
			return fmt.Errorf("look for the API key: %w", err)
		}
		if found, err = believe(row, sum, tx.At); err != nil || !stale(row.LastUsedAt, tx.At) {
			return err
		}
		return tx.TouchApiKey(ctx, db.TouchApiKeyParams{TenantID: tenantID, ID: id, Now: tx.At, StaleBefore: tx.At.Add(-touchEvery)})
	})
	if err != nil {
		return identity.Principal{}, err
	}
	s.remember(string(sum), found)
	return found.who, nil
}

// Costs says that the header has an API key for which Before has to ask the database
// and that was not good before: each costs a look. A key that was good stays known
// by its hash, which no guess has.
func (s *Store) Costs(h http.Header) bool {
	token, err := identity.Bearer(h)
	if err != nil || !strings.HasPrefix(token, mark) {
		return false
	}
	if _, _, ok := read(token); !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.believed[string(hash(token))]
	return !known
}

// believe decides whether a row's key is the one that was sent.
func believe(row db.ApiKey, sum []byte, now time.Time) (remembered, error) {
	key := fromRow(row)
	b := remembered{id: key.ID, who: identity.Principal{
		Actor: tenant.Actor{TenantID: key.TenantID, Subject: "api-key:" + key.ID.String()}, Scopes: key.Scopes, Key: key.ID,
	}}
	if key.ExpiresAt != nil {
		b.until = *key.ExpiresAt
	}
	switch {
	case same(row.Hash, sum):
	case row.OldHash != nil && same(row.OldHash, sum):
		if b.until.IsZero() || row.OldUntil.Before(b.until) {
			b.until = *row.OldUntil
		}
	default:
		return remembered{}, refused()
	}
	if !b.until.IsZero() && !b.until.After(now) {
		return remembered{}, refused()
	}
	b.found = clock.Start()
	return b, nil
}

func stale(used *time.Time, now time.Time) bool { return used == nil || now.Sub(*used) > touchEvery }

func (s *Store) remembered(sum string) (identity.Principal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.believed[sum]
	if !ok || b.found.Elapsed() >= rememberFor || !b.until.IsZero() && !b.until.After(clock.Now()) {
		return identity.Principal{}, false
	}
	return b.who, true
}

func (s *Store) remember(sum string, b remembered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.believed) >= maxBelieved {
		clear(s.believed)
	}
	s.believed[sum] = b
}

func (s *Store) forget(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sum, b := range s.believed {
		if b.id == id {
			delete(s.believed, sum)
		}
	}
}

func fromRow(r db.ApiKey) Key {
	key := Key{
		Spec: Spec{Name: r.Name, ExpiresAt: columns.UTC(r.ExpiresAt), Scopes: make([]identity.Permission, len(r.Scopes))},
		ID:   r.ID, TenantID: r.TenantID, Prefix: r.Prefix, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt.UTC(),
		RotatedAt: columns.UTC(r.RotatedAt), LastUsedAt: columns.UTC(r.LastUsedAt),
	}
	for i, scope := range r.Scopes {
		key.Scopes[i] = identity.Permission(scope)
	}
	return key
}

// plain is the scopes in order, each once.
func plain(scopes []identity.Permission) []string {
	texts := make([]string, len(scopes))
	for i, scope := range scopes {
		texts[i] = string(scope)
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// missing turns "no row" into the answer for a key that is not there.
func missing(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return NotFound()
	}
	return fmt.Errorf("read API key: %w", err)
}
