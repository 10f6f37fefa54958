package app

import (
	"context"
	"io"
	"log/slog"

	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Order is what a task of cmd/migrate is told.
type Order struct {
	Config config.Migrate
	Args   []string  // that follow its name
	Out    io.Writer // for what another program reads
	Log    *slog.Logger
}

// Tasks are what cmd/migrate does instead of migrating, by the name that
// follows its own.
func Tasks() map[string]func(context.Context, Order) error {
	return map[string]func(context.Context, Order) error{
		"rotate-secrets": rotateSecrets,
		"verify-audit":   verifyAudit,
	}
}

// Migrate brings the schema up to date, makes the partitions of the coming
// months, and, where DATABASE_URL is set, makes its login a member of the
// processes' roles.
func Migrate(ctx context.Context, c config.Migrate, log *slog.Logger) error {
	owner := c.OwnerURL.Reveal()
	applied, err := postgres.Migrate(ctx, owner)
	if err != nil {
		return err
	}
	made, err := partition.Prepare(ctx, owner, c.PartitionsAhead)
	if err != nil {
		return err
	}
	if !c.DatabaseURL.IsZero() {
		if err := postgres.EnsureLogin(ctx, owner, c.DatabaseURL.Reveal()); err != nil {
			return err
		}
	}
	log.InfoContext(ctx, "the schema is up to date", "migrations_applied", applied, "partitions_made", made)
	return nil
}
