package send_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/egress/egresstest"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/notification/send"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// bundle is a sender that may reach this machine, and what the API has.
type bundle struct {
	t      *testing.T
	admin  *pgx.Conn
	store  *notification.Store
	config send.Config
	sender *send.Sender
	who    tenant.Actor
	now    time.Time
}

func setup(t *testing.T, change ...func(*send.Config)) *bundle {
	t.Helper()
	database := pgtest.New(t)
	open := func(role postgres.Role) *postgres.DB {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 6, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	keys, err := keyring.Parse(keyring.Generate("k1"))
	if err != nil {
		t.Fatal(err)
	}
	// An attempt has a minute: on a busy machine one stands still for many seconds.
	client, err := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	b := &bundle{
		t: t, store: notification.NewStore(open(postgres.API), keys), who: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}, now: clock.Now(),
		config: send.Config{
			DB: open(postgres.Engine), Client: client, Keys: keys, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()),
			Log: slog.New(slog.DiscardHandler), Timeout: time.Minute,
		},
	}
	for _, alter := range change {
		alter(&b.config)
	}
	b.sender = send.New(b.config)
	if b.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.admin.Close(context.WithoutCancel(t.Context())) })
	b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'a')", b.who.TenantID)
	return b
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.admin.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// create asks for a notification of a tenant.
func (b *bundle) create(who tenant.Actor, kind, url string) (id uuid.UUID, secret string, err error) {
	made, secret, err := b.store.Create(b.t.Context(), who, notification.Spec{
		Name: uuid.NewString(), Kind: kind, URL: url, Events: []string{"job.failed"}, JobIDs: []uuid.UUID{}, Tags: []string{}, Enabled: true,
	})
	return made.ID, secret, err
}

// make makes one.
func (b *bundle) make(who tenant.Actor, kind, url string) (id uuid.UUID, secret string) {
	b.t.Helper()
	id, secret, err := b.create(who, kind, url)
	if err != nil {
		b.t.Fatal(err)
	}
	return id, secret
}

// waits adds a delivery with an event.
func (b *bundle) waits(who tenant.Actor, id uuid.UUID, e notification.Event) uuid.UUID {
	b.t.Helper()
	made, err := b.store.Test(b.t.Context(), who, id)
	if err != nil {
		b.t.Fatal(err)
	}
	raw, err := json.Marshal([]notification.Event{e})
	if err != nil {
		b.t.Fatal(err)
	}
	b.exec("UPDATE notification_deliveries SET events = $1 WHERE id = $2", raw, made.ID)
	return made.ID
}

func (b *bundle) pass(at time.Time) send.Report {
	b.t.Helper()
	report, err := b.sender.Pass(b.t.Context(), at)
	if err != nil {
		b.t.Fatal(err)
	}
	return report
}

// only is the newest delivery of a notification.
func (b *bundle) only(id uuid.UUID) notification.Delivery {
	b.t.Helper()
	list, err := b.store.Deliveries(b.t.Context(), b.who, id, "", 1, nil)
	if err != nil || len(list) != 1 {
		b.t.Fatalf("%d deliveries: %v", len(list), err)
	}
	return list[0]
}

// receiver keeps what it is sent, and answers as a test says.
type receiver struct {
	*httptest.Server

	mu      sync.Mutex
	headers []http.Header
	bodies  []string
}

func receive(t *testing.T, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.headers, r.bodies = append(r.headers, req.Header), append(r.bodies, string(body))
		r.mu.Unlock()
		answer(w, req)
	}))
	t.Cleanup(r.Close)
	return r
}

// got is how many messages came.
func (r *receiver) got() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bodies)
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "thanks") }

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func failed(name string) notification.Event {
	job, execution, at := uuid.New(), uuid.New(), time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	return notification.Event{
		ID: uuid.New(), Type: "job.failed", At: at, JobID: &job, JobName: name, ExecutionID: &execution, ScheduledAt: &at, ErrorType: "TIMEOUT", ErrorMessage: "too slow", Failures: 1,
	}
}

