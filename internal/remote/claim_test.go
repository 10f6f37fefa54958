package remote_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/remote"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// A claim waits without a connection until something comes, and so many may.
func TestClaimsWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, other := b.register(b.ours, "invoice"), b.register(b.ours, "other")
	type answer struct {
		got []remote.Assignment
		err error
	}
	answers := make(chan answer, 100)
	stop := make(chan struct{})
	wait := func(of remote.Worker) {
		got, err := b.desk.Claim(t.Context(), b.ours.TenantID, remote.Request{Worker: of.ID, Most: 1, Patience: time.Hour}, stop)
		answers <- answer{got, err}
	}
	for i := range 64 {
		if i == 0 {
			go wait(w)
		} else {
			go wait(other)
		}
	}
	waiting := func(n int) {
		t.Helper()
		for end := clock.Now().Add(time.Minute); b.desk.Waiting() != n; clock.Sleep(t.Context(), 5*time.Millisecond) {
			if clock.Now().After(end) {
				t.Fatalf("%d claims wait, want %d", b.desk.Waiting(), n)
			}
		}
	}
	waiting(64)
	_, err := b.desk.Claim(t.Context(), b.ours.TenantID, remote.Request{Worker: w.ID, Most: 1, Patience: time.Hour}, stop)
	kind(t, "one claim too many", err, fault.TooMany, fault.CodeRateLimited)
	if n, err := b.desk.CallClaims(t.Context()); n != 0 || err != nil {
		t.Errorf("%d claims were called for nothing, %v", n, err)
	}
	e := b.trigger(b.ours, b.job(b.ours, "invoice"), "")
	called := 0
	for called == 0 { // a claim that has just begun to wait may find it by itself
		n, err := b.desk.CallClaims(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if called += n; b.desk.Waiting() < 64 {
			break
		}
	}
	if first := <-answers; first.err != nil || len(first.got) != 1 || first.got[0].ID != e.ID {
		t.Errorf("the claim was answered %+v", first)
	}
	close(stop)
	for range 63 {
		if a := <-answers; a.err != nil || len(a.got) != 0 {
			t.Errorf("a claim that stopped was answered %+v", a)
		}
	}
	waiting(0)
}

// A claim that leaves has the others called at once. By then it waits no more, so it is not called in their
// place. On the commit before, those that waited for a burst were called one each 250 ms.
func TestAClaimThatLeavesCallsTheOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.register(b.ours, "invoice")
	b.trigger(b.ours, b.job(b.ours, "invoice"), "")
	got, err := b.desk.Claim(t.Context(), b.ours.TenantID, remote.Request{Worker: w.ID, Most: 1, Patience: time.Hour}, nil)
	if err != nil || len(got) != 1 {
		t.Fatalf("claimed %+v, %v", got, err)
	}
	if waiting, called := b.desk.Waiting(), len(b.desk.Pass().Called); waiting != 0 || called != 1 {
		t.Errorf("%d claims wait, and %d calls", waiting, called)
	}
}

// Secrets are put in when an execution is claimed. One that is not there ends the attempt.
func TestSecretsOfRemoteJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.register(b.ours, "invoice")
	secrets := secret.NewStore(b.api, b.keys)
	if _, _, err := secrets.Put(t.Context(), b.ours, secret.Draft{Name: "key", Value: keyring.NewText("s3cret")}); err != nil {
		t.Fatal(err)
	}
	made := b.job(b.ours, "invoice", func(s *job.Spec) {
		s.MaxConcurrent = 10
		s.Config = json.RawMessage(`{"functionName":"invoice","parameters":{"key":"{{secret:key}}","attempt":"{{run:attempt}}"}}`)
	})
	b.trigger(b.ours, made, "")
	if a := b.claimOne(b.ours, w); string(a.Parameters) != `{"attempt":"1","key":"s3cret"}` {
		t.Errorf("parameters %s", a.Parameters)
	}
	e := b.trigger(b.ours, made, "")
	b.asTenant(b.ours, func(tx pgx.Tx) {
		if _, err := tx.Exec(t.Context(), "DELETE FROM secrets"); err != nil {
			t.Fatal(err)
		}
	})
	for b.get(b.ours, e.ID).Status == execution.Pending {
		if got := b.claim(b.ours, w, 1); len(got) != 0 {
			t.Fatalf("handed out %s", got[0].Parameters)
		}
	}
	if got := b.get(b.ours, e.ID); got.Status != execution.Failed || got.Error.Type != "VALIDATION_ERROR" ||
		!strings.Contains(got.Error.Message, `there is no secret "key"`) {
		t.Errorf("without its secret: %+v", got)
	}
}
