package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// maxTenantName is the longest name of a tenant, as the contract has it.
const maxTenantName = 200

// createTenant makes a tenant with the default limits, as POST /tenants does. It
// is for the first one, before anybody has a token.
func createTenant(ctx context.Context, o Order) error {
	if len(o.Args) < 1 || len(o.Args) > 2 {
		return errors.New("create-tenant takes NAME and, if you have chosen one, ID: migrate create-tenant 'Example Ltd'")
	}
	name := strings.TrimSpace(o.Args[0])
	if name == "" || len(name) > maxTenantName {
		return fmt.Errorf("NAME has %d bytes; a tenant's name has 1 to %d", len(name), maxTenantName)
	}
	id := uuid.New()
	if len(o.Args) == 2 {
		var err error
		if id, err = uuid.Parse(o.Args[1]); err != nil {
			return fmt.Errorf("ID: %q is no UUID", o.Args[1])
		}
	}
	if o.Config.DatabaseURL.IsZero() {
		return errors.New("DATABASE_URL: is not set; this command works as the API does")
	}
	db, err := postgres.Open(ctx, postgres.Config{URL: o.Config.DatabaseURL.Reveal(), Role: postgres.API, Name: "scheduler-migrate", MaxConns: 1})
	if err != nil {
		return err
	}
	defer db.Close()
	made, err := tenant.NewStore(db, false).Create(ctx, id, tenant.Spec{Name: name})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.Out, made.ID)
	return err
}

// mintToken signs a token for a tenant with JWT_SECRET. It is for installations
// whose auth service signs with HS256, and for the time before there is one.
func mintToken(_ context.Context, o Order) error {
	if len(o.Args) < 2 || len(o.Args) > 3 {
		return errors.New("mint-token takes ROLE, TENANT_ID and, if not one hour, HOURS: migrate mint-token admin 6f1c… 8")
	}
	role := identity.Role(o.Args[0])
	if !role.Known() {
		return fmt.Errorf("ROLE: there is no role %q; give %s", role, identity.RoleNames())
	}
	id, err := uuid.Parse(o.Args[1])
	if err != nil {
		return fmt.Errorf("TENANT_ID: %q is no UUID; create-tenant prints the id of a new tenant", o.Args[1])
	}
	hours, most := 1, cmp.Or(o.Config.MaxLifetime, 8760)
	if len(o.Args) == 3 {
		if hours, err = strconv.Atoi(o.Args[2]); err != nil || hours < 1 || hours > most {
			return fmt.Errorf("HOURS: %q is no number from 1 to %d (JWT_MAX_LIFETIME_HOURS)", o.Args[2], most)
		}
	}
	key := o.Config.JWTSecret.Reveal()
	if key == "" {
		return errors.New("JWT_SECRET: is not set; where the API uses JWT_JWKS_URL, only the auth service can sign")
	}
	token, err := identity.Mint([]byte(key), identity.Claims{
		Subject: "mint-token", Tenant: id, Roles: []identity.Role{role}, Issuer: o.Config.JWTIssuer, Audience: o.Config.JWTAudience,
	}, clock.Now(), time.Duration(hours)*time.Hour)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.Out, token)
	return err
}
