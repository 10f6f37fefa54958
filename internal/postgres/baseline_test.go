package postgres_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/migrations"
)

// before10 are the migrations of the last version before 1.0.
func before10() fs.FS { return os.DirFS("testdata/before-1.0") }

// toBaseline are those that take an installation from there to the baseline.
func toBaseline(t *testing.T) fs.FS {
	t.Helper()
	folder, err := migrations.Before()
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// lastOfBaseline is the number of its last file; later ones have 200 and more.
const lastOfBaseline = 107

// baseline is what a new installation of 1.0 applies.
func baseline(t *testing.T) fstest.MapFS {
	t.Helper()
	folder := fstest.MapFS{}
	for name, text := range texts(t, migrations.FS) {
		if number, err := goose.NumericComponent(name); err != nil {
			t.Fatal(err)
		} else if number <= lastOfBaseline {
			folder[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return folder
}

// texts are the migrations of folders, by name.
func texts(t *testing.T, folders ...fs.FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, folder := range folders {
		names, err := fs.Glob(folder, "*.sql")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := fs.ReadFile(folder, name)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(text)
		}
	}
	return all
}

func apply(t *testing.T, database *pgtest.Database, folder fs.FS) {
	t.Helper()
	if _, err := postgres.MigrateFiles(t.Context(), database.OwnerURL, folder, slog.New(slog.DiscardHandler), 1); err != nil {
		t.Fatal(err)
	}
}

func TestMigrationsAfterTheBaselineHaveHigherNumbers(t *testing.T) {
	t.Parallel()
	numbers := map[string]string{}
	for name := range texts(t, migrations.FS, toBaseline(t)) {
		number, err := goose.NumericComponent(name)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := numbers[fmt.Sprint(number)]; ok {
			t.Errorf("%s and %s have one number", name, other)
		}
		numbers[fmt.Sprint(number)] = name
		if _, err := fs.Stat(migrations.FS, name); err == nil && (number < migrations.FirstOfBaseline || number > lastOfBaseline && number < 200) {
			t.Errorf("%s: a migration after the baseline has a number from 000200 on", name)
		}
	}
	text := texts(t, toBaseline(t))["000099_baseline.sql"]
	if want := fmt.Sprintf("generate_series(%d, %d)", migrations.FirstOfBaseline, lastOfBaseline); !strings.Contains(text, want) || len(baseline(t)) != lastOfBaseline-migrations.FirstOfBaseline+1 {
		t.Errorf("000099_baseline.sql must record the %d files of the baseline: %s", len(baseline(t)), want)
	}
}

// catalogue lists what a schema is made of, one line for each thing. Columns are
// compared by name: an installation that grew has them in another order.
const catalogue = `
WITH things AS (
	SELECT c.oid, c.relname, c.relkind, c.relacl, c.reloptions, c.relrowsecurity, c.relforcerowsecurity, c.reltoastrelid FROM pg_class c
	WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition AND c.relname NOT LIKE 'goose%'
)
SELECT format('relation %s %s %s options %s toast %s rls %s %s', relkind, relname,
              ARRAY(SELECT a::text FROM unnest(relacl) a ORDER BY 1), ARRAY(SELECT o FROM unnest(reloptions) o ORDER BY 1),
              (SELECT t.reloptions FROM pg_class t WHERE t.oid = reltoastrelid), relrowsecurity, relforcerowsecurity) FROM things WHERE relkind IN ('r', 'p', 'v', 'S')
UNION ALL
SELECT format('column %s.%s %s %s default %s%s%s storage %s acl %s', t.relname, a.attname, format_type(a.atttypid, a.atttypmod),
              CASE WHEN a.attnotnull THEN 'not null' END, pg_get_expr(d.adbin, d.adrelid), a.attgenerated, a.attidentity, a.attstorage,
              ARRAY(SELECT x::text FROM unnest(a.attacl) x ORDER BY 1))
FROM things t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = t.oid AND d.adnum = a.attnum WHERE t.relkind IN ('r', 'p', 'v')
UNION ALL
SELECT format('constraint %s.%s %s %s', t.relname, k.conname, k.convalidated, pg_get_constraintdef(k.oid)) FROM things t JOIN pg_constraint k ON k.conrelid = t.oid AND k.contype <> 't'
UNION ALL
SELECT format('index %s', pg_get_indexdef(t.oid)) FROM things t WHERE t.relkind IN ('i', 'I')
UNION ALL
SELECT format('view %s %s', t.relname, pg_get_viewdef(t.oid)) FROM things t WHERE t.relkind = 'v'
UNION ALL
SELECT format('policy %s.%s %s %s %s using %s check %s', t.relname, p.polname, p.polcmd, p.polpermissive, p.polroles::regrole[],
              pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)) FROM things t JOIN pg_policy p ON p.polrelid = t.oid
UNION ALL
SELECT format('trigger %s %s', g.tgenabled, pg_get_triggerdef(g.oid)) FROM things t JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal
UNION ALL
SELECT format('function %s acl %s %s', p.oid::regprocedure, ARRAY(SELECT a::text FROM unnest(p.proacl) a ORDER BY 1), pg_get_functiondef(p.oid))
FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
UNION ALL
SELECT format('schema %s', ARRAY(SELECT a::text FROM unnest(n.nspacl) a ORDER BY 1)) FROM pg_namespace n WHERE n.nspname = 'public'
ORDER BY 1`

func catalogueOf(t *testing.T, database *pgtest.Database) []string {
	t.Helper()
	rows, err := connect(t, database.AdminURL).Query(t.Context(), catalogue)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// leftovers are what an upgraded installation keeps for processes of the version
// before, and a new one has not. See 000099_baseline.sql.
var leftovers = []string{
	"column active_executions.dispatch_seq ",
	"column running_counts.running_http ", "column running_counts.running_function ", "column running_counts.running_command ",
	"function is_of_types(", "function next_of_job(", "function next_of_key(",
}

func TestTheBaselineMakesWhatAnUpgradeMakes(t *testing.T) {
	t.Parallel()
	grown, made := pgtest.Empty(t), pgtest.Empty(t)
	apply(t, grown, before10())
	apply(t, grown, toBaseline(t))
	apply(t, made, baseline(t))
	var found int
	old := slices.DeleteFunc(catalogueOf(t, grown), func(line string) bool {
		kept := slices.ContainsFunc(leftovers, func(l string) bool { return strings.HasPrefix(line, l) })
		if kept {
			found++
		}
		return kept
	})
	for i, line := range old {
		old[i] = strings.Replace(line, "sweep_at,dispatch_seq,available_at", "sweep_at,available_at", 1) // a leftover is not recorded
	}
	slices.Sort(old)
	if diff := cmp.Diff(old, catalogueOf(t, made)); diff != "" {
		t.Errorf("the baseline differs (-grown +baseline):\n%s", diff)
	}
	if found != len(leftovers) || len(old) < 500 {
		t.Errorf("%d of %d leftovers, %d things: the test shows nothing", found, len(leftovers), len(old))
	}
}

func TestAnInstallationFromBefore10IsUpgraded(t *testing.T) {
	t.Parallel()
	database := pgtest.Empty(t)
	apply(t, database, before10())
	filled(t, database)
	admin := connect(t, database.AdminURL)
	rows := func() map[string]int {
		all := map[string]int{}
		for _, table := range append([]string{"executions"}, hotTables...) {
			all[table] = count(t, admin, "SELECT count(*) FROM "+table)
		}
		return all
	}
	was := rows()
	applied, err := postgres.Migrate(t.Context(), database.OwnerURL, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if want := len(texts(t, toBaseline(t))) + migrationCount(t) - len(baseline(t)); applied != want {
		t.Errorf("%d migrations applied, want %d", applied, want)
	}
	if diff := cmp.Diff(was, rows()); diff != "" {
		t.Errorf("rows (-before +after):\n%s", diff)
	}
	want, err := postgres.SchemaVersion()
	if got := count(t, admin, "SELECT schema_version()"); err != nil || int64(got) != want {
		t.Errorf("the schema is at version %d, want %d: %v", got, want, err)
	}
	// Processes of the version before go on: they name what is left over.
	exec(t, admin, "UPDATE active_executions SET dispatch_seq = 1")
	exec(t, admin, "UPDATE running_counts SET running_http = running_http + 1")
	exec(t, admin, "SELECT next_of_job(job_id, '{http}', now(), 1, 1) FROM active_executions LIMIT 1")
	if _, err := partition.Prepare(t.Context(), database.OwnerURL, partition.Month, 3); err != nil {
		t.Error(err)
	}
	if again, err := postgres.Migrate(t.Context(), database.OwnerURL, slog.New(slog.DiscardHandler)); err != nil || again != 0 {
		t.Errorf("%d migrations applied again: %v", again, err)
	}
}

func TestAnInstallationThatIsTooOldIsRefused(t *testing.T) {
	t.Parallel()
	database := pgtest.Empty(t)
	folder := fstest.MapFS{}
	for name, text := range texts(t, before10()) {
		if !strings.HasPrefix(name, fmt.Sprintf("%06d", migrations.LastBefore)) {
			folder[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	apply(t, database, folder)
	was := catalogueOf(t, database)
	n, err := postgres.Migrate(t.Context(), database.OwnerURL, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(migrations.LastBefore)) || n != 0 {
		t.Errorf("%d applied: %v", n, err)
	}
	if diff := cmp.Diff(was, catalogueOf(t, database)); diff != "" {
		t.Errorf("the schema was changed (-was +is):\n%s", diff)
	}
}

func TestMigratorsAtOnceUpgradeOnce(t *testing.T) {
	t.Parallel()
	database := pgtest.Empty(t)
	apply(t, database, before10())
	ended := make(chan outcome, 3)
	for range cap(ended) {
		go func() {
			n, err := postgres.Migrate(t.Context(), database.OwnerURL, slog.New(slog.DiscardHandler))
			ended <- outcome{n, err}
		}()
	}
	sum := 0
	for range cap(ended) {
		end := <-ended
		if sum += end.applied; end.err != nil {
			t.Error(end.err)
		}
	}
	if want := len(texts(t, toBaseline(t))) + migrationCount(t) - len(baseline(t)); sum != want {
		t.Errorf("%d migrations applied in all, want %d", sum, want)
	}
}
