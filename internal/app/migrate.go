package app

import (
	"context"
	"errors"
	"fmt"
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

// Task is something that cmd/migrate does instead of migrating.
type Task struct {
	Name  string // that follows the program's own
	Args  string // what follows the task's name, for a person
	About string
	do    func(context.Context, Order) error
}

var errNoOwner = errors.New("DATABASE_OWNER_URL: is not set; only the owner of the schema can migrate it")

// Tasks are what cmd/migrate can do beside migrating, in the order of its help.
func Tasks() []Task {
	return []Task{
		{Name: "create-tenant", Args: "NAME [ID]", About: "make a tenant and print its id", do: createTenant},
		{Name: "mint-token", Args: "ROLE TENANT_ID [HOURS]", About: "sign a token with JWT_SECRET and print it", do: mintToken},
		{Name: "rotate-secrets", About: "seal every secret with the first key of SECRETS_KEYS", do: rotateSecrets},
		{Name: "index-history", About: "give an older installation's history the index of a new one, while the processes work", do: indexHistory},
		{Name: "verify-audit", Args: "[ANCHORS]", About: "follow the audit log and print its anchors", do: verifyAudit},
	}
}

// Administer does the task that the first argument names, and migrates without
// one.
func Administer(ctx context.Context, o Order, args []string) error {
	if len(args) == 0 {
		return Migrate(ctx, o.Config, o.Log)
	}
	for _, t := range Tasks() {
		if t.Name == args[0] {
			o.Args = args[1:]
			return t.do(ctx, o)
		}
	}
	return fmt.Errorf("unknown task %q", args[0])
}

// Migrate brings the schema up to date, makes the partitions of the time to
// come, and, where DATABASE_URL is set, makes its login a member of the
// processes' roles.
func Migrate(ctx context.Context, c config.Migrate, log *slog.Logger) error {
	if c.OwnerURL.IsZero() {
		return errNoOwner
	}
	owner := c.OwnerURL.Reveal()
	applied, err := postgres.Migrate(ctx, owner, log)
	if err != nil {
		return err
	}
	made, err := partition.Prepare(ctx, owner, partition.Term{Days: c.RetentionDays}.Span(), c.PartitionsAhead)
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

func indexHistory(ctx context.Context, o Order) error {
	if o.Config.OwnerURL.IsZero() {
		return errNoOwner
	}
	done, err := postgres.IndexHistory(ctx, o.Config.OwnerURL.Reveal(), o.Log)
	if err != nil {
		return err
	}
	o.Log.InfoContext(ctx, "the history has the index of a new installation", "changed", done)
	return nil
}
