package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/rest"
)

// admin is a connection that policies do not bind.
func (b *bundle) admin(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// largeVersions makes a job with so many versions of 250 kB, each of which changed
// the body of its request. Where their changes are not stored, they are from
// before that was done.
func (b *bundle) largeVersions(t *testing.T, n int, stored bool) uuid.UUID {
	t.Helper()
	id := b.makeJob(t, b.ours).ID
	admin := b.admin(t)
	for _, sql := range []string{
		`INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by, created_at, changed_fields)
		SELECT v.job_id, n, v.tenant_id, jsonb_set(v.spec, '{config,body}', to_jsonb(n::text || repeat(md5(n::text), 7812))), 'ada', now(),
			CASE WHEN $2::boolean THEN '{config.body}'::text[] END
		FROM job_versions v, generate_series(2, $3::int) n WHERE v.job_id = $1 AND v.version = 1`,
		`UPDATE scheduled_jobs SET version = $3 WHERE id = $1 AND $2::boolean IS NOT NULL`,
	} {
		if _, err := admin.Exec(t.Context(), sql, id, stored, n); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

// allocated is how many bytes are allocated while so many callers do something at
// once, for each of them.
func allocated(callers int, do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	for range callers {
		all.Go(do)
	}
	all.Wait()
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / uint64(callers)
}

// A list of versions holds what it answers, and not the definitions. Not parallel:
// what other tests allocate would be counted.
func TestAListOfVersionsHoldsNoDefinitions(t *testing.T) {
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	list := func(id uuid.UUID, query string) api.JobVersionPage {
		path := base + "/jobs/" + id.String() + "/versions?limit=100" + query
		return read[api.JobVersionPage](t, b.do(t, request{method: "GET", path: path, token: token}), http.StatusOK)
	}
	id := b.largeVersions(t, 101, true)
	list(id, "")
	bytes := allocated(4, func() {
		if page := list(id, ""); len(page.Items) != 100 || !cmp.Equal(page.Items[99].ChangedFields, []string{"config.body"}) {
			t.Errorf("%d versions, the last %+v", len(page.Items), page.Items)
		}
	})
	if t.Logf("%d bytes a request", bytes); bytes > 4<<20 {
		t.Errorf("a list of 100 versions allocates %d bytes", bytes)
	}

	old := b.largeVersions(t, 101, false)
	most, versions, pages := uint64(0), 0, 0
	for next := ""; ; pages++ {
		var page api.JobVersionPage
		most = max(most, allocated(1, func() { page = list(old, next) }))
		for _, v := range page.Items {
			if versions++; v.Version != 102-versions || v.Version > 1 && !cmp.Equal(v.ChangedFields, []string{"config.body"}) {
				t.Fatalf("version %d changed %v", v.Version, v.ChangedFields)
			}
		}
		if !page.HasMore {
			break
		}
		next = "&cursor=" + *page.NextCursor
	}
	if t.Logf("%d pages, %d bytes at most", pages, most); versions != 101 || pages < 10 || most > 24<<20 {
		t.Errorf("%d old versions on %d pages, %d bytes allocated for one", versions, pages, most)
	}
}

// A version stores what it changed. Paths that take too much are shortened.
func TestAVersionIsStoredWithWhatItChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.makeJob(t, b.ours).ID
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf(`"a name that is long enough %d":1`, i))
	}
	b.patch(t, id, `{"priority":9,"timezone":"Asia/Tokyo"}`)
	if got := b.patch(t, id, `{"priority":8,"config":{"body":{`+strings.Join(names, ",")+`}}}`); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := b.patch(t, id, `{"config":{"body":{`+strings.ReplaceAll(strings.Join(names, ","), ":1", ":2")+`}}}`); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	var flat []string
	err := b.admin(t).QueryRow(t.Context(), `SELECT array_agg(array_to_string(changed_fields, ' ') ORDER BY version) FROM job_versions WHERE job_id = $1`, id).Scan(&flat)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"", "priority timezone", "config.body priority", "config.body"}, flat); diff != "" {
		t.Errorf("changed fields (-want +got):\n%s", diff)
	}
}

// A job keeps its newest versions and those that something needs; no update fails
// for that, and nobody may remove more.
func TestAJobKeepsItsNewestVersions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.makeJob(t, b.ours).ID
	jobs := job.NewStore(b.db, job.Config{Keys: b.keys, Versions: func() int { return 100 }, Changed: rest.ChangedFields})
	found, err := jobs.Get(t.Context(), b.ours, id)
	if err != nil {
		t.Fatal(err)
	}
	admin := b.admin(t)
	_, err = admin.Exec(t.Context(), `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at)
		VALUES (gen_random_uuid(), $1, $2, 3, now(), 'manual', 'http', 1, 1000, now(), now())`, b.ours.TenantID, id)
	if err != nil {
		t.Fatal(err)
	}
	versions := func() (kept []int32) {
		t.Helper()
		err := admin.QueryRow(t.Context(), "SELECT array_agg(version ORDER BY version) FROM job_versions WHERE job_id = $1", id).Scan(&kept)
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	update := func(store *job.Store, times int) {
		t.Helper()
		for range times {
			found.Priority = (found.Priority + 1) % 10
			if _, err := store.Update(t.Context(), b.ours, id, found.Spec, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	update(b.jobs, 129) // whose store keeps all
	update(jobs, 1)
	if n := len(versions()); n != 131-20 {
		t.Errorf("after the first update with a bound %d versions are left, want 20 fewer than 131", n)
	}
	update(jobs, 4)
	kept := versions()
	if len(kept) != 101 || kept[0] != 3 || kept[1] != 36 || kept[100] != 135 {
		t.Errorf("kept %v, want 3 and 36 to 135", kept)
	}
	// The second wall.
	err = b.db.InTenant(t.Context(), b.ours.TenantID, func(tx *postgres.Tx) error {
		_, err := tx.DeleteSurplusJobVersions(t.Context(), db.DeleteSurplusJobVersionsParams{TenantID: b.ours.TenantID, JobID: id, UpTo: 135})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(versions()); n != 101 {
		t.Errorf("%d versions are left after the API tried to remove them all", n)
	}
	token := b.token(t, b.ours, identity.Developer)
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs/" + id.String() + "/versions/5", token: token}), http.StatusNotFound, "VERSION_NOT_FOUND")
}