// verify checks a signature as a receiver does, by the text of Standard Webhooks.
func verify(t *testing.T, secret string, header http.Header, body string) bool {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte(header.Get("webhook-id") + "." + header.Get("webhook-timestamp") + "." + body))
	return strings.Contains(header.Get("webhook-signature"), "v1,"+base64.StdEncoding.EncodeToString(sum.Sum(nil)))
}

// A message is sent once, signed with each secret that is good, and what the receiver
// answered is kept.
func TestAWebhookIsSentAndSigned(t *testing.T) {
	t.Parallel()
	b, r := setup(t), receive(t, ok)
	id, first := b.make(b.who, notification.Webhook, r.URL)
	e := failed("nightly report")
	delivery := b.waits(b.who, id, e)
	_, second, err := b.store.RotateSecret(t.Context(), b.who, id, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := b.pass(time.Time{}), (send.Report{Delivered: 1}); got != want {
		t.Fatalf("the pass did %+v", got)
	}
	b.pass(time.Time{})
	if len(r.bodies) != 1 {
		t.Fatalf("it was sent %d times", len(r.bodies))
	}
	header, body := r.headers[0], r.bodies[0]
	if !verify(t, first, header, body) || !verify(t, second, header, body) || verify(t, second, header, body+" ") || header.Get("webhook-id") != delivery.String() {
		t.Errorf("the headers are %v", header)
	}
	var got struct {
		Type     string
		TenantID uuid.UUID
		Data     notification.Event
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.Type != "job.failed" || got.TenantID != b.who.TenantID || got.Data.JobName != "nightly report" || got.Data.ID != e.ID {
		t.Errorf("the body is %s: %v", body, err)
	}
	d := b.only(id)
	if d.Status != "delivered" || d.Attempts != 1 || d.ResponseStatus == nil || *d.ResponseStatus != 200 || d.Excerpt != "thanks" || d.NextAttemptAt != nil || d.FinishedAt == nil {
		t.Errorf("the delivery is %+v", d)
	}
	if _, err := b.store.Resend(t.Context(), b.who, id, delivery); err != nil {
		t.Fatal(err)
	}
	b.pass(clock.Now().Add(time.Minute))
	if len(r.bodies) != 2 || r.headers[1].Get("webhook-id") != delivery.String() {
		t.Errorf("after it was sent again there are %d", len(r.bodies))
	}
}

// A receiver that fails is tried again for about a day, and then no more.
func TestAFailedMessageIsTriedForADay(t *testing.T) {
	t.Parallel()
	b, r := setup(t), receive(t, status(http.StatusInternalServerError))
	id, _ := b.make(b.who, notification.Webhook, r.URL)
	b.waits(b.who, id, failed("x"))
	at, begin := b.now.Add(time.Minute), b.now
	attempts := 0
	for {
		b.pass(at)
		attempts++
		d := b.only(id)
		if d.Attempts != attempts || d.Error != "the receiver answered 500" {
			t.Fatalf("after %d attempts it is %+v", attempts, d)
		}
		if d.Status == "failed" {
			break
		}
		if early := b.pass(d.NextAttemptAt.Add(-time.Second)); early != (send.Report{}) {
			t.Errorf("before its time it was tried again: %+v", early)
		}
		at = d.NextAttemptAt.Add(time.Second)
	}
	if took := at.Sub(begin); attempts != 11 || took < 18*time.Hour || took > 26*time.Hour {
		t.Errorf("it was tried %d times in %v", attempts, took)
	}
	found, err := b.store.Get(t.Context(), b.who, id)
	if err != nil || found.FailingSince == nil || !found.Enabled {
		t.Errorf("the notification is %+v: %v", found, err)
	}
	b.waits(b.who, id, failed("x"))
	b.pass(begin.Add(80 * time.Hour))
	if found, err = b.store.Get(t.Context(), b.who, id); err != nil || found.Enabled || !strings.Contains(found.DisabledReason, "took nothing since") {
		t.Errorf("after three days the notification is %+v: %v", found, err)
	}
}

func TestAReceiverThatIsGoneDisablesItsNotification(t *testing.T) {
	t.Parallel()
	b, r := setup(t), receive(t, status(http.StatusGone))
	id, _ := b.make(b.who, notification.Webhook, r.URL)
	b.waits(b.who, id, failed("x"))
	b.pass(time.Time{})
	found, err := b.store.Get(t.Context(), b.who, id)
	if err != nil || found.Enabled || found.DisabledReason != "the receiver answered 410: it is gone" || b.only(id).Status != "failed" {
		t.Errorf("it is %+v: %v", found, err)
	}
}

// Nothing of a receiver that misbehaves is followed, read on or waited for.
func TestReceiversThatMisbehave(t *testing.T) {
	t.Parallel()
	b := setup(t)
	patient := b.sender
	b.config.Timeout = 3 * time.Second
	hasty := send.New(b.config) // for the receiver that never answers
	inside := receive(t, ok)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, inside.URL, http.StatusTemporaryRedirect)
		}, "redirects are not followed"},
		"never answers": {func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-stop:
			}
		}, "time"},
		"NUL and no UTF-8": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte{0, 0xff, 'x'})
		}, "answered 400"},
	} {
		r := receive(t, test.answer)
		id, _ := b.make(b.who, notification.Webhook, r.URL)
		b.waits(b.who, id, failed("x"))
		if b.sender = patient; name == "never answers" {
			b.sender = hasty
		}
		b.pass(time.Time{})
		if d := b.only(id); d.Status != "pending" || !strings.Contains(d.Error, test.want) {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if len(inside.bodies) > 0 {
		t.Error("a redirect was followed")
	}
	endless := receive(t, func(w http.ResponseWriter, r *http.Request) {
		for piece := make([]byte, 1<<16); r.Context().Err() == nil; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	id, _ := b.make(b.who, notification.Webhook, endless.URL)
	b.waits(b.who, id, failed("x"))
	b.sender = patient
	b.pass(time.Time{})
	if d := b.only(id); d.Status != "delivered" || len([]rune(d.Excerpt)) != 1024 {
		t.Errorf("a receiver that answers for ever: %+v", d)
	}
}

// Addresses on the inside are refused at the moment of the call, even if an earlier check let them pass.
func TestForbiddenTargetsAreNotReached(t *testing.T) {
	t.Parallel()
	guarded, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, r := setup(t, func(c *send.Config) { c.Client = guarded }), receive(t, ok)
	_, port, _ := strings.Cut(strings.TrimPrefix(r.URL, "http://"), ":")
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0x7f000001", "2130706433", "0177.0.0.1", "169.254.169.254", "10.0.0.1", "[fe80::1]", "[64:ff9b::7f00:1]", "0.0.0.0"} {
		for _, kind := range []string{notification.Webhook, notification.Slack} {
			id, _ := b.make(b.who, kind, "http://"+host+":"+port+"/sesame")
			b.waits(b.who, id, failed("x"))
			b.pass(time.Time{})
			if d := b.only(id); d.Status != "pending" || !strings.Contains(d.Error, "not allowed (") || strings.Contains(d.Error, "sesame") {
				t.Errorf("%s %s: %+v", kind, host, d)
			}
		}
	}
	guardedOnly := 0
	for _, target := range egresstest.Hostile() {
		id, _, err := b.create(b.who, notification.Webhook, target.URL)
		if fault.KindOf(err) == fault.Invalid {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		b.waits(b.who, id, failed("x"))
		b.pass(time.Time{})
		if d := b.only(id); d.Status != "pending" || !strings.Contains(d.Error, "not allowed (") {
			t.Errorf("%s: %+v", target.URL, d)
		}
		b.exec("DELETE FROM notifications WHERE id = $1", id) // a tenant may have few
		guardedOnly++
	}
	if guardedOnly < 50 {
		t.Errorf("%d targets were tried when they were called, want most", guardedOnly)
	}
	if len(r.bodies) > 0 {
		t.Errorf("the inside got %v", r.bodies)
	}
}

// A hundred webhooks of a tenant that never answer delay nobody else's.
func TestSlowReceiversDelayTheirTenantAlone(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var free sync.Once
	slow := receive(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { free.Do(func() { close(release) }) })
	// Once the other tenant has its message, the slow ones may go on.
	quick := receive(t, func(w http.ResponseWriter, r *http.Request) { free.Do(func() { close(release) }) })
	b := setup(t)
	for range 100 {
		id, _ := b.make(b.who, notification.Webhook, slow.URL)
		b.waits(b.who, id, failed("x"))
	}
	other := tenant.Actor{TenantID: uuid.New(), Subject: "eve"}
	b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'b')", other.TenantID)
	id, _ := b.make(other, notification.Webhook, quick.URL)
	b.waits(other, id, failed("x"))
	b.pass(time.Time{}) // without a slot for the other tenant it would wait for ever
	if len(quick.bodies) != 1 || len(slow.bodies) < 4 {
		t.Errorf("the other tenant got %d, the slow receivers %d", len(quick.bodies), len(slow.bodies))
	}
}

// Processes at once send each message once, and one at a time of a notification.
func TestSeveralSendersSendEachOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var mu sync.Mutex
	now, most := 0, 0
	r := receive(t, func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		mu.Lock()
		now--
		mu.Unlock()
	})
	id, _ := b.make(b.who, notification.Webhook, r.URL)
	for range 20 {
		b.waits(b.who, id, failed("x"))
	}
	var group sync.WaitGroup
	began := clock.Start()
	for range 4 {
		group.Go(func() {
			one := send.New(b.config)
			// By the database's clock: nobody takes over within a minute what another one sends.
			for r.got() < 20 && began.Elapsed() < 3*time.Minute {
				if _, err := one.Pass(t.Context(), time.Time{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	seen := map[string]bool{}
	for _, header := range r.headers {
		seen[header.Get("webhook-id")] = true
	}
	if len(r.bodies) != 20 || len(seen) != 20 || most != 1 {
		t.Errorf("%d messages of %d, %d at once", len(r.bodies), len(seen), most)
	}
}

// Slack's form holds what happened, and no markup of a job's name.
func TestSlacksForm(t *testing.T) {
	t.Parallel()
	b, r := setup(t), receive(t, ok)
	id, _ := b.make(b.who, notification.Slack, r.URL+"/services/sesame")
	b.waits(b.who, id, failed("<!channel> a & b\r\nX: y\u202e"))
	b.pass(time.Time{})
	if len(r.bodies) != 1 || r.headers[0].Get("webhook-signature") != "" {
		t.Fatalf("it was sent %d times", len(r.bodies))
	}
	var got struct {
		Text   string
		Blocks []struct{ Text struct{ Type, Text string } }
	}
	if err := json.Unmarshal([]byte(r.bodies[0]), &got); err != nil {
		t.Fatal(err)
	}
	if want := "&lt;!channel&gt; a &amp; b  X: y failed"; got.Text != want {
		t.Errorf("the text is %q, want %q", got.Text, want)
	}
	if text := got.Blocks[0].Text.Text; !strings.Contains(text, "TIMEOUT too slow") || strings.ContainsAny(text, "<>\r") {
		t.Errorf("the block is %q", text)
	}
}

// A key that is missing is a failed attempt that says so, and not an end.
func TestASecretThatDoesNotOpen(t *testing.T) {
	t.Parallel()
	r := receive(t, ok)
	b := setup(t, func(c *send.Config) { c.Keys = nil })
	id, _ := b.make(b.who, notification.Webhook, r.URL)
	b.waits(b.who, id, failed("x"))
	b.pass(time.Time{})
	if d := b.only(id); d.Status != "pending" || !strings.Contains(d.Error, "SECRETS_KEYS") || len(r.bodies) > 0 {
		t.Errorf("it is %+v", d)
	}
}
