package secret

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// Resolver opens, for one attempt, what its job refers to. It belongs to the
// worker, whose role may read what is sealed.
type Resolver struct {
	db   *postgres.DB
	keys *keyring.Ring
}

// NewResolver makes a resolver of a database that acts as the engine. Nil keys
// open nothing.
func NewResolver(db *postgres.DB, keys *keyring.Ring) *Resolver { return &Resolver{db: db, keys: keys} }

// read reads a tenant's sealed secrets by name.
func (r *Resolver) read(ctx context.Context, tenant uuid.UUID, names []string) (map[string]sealed, error) {
	rows, err := db.New(r.db.Pool()).ListSealedSecrets(ctx, db.ListSealedSecretsParams{TenantID: tenant, Names: names})
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", postgres.Fault(err))
	}
	found := make(map[string]sealed, len(rows))
	for _, row := range rows {
		found[row.Name] = sealed{id: row.ID, sealed: row.Sealed}
	}
	return found, nil
}
