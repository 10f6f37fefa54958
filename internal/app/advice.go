package app

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

// advice is what the database's administrator should change, each sentence once
// however many parts of the process find it.
type advice struct {
	mu   sync.Mutex
	said []string
}

// seek asks a database for advice and logs what is new. A database that cannot
// tell is used all the same.
func (a *advice) seek(ctx context.Context, db *postgres.DB, log *slog.Logger) {
	found, err := db.Advice(ctx)
	if err != nil {
		log.WarnContext(ctx, "the database's settings were not checked", "error", err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, sentence := range found {
		if !slices.Contains(a.said, sentence) {
			a.said = append(a.said, sentence)
			log.WarnContext(ctx, "the database has a setting that it should not have", "advice", sentence)
		}
	}
}

// list is all that was found.
func (a *advice) list() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.said)
}
