package rest_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// A page of jobs ends at its limit or when it is large, and the pages together are
// the list. Not parallel: what other tests allocate would be counted.
func TestAPageOfLargeJobsIsShort(t *testing.T) {
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	_, err := b.admin(t).Exec(t.Context(), `INSERT INTO scheduled_jobs
		SELECT (jsonb_populate_record(j, jsonb_build_object('id', gen_random_uuid(), 'created_at', j.created_at - n * interval '1 second',
			'config', jsonb_set(j.config, '{body}', to_jsonb(n::text || repeat(md5(n::text), 7812)))))).*
		FROM scheduled_jobs j, generate_series(1, 99) n WHERE j.id = $1`, b.makeJob(t, b.ours).ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, sort := range []string{"", "&sort=-createdAt", "&sort=createdAt", "&sort=name"} {
		most, pages, seen := uint64(0), 0, map[uuid.UUID]bool{}
		for next := ""; ; pages++ {
			var page api.JobPage
			most = max(most, allocated(1, func() {
				page = read[api.JobPage](t, b.do(t, request{method: "GET", path: base + "/jobs?limit=100" + sort + next, token: token}), http.StatusOK)
			}))
			for _, j := range page.Items {
				seen[j.ID] = true
			}
			if !page.HasMore {
				break
			}
			next = "&cursor=" + *page.NextCursor
		}
		if t.Logf("%q: %d pages, %d bytes at most", sort, pages+1, most); len(seen) != 100 || pages < 10 || most > 2*mostBytes {
			t.Errorf("sorted by %q: %d jobs on %d pages, %d bytes allocated for one", sort, len(seen), pages+1, most)
		}
	}
}
