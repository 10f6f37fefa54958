package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// The second wall without the first: a statement with no WHERE at all sees,
// changes and deletes rows of one tenant only, in every table that holds a
// tenant's rows, and in every partition of one, even if somebody granted it.
// Over the catalogue, so that a table of tomorrow is covered.
func TestWithoutAnyWhereOneTenantIsSeen(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	admin, api := connect(t, database.AdminURL), connect(t, database.URL)
	a, b := uuid.New(), uuid.New()
	tables := tenantTables(t, admin)
	for _, table := range tables {
		table.seed(t, admin, a, b)
	}
	exec(t, api, "SET ROLE scheduler_api")
	for _, table := range tables {
		table.readAll(t, api, a)
	}
	for _, table := range tables { // writes are recorded, in a table that was read before
		table.writeAll(t, api, a)
	}
	for _, table := range tables { // tenant b's rows are as they were
		if n := count(t, admin, fmt.Sprintf("SELECT count(*) FROM %s WHERE %s = '%s'", table.name, table.key, b)); n != 1 {
			t.Errorf("%s: tenant b has %d rows after tenant a's statements, want 1", table.name, n)
		}
	}
	if len(tables) < 10 {
		t.Errorf("only %d tables were found", len(tables))
	}
}

// tenantTable is a relation with rows of tenants.
type tenantTable struct {
	name, key string // key is the column that names the tenant
	partition bool
	columns   []string // that must be given, with a value of their type
	values    []string
	update    string // a column that the API's role may update; "" for none
	read, del bool
	spared    bool // a further policy keeps rows like those of this test from being deleted
}

func tenantTables(t *testing.T, admin *pgx.Conn) []tenantTable {
	t.Helper()
	rows, err := admin.Query(t.Context(), `
		SELECT c.relname::text, CASE WHEN c.relname = 'tenants' THEN 'id' ELSE 'tenant_id' END, c.relispartition,
			has_any_column_privilege('scheduler_api', c.oid, 'SELECT'), has_table_privilege('scheduler_api', c.oid, 'DELETE'),
			EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive AND p.polcmd = 'd' AND 'scheduler_api'::regrole = ANY (p.polroles)),
			coalesce((SELECT min(a.attname) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
				AND a.attname NOT IN ('id', 'tenant_id') AND has_column_privilege('scheduler_api', c.oid, a.attnum, 'UPDATE')), '')::text,
			ARRAY(SELECT quote_ident(a.attname) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull
				AND a.attgenerated = '' AND a.attidentity = '' AND (NOT a.atthasdef OR a.attname = 'scheduled_at') ORDER BY a.attnum),
			ARRAY(SELECT CASE WHEN a.atttypid IN (SELECT oid FROM pg_type WHERE typcategory = 'A') THEN '''{}''' ELSE CASE format_type(a.atttypid, NULL)
					WHEN 'uuid' THEN 'gen_random_uuid()' WHEN 'jsonb' THEN '''{}''' WHEN 'boolean' THEN 'false' WHEN 'bytea' THEN '''\x00'''
					WHEN 'timestamp with time zone' THEN 'now()' WHEN 'date' THEN 'current_date' WHEN 'text' THEN 'gen_random_uuid()::text'
					WHEN 'inet' THEN '''127.0.0.1''' ELSE '1' END END
				FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull
				AND a.attgenerated = '' AND a.attidentity = '' AND (NOT a.atthasdef OR a.attname = 'scheduled_at') ORDER BY a.attnum)
		FROM pg_class c
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
		  AND (c.relname = 'tenants' OR EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
		  -- the partitions of this month; the others are empty and alike
		  AND (NOT c.relispartition OR c.relname LIKE '%' || to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM'))
		ORDER BY c.relispartition, c.relname`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (found tenantTable, err error) {
		err = row.Scan(&found.name, &found.key, &found.partition, &found.read, &found.del, &found.spared, &found.update, &found.columns, &found.values)
		return found, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// seed writes one row of each tenant, past checks and references: only whose
// they are matters here. Partitions have those of their table.
func (f tenantTable) seed(t *testing.T, admin *pgx.Conn, tenants ...uuid.UUID) {
	t.Helper()
	if f.partition {
		exec(t, admin, "GRANT SELECT ON "+f.name+" TO scheduler_api")
		return
	}
	exec(t, admin, "SET session_replication_role = replica")
	var checks []string
	if err := admin.QueryRow(t.Context(), `SELECT ARRAY(SELECT conname::text FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'c')`, f.name).Scan(&checks); err != nil {
		t.Fatal(err)
	}
	for _, check := range checks {
		exec(t, admin, fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s", f.name, check))
	}
	for _, tenant := range tenants {
		values := append([]string(nil), f.values...)
		columns := append([]string(nil), f.columns...)
		named := false
		for i, column := range columns {
			if column == f.key {
				values[i], named = "'"+tenant.String()+"'", true
			}
		}
		if !named {
			columns, values = append(columns, f.key), append(values, "'"+tenant.String()+"'")
		}
		exec(t, admin, fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", f.name, strings.Join(columns, ", "), strings.Join(values, ", ")))
	}
	exec(t, admin, "RESET session_replication_role")
}

// readAll reads all that the role can reach.
func (f tenantTable) readAll(t *testing.T, api *pgx.Conn, tenant uuid.UUID) {
	t.Helper()
	if f.read || f.partition {
		if n := count(t, api, "SELECT count(*) FROM "+f.name); n != 0 {
			t.Errorf("%s: %d rows are seen without a tenant", f.name, n)
		}
	}
	exec(t, api, fmt.Sprintf("SET app.tenant_id = '%s'", tenant))
	defer exec(t, api, "RESET app.tenant_id")
	if f.read || f.partition {
		if n := count(t, api, "SELECT count(*) FROM "+f.name); n != 1 {
			t.Errorf("%s: %d rows are seen, want the tenant's one", f.name, n)
		}
	}
}

// writeAll changes and deletes all that the role can reach.
func (f tenantTable) writeAll(t *testing.T, api *pgx.Conn, tenant uuid.UUID) {
	t.Helper()
	exec(t, api, fmt.Sprintf("SET app.tenant_id = '%s'", tenant))
	defer exec(t, api, "RESET app.tenant_id")
	if f.update != "" {
		tag, err := api.Exec(t.Context(), fmt.Sprintf("UPDATE %s SET %s = %s", f.name, f.update, f.update))
		if err != nil || tag.RowsAffected() != 1 {
			t.Errorf("%s: an update of all that can be reached: %v, %v; want the tenant's one row", f.name, tag, err)
		}
	}
	if f.del {
		tag, err := api.Exec(t.Context(), "DELETE FROM "+f.name)
		if want := map[bool]int64{false: 1}[f.spared]; err != nil || tag.RowsAffected() != want {
			t.Errorf("%s: a deletion of all that can be reached: %v, %v; want %d rows, the tenant's at most", f.name, tag, err, want)
		}
	}
}
