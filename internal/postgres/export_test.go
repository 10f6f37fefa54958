package postgres

import (
	"context"
	"io/fs"
	"log/slog"
)

// MigrateFiles is Migrate with the files of another folder, each of which it
// tries so many times.
func MigrateFiles(ctx context.Context, ownerURL string, files fs.FS, log *slog.Logger, tries int) (applied int, err error) {
	return migrator{ownerURL: ownerURL, files: files, log: log, tries: tries}.up(ctx)
}
