package postgres

import (
	"context"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
)

// MigrateFiles is Migrate with the files of another folder, each of which it
// tries so many times.
func MigrateFiles(ctx context.Context, ownerURL string, files fs.FS, log *slog.Logger, tries int) (applied int, err error) {
	return migrator{ownerURL: ownerURL, files: files, log: log, tries: tries}.up(ctx)
}

// Row asks within a transaction.
func (tx *Tx) Row(ctx context.Context, sql string) pgx.Row { return tx.through.QueryRow(ctx, sql) }

// EnginePlans sets what decides about plans in the sessions of promoters and workers.
func EnginePlans() string {
	var text strings.Builder
	for _, s := range (Config{Role: Engine}).session() {
		if strings.HasPrefix(s.name, "enable_") || s.name == "plan_cache_mode" || s.name == "jit" {
			text.WriteString("SET " + s.name + " = '" + s.value + "';")
		}
	}
	return text.String()
}

// Adjust has the pool ask the server for a session, as it does every some seconds.
func (d *DB) Adjust(ctx context.Context) { d.bound.adjust(ctx) }
