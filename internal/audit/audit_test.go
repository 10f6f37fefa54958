package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scheduler-service/scheduler/internal/audit"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const canary = "canary-99d0e1f2ab"

type bundle struct {
	t           *testing.T
	ctx         context.Context // carries the call
	api, engine *postgres.DB
	admin       *pgx.Conn
	keys        *keyring.Ring
	jobs        *job.Store
	log         *audit.Store
	ours        tenant.Actor
	theirs      tenant.Actor
}

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	open := func(role postgres.Role) *postgres.DB {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 8, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	b := &bundle{
		t: t, api: open(postgres.API), engine: open(postgres.Engine),
		ours: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}, theirs: tenant.Actor{TenantID: uuid.New(), Subject: "eve"},
	}
	b.ctx = audit.With(t.Context(), audit.Call{Kind: audit.User, Actor: "ada", Address: "203.0.113.7", Request: "r-1", Action: "test"})
	var err error
	if b.keys, err = keyring.Parse(keyring.Generate("k1")); err != nil {
		t.Fatal(err)
	}
	b.jobs, b.log = job.NewStore(b.api, job.Config{Keys: b.keys}), audit.NewStore(b.api)
	for _, who := range []tenant.Actor{b.ours, b.theirs} {
		if err := tenant.NewStore(b.api, true).Admit(b.ctx, who.TenantID); err != nil {
			t.Fatal(err)
		}
	}
	if b.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.admin.Close(context.Background()) })
	b.exec("SELECT create_job_executions_partition(now())")
	return b
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.admin.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// tamper changes the log as somebody who owns the database could.
func (b *bundle) tamper(statements ...string) {
	b.t.Helper()
	b.exec("ALTER TABLE audit_log DISABLE TRIGGER USER")
	for _, sql := range statements {
		b.exec(strings.ReplaceAll(sql, "$t", "tenant_id = '"+b.ours.TenantID.String()+"'"))
	}
	b.exec("ALTER TABLE audit_log ENABLE ALWAYS TRIGGER append_only")
	b.exec("ALTER TABLE audit_log ENABLE ALWAYS TRIGGER removal")
}

func spec(name string) job.Spec {
	return job.Spec{
		Name: name, Type: "http", Config: json.RawMessage(`{"url":"https://a.example/","headers":{"Authorization":"Bearer ` + canary + `"}}`), Retry: job.DefaultRetry(),
	}.WithDefaults()
}

