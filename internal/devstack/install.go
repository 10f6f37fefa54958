package devstack

import (
	"context"
	"errors"
)

// errNoPostgres says what to do when there is no PostgreSQL.
var errNoPostgres = errors.New("PostgreSQL 15 or newer is not installed: install it (apt-get install postgresql, dnf install postgresql-server, apk add postgresql or brew install postgresql), or set DATABASE_URL to one that runs")

// findPostgres lists what is installed, newest first and at least one.
func findPostgres(_ context.Context, o Options) ([]binaries, error) {
	list := o.finder().postgres()
	if len(list) == 0 {
		return nil, errNoPostgres
	}
	return list, nil
}
