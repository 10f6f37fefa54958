package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// checkCounts compares the counted jobs of each tenant with its rows.
func (b *bundle) checkCounts(t *testing.T) {
	t.Helper()
	rows, err := b.engine.Pool().Query(t.Context(), `
		SELECT t.id::text, coalesce((SELECT sum(c.jobs) FROM job_counts c WHERE c.tenant_id = t.id), 0)::int,
		       (SELECT count(*) FROM scheduled_jobs j WHERE j.tenant_id = t.id AND j.deleted_at IS NULL)::int
		FROM tenants t`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var counted, there int
		if err := rows.Scan(&id, &counted, &there); err != nil {
			t.Fatal(err)
		}
		if counted != there {
			t.Errorf("tenant %s has %d jobs, counted are %d", id, there, counted)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// The count of jobs is true whatever is done to them, by however many at once.
func TestJobsAreCountedAsTheyComeAndGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var group sync.WaitGroup
	for worker := range 6 {
		who := []tenant.Actor{b.ours, b.theirs}[worker%2]
		group.Go(func() { b.comeAndGo(t, who, rand.New(rand.NewPCG(uint64(worker), 1))) })
	}
	group.Wait()
	b.checkCounts(t)
	counts := b.stored(t)
	if counts["scheduled_jobs"] < 20 {
		t.Errorf("only %d jobs were made", counts["scheduled_jobs"])
	}
	// As an operator would bring a job back, and as a purge removes many.
	admin, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.WithoutCancel(t.Context())) })
	for _, sql := range []string{
		"UPDATE scheduled_jobs SET deleted_at = NULL WHERE deleted_at IS NOT NULL",
		"UPDATE scheduled_jobs SET deleted_at = now() WHERE id IN (SELECT id FROM scheduled_jobs LIMIT 5)",
		"DELETE FROM scheduled_jobs WHERE id IN (SELECT id FROM scheduled_jobs WHERE deleted_at IS NULL LIMIT 7)",
		"DELETE FROM scheduled_jobs WHERE deleted_at IS NOT NULL",
	} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		b.checkCounts(t)
	}
}

// comeAndGo makes, changes and deletes jobs of a tenant in a random order.
func (b *bundle) comeAndGo(t *testing.T, who tenant.Actor, random *rand.Rand) {
	b.known(t, who)
	token := b.token(t, who, identity.Developer)
	batch := func(body string) answer {
		return b.send(request{method: "POST", path: "/internal/jobs/batch-create", body: body, header: map[string]string{
			"X-Service-Token": serviceToken, "X-Tenant-ID": who.TenantID.String(), "Content-Type": "application/json",
		}})
	}
	var mine []string
	for range 25 {
		switch random.IntN(6) {
		case 0, 1:
			var made api.Job
			got := b.send(request{method: "POST", path: base + "/jobs", token: token, body: webhook})
			if err := json.Unmarshal([]byte(got.body), &made); err != nil || got.status != http.StatusCreated {
				t.Errorf("created: %d %s", got.status, got.body)
				return
			}
			mine = append(mine, made.ID.String())
		case 2: // some at once
			body := `{"jobs":[` + strings.TrimSuffix(strings.Repeat(webhook+",", 1+random.IntN(5)), ",") + `]}`
			got := batch(body)
			if got.status != http.StatusCreated {
				t.Errorf("a batch: %d %s", got.status, got.body)
			}
		case 3: // refused as a whole
			body := `{"jobs":[` + webhook + `,{"name":""}]}`
			batch(body)
		case 4:
			if len(mine) > 0 { // another version, not another job
				b.send(request{method: "PUT", path: base + "/jobs/" + mine[0], token: token, body: strings.Replace(webhook, "report", fmt.Sprint("r", random.IntN(99)), 1)})
			}
		case 5:
			if len(mine) > 0 {
				gone := request{method: "DELETE", path: base + "/jobs/" + mine[0], token: token}
				mine = mine[1:]
				b.send(gone)
				b.send(gone) // once more is no less
			}
		}
	}
}
