package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// says stores a chunk of lines of an attempt, numbered from a number on, in turns of the streams.
func (b *bundle) says(t *testing.T, id uuid.UUID, attempt, from, n int) {
	t.Helper()
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"n":%d,"at":1767225600000000,"s":%q,"t":"line %d"}`, from+i, []string{"stdout", "stderr"}[i%2], from+i)
	}
	b.chunk(t, id, attempt, from+n-1, "["+strings.Join(lines, ",")+"]")
}

func (b *bundle) chunk(t *testing.T, id uuid.UUID, attempt, last int, lines string) {
	t.Helper()
	_, err := b.engine.Pool().Exec(t.Context(), `INSERT INTO execution_output (execution_id, attempt, last_line, tenant_id, lines, written_at)
		VALUES ($1, $2, $3, $4, $5, now())`, id, attempt, last, b.ours.TenantID, lines)
	if err != nil {
		t.Fatal(err)
	}
}

func TestLogsArePagedInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.makeExecution(t, b.ours, b.makeJob(t, b.ours).ID)
	for chunk := range 40 {
		b.says(t, e.ID, 1, 1+7*chunk, 7)
	}
	b.says(t, e.ID, 2, 1, 1)
	b.chunk(t, e.ID, 2, 900, `[{"n":900,"at":1,"d":{"lines":898,"bytes":5}}]`)
	token := b.token(t, b.ours, identity.Viewer)
	read := func(query string) (ids []string) {
		for cursor, more := "", true; more; {
			page := read[api.LogPage](t, b.do(t, request{method: "GET", path: base + "/executions/" + e.ID.String() + "/logs?" + query + cursor, token: token}), http.StatusOK)
			for _, l := range page.Items {
				ids = append(ids, l.ID)
			}
			if more = page.HasMore; more {
				cursor = "&cursor=" + *page.NextCursor
			}
		}
		return ids
	}
	var all, stderr []string
	for n := 1; n <= 280; n++ {
		all = append(all, fmt.Sprintf("1.%d", n))
		if (n-1)%7%2 == 1 {
			stderr = append(stderr, fmt.Sprintf("1.%d", n))
		}
	}
	last := []string{"2.1", "2.900"}
	for _, test := range []struct {
		query string
		want  []string
	}{
		{"limit=1000", append(all, last...)},
		{"limit=33", append(all, last...)},
		{"limit=9&stream=stderr", append(stderr, "2.900")},
		{"attempt=2", last},
		{"attempt=3", nil},
	} {
		if diff := cmp.Diff(test.want, read(test.query)); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", test.query, diff)
		}
	}
	gap := b.lastLine(t, token, e.ID)
	if d := *gap.Dropped; d.Lines != 898 || d.Bytes != 5 || gap.Stream != nil {
		t.Errorf("the line of dropped ones is %+v", gap)
	}
	for _, wrong := range []string{"cursor=x", "cursor=1.2.3", "attempt=0", "stream=stdin", "limit=1001"} {
		refused(t, b.do(t, request{method: "GET", path: base + "/executions/" + e.ID.String() + "/logs?" + wrong, token: token}), http.StatusBadRequest, "VALIDATION_FAILED")
	}
	refused(t, b.do(t, request{method: "GET", path: base + "/executions/" + e.ID.String() + "/logs", token: b.token(t, b.theirs, identity.Viewer)}), http.StatusNotFound, "EXECUTION_NOT_FOUND")
}

// lastLine reads the last line of the second attempt.
func (b *bundle) lastLine(t *testing.T, token string, id uuid.UUID) api.LogLine {
	t.Helper()
	page := read[api.LogPage](t, b.do(t, request{method: "GET", path: base + "/executions/" + id.String() + "/logs?attempt=2&cursor=2.1", token: token}), http.StatusOK)
	if len(page.Items) != 1 {
		t.Fatalf("read %+v", page)
	}
	return page.Items[0]
}