func (b *bundle) create(who tenant.Actor, name string) job.Job {
	b.t.Helper()
	made, _, err := b.jobs.Create(b.ctx, who, spec(name), idempotency.Key{})
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

func (b *bundle) entries(who tenant.Actor, f audit.Filter) []audit.Entry {
	b.t.Helper()
	if f.Limit == 0 {
		f.Limit = 100
	}
	list, _, err := b.log.List(b.t.Context(), who, f)
	if err != nil {
		b.t.Fatal(err)
	}
	return list
}

// verify is what is found of the whole record: its shards together, and the
// first problem.
func (b *bundle) verify(from ...audit.Link) (sum audit.Report) {
	b.t.Helper()
	reports, err := b.log.Verify(b.t.Context(), b.ours, from, 100_000)
	if err != nil {
		b.t.Fatal(err)
	}
	sum.Complete = true
	for _, r := range reports {
		sum.Checked += r.Checked
		sum.Complete = sum.Complete && r.Complete
		if sum.Problem == nil {
			sum.Problem = r.Problem
		}
	}
	return sum
}

// links are the ends of the shards that hold something.
func (b *bundle) links(most int) (ends []audit.Link, checked int) {
	b.t.Helper()
	reports, err := b.log.Verify(b.t.Context(), b.ours, nil, most)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range reports {
		if r.Problem != nil {
			b.t.Fatalf("%+v", r.Problem)
		}
		if checked += r.Checked; r.Last.Seq > 0 {
			ends = append(ends, r.Last)
		}
	}
	return ends, checked
}

func TestChangesAreRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.create(b.ours, "first")
	if _, err := b.jobs.Update(b.ctx, b.ours, made.ID, spec("second"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.jobs.Pause(b.ctx, b.ours, made.ID, "why", nil); err != nil {
		t.Fatal(err)
	}
	executions := execution.NewStore(b.api, execution.Config{})
	run, _, err := executions.Trigger(b.ctx, b.ours, made.ID, nil, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := secret.NewStore(b.api, b.keys).Put(b.ctx, b.ours, secret.Draft{Name: "s", Value: keyring.NewText(canary)}); err != nil {
		t.Fatal(err)
	}
	if err := b.jobs.Delete(b.ctx, b.ours, made.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	list := b.entries(b.ours, audit.Filter{})
	var got []string
	for i, e := range list {
		got = append(got, fmt.Sprintf("%d %s %s %s %s", e.Seq, e.ObjectType, e.Change, e.Before, e.After))
		if e.Actor != "ada" || e.ActorKind != audit.User || e.Address != "203.0.113.7" || e.RequestID != "r-1" || e.Action != "test" ||
			clock.Now().Sub(e.At).Abs() > time.Minute || e.Seq != int64(len(list)-i) {
			t.Errorf("entry %+v", e)
		}
		if strings.Contains(string(e.Before)+string(e.After), canary) {
			t.Errorf("entry %d holds a credential", e.Seq)
		}
	}
	want := []string{
		`7 job delete {"status":"paused"} {"deletedAt":"`,
		`6 secret create  {"description":"","id":`,
		`5 execution create  {"`,
		`4 job update {"status":"active"} {"status":"paused"}`,
		`3 job update {"name":"first","version":1} {"name":"second","version":2}`,
		`2 job create  {"`,
		`1 tenant create  {"`,
	}
	for i := range want {
		if len(got) != len(want) || !strings.HasPrefix(strings.NewReplacer(`,"statusReason":"why"`, "", `"statusReason":"why",`, "", `,"statusReason":"deleted"`, "", `,"statusReason":""`, "").Replace(got[i]), want[i]) {
			t.Errorf("entry %d is\n%s, want\n%s", i, strings.Join(got, "\n"), want[i])
			break
		}
	}
	var after struct {
		Name, JobType, MisfirePolicy string
		Config                       struct{ Headers map[string]string }
	}
	if err := json.Unmarshal(list[5].After, &after); err != nil || after.Name != "first" || after.JobType != "http" || after.Config.Headers["Authorization"] != "***" {
		t.Errorf("a new job is recorded as %s, %v", list[5].After, err)
	}
	if n := len(b.entries(b.ours, audit.Filter{ObjectID: run.ID.String(), ObjectType: "execution"})); n != 1 {
		t.Errorf("%d entries of the run", n)
	}
	if n := len(b.entries(b.theirs, audit.Filter{})); n != 1 {
		t.Errorf("the other tenant sees %d entries, want its own one", n)
	}
	if r := b.verify(); r.Problem != nil || !r.Complete || r.Checked != 7 {
		t.Errorf("verified %+v %+v", r, r.Problem)
	}
}

// A change that is rolled back leaves no entry, nor does a request that changes nothing.
func TestNothingIsRecordedOfNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.create(b.ours, "a")
	before := len(b.entries(b.ours, audit.Filter{}))
	if _, err := b.jobs.Update(b.ctx, b.ours, made.ID, spec("b"), 99); err == nil {
		t.Fatal("updated against If-Match")
	}
	if _, err := b.jobs.Resume(b.ctx, b.ours, made.ID, ""); err != nil {
		t.Fatal(err)
	}
	failed := b.api.InTenant(b.ctx, b.ours.TenantID, func(tx *postgres.Tx) error {
		return fmt.Errorf("after %w", context.Canceled)
	})
	if failed == nil || len(b.entries(b.ours, audit.Filter{})) != before {
		t.Errorf("%v, and %d entries instead of %d", failed, len(b.entries(b.ours, audit.Filter{})), before)
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begin := clock.Now()
	first := b.create(b.ours, "a")
	b.ctx = audit.With(t.Context(), audit.Call{Kind: audit.APIKey, Actor: "api-key:1", Action: "other"})
	b.create(b.ours, "b")
	calendars := calendar.NewStore(b.api, job.Reschedule)
	if _, _, err := calendars.Create(b.ctx, b.ours, calendar.Spec{Name: "c", Timezone: "UTC"}, idempotency.Key{}); err != nil {
		t.Fatal(err)
	}
	later, top := clock.Now().Add(time.Hour), b.entries(b.ours, audit.Filter{})[0]
	for name, test := range map[string]struct {
		f    audit.Filter
		want []int64
	}{
		"all":     {audit.Filter{}, []int64{4, 3, 2, 1}},
		"actor":   {audit.Filter{Actor: "api-key:1"}, []int64{4, 3}},
		"action":  {audit.Filter{Action: "test"}, []int64{2, 1}},
		"type":    {audit.Filter{ObjectType: "job"}, []int64{3, 2}},
		"object":  {audit.Filter{ObjectID: first.ID.String()}, []int64{2}},
		"from":    {audit.Filter{From: &later}, nil},
		"to":      {audit.Filter{To: &begin}, []int64{1}},
		"page":    {audit.Filter{Limit: 2, After: &audit.Position{At: top.At, Shard: top.Shard, Seq: top.Seq}}, []int64{3, 2}},
		"nothing": {audit.Filter{Actor: "nobody"}, nil},
	} {
		var got []int64
		for _, e := range b.entries(b.ours, test.f) {
			got = append(got, e.Seq)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Neither role of the processes may touch what is recorded, and not even the
// owner of the tables by the way.
func TestTheLogIsAppendOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(b.ours, "a")
	for _, sql := range []string{
		"UPDATE audit_log SET actor = 'eve'", "DELETE FROM audit_log", "TRUNCATE audit_log", "UPDATE audit_heads SET seq = 0", "DELETE FROM audit_heads",
		"INSERT INTO audit_log SELECT * FROM audit_log", "ALTER TABLE audit_log DISABLE TRIGGER ALL", "DROP TRIGGER record_change ON job_definitions",
		"SELECT audit_part('a')", "SET session_replication_role = replica",
	} {
		for name, db := range map[string]*postgres.DB{"api": b.api, "engine": b.engine} {
			if _, err := db.Pool().Exec(t.Context(), sql); err == nil {
				t.Errorf("%s may %s", name, sql)
			}
		}
	}
	for _, sql := range []string{"UPDATE audit_log SET actor = 'eve'", "DELETE FROM audit_log", "TRUNCATE audit_log"} {
		if _, err := b.admin.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("the superuser may %s by the way: %v", sql, err)
		}
	}
}

// session is a connection of the API's role, until the test ends.
func (b *bundle) session() *pgxpool.Conn {
	b.t.Helper()
	conn, err := b.api.Pool().Acquire(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(conn.Release)
	return conn
}

// byHand sends statements, and says how many rows they changed.
func (b *bundle) byHand(conn *pgxpool.Conn, statements ...string) (changed int64) {
	b.t.Helper()
	for _, sql := range statements {
		tag, err := conn.Exec(b.t.Context(), sql)
		if err != nil {
			b.t.Fatalf("%s: %v", sql, err)
		}
		changed += tag.RowsAffected()
	}
	return changed
}

// A login that puts its role off to change something is recorded by its name.
func TestALoginThatPutsItsRoleOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(b.ours, "a")
	conn := b.session()
	changed := b.byHand(conn, "SET ROLE NONE", "SET app.tenant_id = '"+b.ours.TenantID.String()+"'", "UPDATE scheduled_jobs SET status = 'paused'", "RESET app.tenant_id", "RESET ROLE")
	list := b.entries(b.ours, audit.Filter{})
	if changed != 1 || len(list) != 3 || string(list[0].After) != `{"status":"paused"}` || list[0].ActorKind != "process" || list[0].Actor == "" || list[0].Actor == "ada" {
		t.Errorf("%d rows changed, recorded %+v", changed, list)
	}
	if r := b.verify(); r.Problem != nil {
		t.Errorf("%+v", r.Problem)
	}
}

func TestTamperingIsFound(t *testing.T) {
	t.Parallel()
	const fields = "tenant_id, strand, seq, at, actor_kind, actor, address, request_id, action, object_type, object_id, change, before, after, prev_hash, hash"
	for name, test := range map[string]struct {
		do   []string
		kind string
		seq  int64
	}{
		"edited actor":   {[]string{"UPDATE audit_log SET actor = 'eve' WHERE $t AND seq = 5"}, "edited", 5},
		"edited time":    {[]string{"UPDATE audit_log SET at = at + interval '1 microsecond' WHERE $t AND seq = 5"}, "edited", 5},
		"edited content": {[]string{"UPDATE audit_log SET after = replace(after, 'job 5', 'job 6') WHERE $t AND seq = 5"}, "edited", 5},
		"null for empty": {[]string{"UPDATE audit_log SET before = '' WHERE $t AND seq = 5"}, "edited", 5},
		"shifted fields": {[]string{"UPDATE audit_log SET actor = actor || left(address, 1), address = substr(address, 2) WHERE $t AND seq = 5"}, "edited", 5},
		"edited, with its hash": {[]string{
			"UPDATE audit_log SET actor = 'eve' WHERE $t AND seq = 5",
			`UPDATE audit_log SET hash = sha256(prev_hash || convert_to(audit_part(tenant_id::text) || audit_part(strand::text) || audit_part(seq::text) || audit_part((extract(epoch FROM at) * 1000000)::bigint::text) || audit_part(actor_kind) || audit_part(actor) || audit_part(address) || audit_part(request_id) || audit_part(action) || audit_part(object_type) || audit_part(object_id) || audit_part(change) || audit_part(before) || audit_part(after), 'UTF8')) WHERE $t AND seq = 5`,
		}, "missing", 6},
		"deleted in the middle": {[]string{"DELETE FROM audit_log WHERE $t AND seq = 5"}, "missing", 5},
		"deleted and renumbered": {[]string{
			"DELETE FROM audit_log WHERE $t AND seq = 5", "UPDATE audit_log SET seq = seq + 100 WHERE $t AND seq > 5",
			"UPDATE audit_log SET seq = seq - 101 WHERE $t AND seq > 100", "UPDATE audit_heads SET seq = seq - 1 WHERE $t AND seq > 0",
		}, "missing", 5},
		"the first is deleted": {[]string{"DELETE FROM audit_log WHERE $t AND seq = 1"}, "missing", 1},
		"the tail is deleted":  {[]string{"DELETE FROM audit_log WHERE $t AND seq > 8"}, "cut", 9},
		"all is deleted":       {[]string{"DELETE FROM audit_log WHERE $t"}, "cut", 1},
		"reordered": {[]string{
			"UPDATE audit_log SET seq = 105 WHERE $t AND seq = 5", "UPDATE audit_log SET seq = 5 WHERE $t AND seq = 6", "UPDATE audit_log SET seq = 6 WHERE $t AND seq = 105",
		}, "missing", 5},
		"inserted": {[]string{
			"UPDATE audit_log SET seq = seq + 100 WHERE $t AND seq > 5", "UPDATE audit_log SET seq = seq - 99 WHERE $t AND seq > 100",
			"INSERT INTO audit_log (" + fields + ") SELECT tenant_id, strand, 6, at, actor_kind, 'eve', address, request_id, action, object_type, object_id, change, before, after, hash, hash FROM audit_log WHERE $t AND seq = 5",
			"UPDATE audit_heads SET seq = seq + 1 WHERE $t AND seq > 0",
		}, "edited", 6},
		"added at the end": {[]string{
			"INSERT INTO audit_log (" + fields + ") SELECT tenant_id, strand, seq + 1, at, actor_kind, 'eve', address, request_id, action, object_type, object_id, change, before, after, hash, hash FROM audit_log WHERE $t AND seq = 10",
		}, "edited", 11},
		"the head is gone": {[]string{"DELETE FROM audit_heads WHERE $t"}, "added", 1},
		"of another tenant": {[]string{
			"DELETE FROM audit_log WHERE NOT $t",
			"UPDATE audit_log SET tenant_id = (SELECT tenant_id FROM audit_heads WHERE NOT $t LIMIT 1) WHERE $t AND seq = 10",
		}, "cut", 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			for i := 2; i <= 10; i++ {
				b.create(b.ours, fmt.Sprintf("job %d", i))
			}
			if r := b.verify(); r.Problem != nil || r.Checked != 10 {
				t.Fatalf("before: %+v %+v", r, r.Problem)
			}
			b.tamper(test.do...)
			r := b.verify()
			if r.Problem == nil || r.Complete || r.Problem.Kind != test.kind || r.Problem.Seq != test.seq {
				t.Errorf("found %+v %+v, want %s at %d", r, r.Problem, test.kind, test.seq)
			}
		})
	}
}

// The owner of the database can write a whole chain anew, or cut its tail and
// its head's row. An anchor that is kept elsewhere shows it.
func TestAnAnchorFindsAChainThatWasWrittenAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 8 {
		b.create(b.ours, fmt.Sprint(i))
	}
	ends, _ := b.links(1000)
	if len(ends) != 1 {
		t.Fatalf("changes one after the other are on %d shards", len(ends))
	}
	anchor := ends[0]
	if read, err := audit.ParseLink(anchor.String()); err != nil || cmp.Diff(anchor, read) != "" {
		t.Errorf("%s is read as %v, %v", anchor, read, err)
	}
	b.create(b.ours, "later")
	if r := b.verify(anchor); r.Problem != nil || !r.Complete || r.Checked != 2 {
		t.Errorf("from the anchor: %+v %+v", r, r.Problem)
	}
	all := func(anchors map[uuid.UUID][]audit.Link) map[uuid.UUID]audit.Report {
		found := map[uuid.UUID]audit.Report{}
		tell := func(id uuid.UUID, r audit.Report) {
			if sum := found[id]; sum.Problem == nil {
				found[id] = audit.Report{Checked: sum.Checked + r.Checked, Problem: r.Problem}
			}
		}
		if err := audit.VerifyAll(t.Context(), b.engine, anchors, tell); err != nil {
			t.Fatal(err)
		}
		return found
	}
	kept := map[uuid.UUID][]audit.Link{b.ours.TenantID: {anchor}}
	if r := all(kept); len(r) != 2 || r[b.ours.TenantID].Problem != nil || r[b.theirs.TenantID].Problem != nil || r[b.ours.TenantID].Checked != 10 {
		t.Errorf("all: %+v", r)
	}
	b.tamper("DELETE FROM audit_log WHERE $t AND seq > 7",
		"UPDATE audit_heads h SET seq = 7, hash = l.hash FROM audit_log l WHERE h."+"$t AND l.seq = 7 AND l.tenant_id = h.tenant_id AND l.strand = h.strand")
	if r := b.verify(); r.Problem != nil {
		t.Errorf("the chain alone cannot tell, and said %+v", r.Problem)
	}
	if r := b.verify(anchor); r.Problem == nil || r.Problem.Kind != "cut" {
		t.Errorf("with the anchor: %+v", r.Problem)
	}
	for range 3 { // and then it grows again past the anchor
		b.create(b.ours, "again")
	}
	if r := b.verify(anchor); r.Problem == nil || r.Problem.Kind != "anchor" {
		t.Errorf("with the anchor: %+v", r.Problem)
	}
	if r := all(kept)[b.ours.TenantID]; r.Problem == nil || r.Problem.Kind != "anchor" {
		t.Errorf("all: %+v", r)
	}
	gone := uuid.New()
	if r := all(map[uuid.UUID][]audit.Link{gone: {anchor}})[gone]; r.Problem == nil || r.Problem.Kind != "cut" {
		t.Errorf("an anchor of a record that is gone: %+v", r)
	}
}

// Changes of one tenant at the same time make one chain without gaps.
func TestConcurrentChangesMakeOneChain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const writers, each = 8, 25
	errs := make(chan error, writers)
	for w := range writers {
		go func() {
			for i := range each {
				if _, _, err := b.jobs.Create(b.ctx, b.ours, spec(fmt.Sprintf("%d-%d", w, i)), idempotency.Key{}); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if r := b.verify(); r.Problem != nil || r.Checked != writers*each+1 {
		t.Errorf("verified %+v %+v", r, r.Problem)
	}
	half, checked := b.links(20)
	if len(half) < 2 || checked >= writers*each {
		t.Fatalf("%d shards and %d entries at once", len(half), checked)
	}
	if rest := b.verify(half...); rest.Problem != nil || !rest.Complete || checked+rest.Checked-len(half) != writers*each+1 {
		t.Errorf("the rest: %+v %+v", rest, rest.Problem)
	}
}
