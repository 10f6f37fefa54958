package remote_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// Reports of a worker are kept without the secrets of the job: progress, result and
// error, also where the secret came with the trigger. The same report again gets the same answer.
func TestReportsAreMasked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keep("password", "correct horse")
	b.keep("key", "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----")
	w := b.register(b.ours, "invoice")
	made := b.job(b.ours, "invoice", func(s *job.Spec) {
		s.MaxConcurrent, s.Config = 10, json.RawMessage(`{"functionName":"invoice","parameters":{"password":"{{secret:password}}"}}`)
	})

	e := b.trigger(b.ours, made, `{"key":"{{secret:key}}"}`)
	a := b.claimOne(b.ours, w)
	at, err := b.callbacks.Open(a.CallToken)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.callbacks.Heartbeat(t.Context(), at, 40, "logged in with correct horse"); err != nil {
		t.Fatal(err)
	}
	if got := b.get(b.ours, e.ID); got.Doing != "logged in with ***" {
		t.Errorf("the progress says %q", got.Doing)
	}
	done := callback.Report{Result: json.RawMessage(`{"sent":"correct horse","line":"kqhkiG9w0BAQEF","rows":3}`)}
	for range 2 {
		if status, err := b.complete(a, done); status != "completed" || err != nil {
			t.Fatalf("status %q, %v", status, err)
		}
	}
	b.hasResult(e.ID.String(), b.get(b.ours, e.ID), `{"line": "***", "rows": 3, "sent": "***"}`)
	_, err = b.complete(a, callback.Report{Result: json.RawMessage(`{"sent":"wrong horse"}`)})
	kind(t, "another result", err, fault.Conflict, fault.CodeAttemptEnded)

	e = b.trigger(b.ours, made, "")
	a = b.claimOne(b.ours, w)
	never := false
	for range 2 {
		status, err := b.complete(a, callback.Report{Err: &callback.Failure{Type: "USER_ERROR", Message: "correct horse was refused", Retry: &never}})
		if status != "failed" || err != nil {
			t.Fatalf("status %q, %v", status, err)
		}
	}
	if got := b.get(b.ours, e.ID); got.Error.Message != "*** was refused" {
		t.Errorf("the error says %q", got.Error.Message)
	}
}

// An outcome whose secrets are gone is kept, without what nobody can mask any more.
func TestReportsWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keep("password", "correct horse")
	w := b.register(b.ours, "invoice")
	made := b.job(b.ours, "invoice", func(s *job.Spec) {
		s.MaxConcurrent, s.Config = 10, json.RawMessage(`{"functionName":"invoice","parameters":{"password":"{{secret:password}}"}}`)
	})
	e := b.trigger(b.ours, made, "")
	a := b.claimOne(b.ours, w)
	b.asTenant(b.ours, func(tx pgx.Tx) {
		if _, err := tx.Exec(t.Context(), "DELETE FROM secrets"); err != nil {
			t.Fatal(err)
		}
	})
	for range 2 {
		if status, err := b.complete(a, callback.Report{Result: json.RawMessage(`"correct horse"`)}); status != "completed" || err != nil {
			t.Fatalf("status %q, %v", status, err)
		}
	}
	if got := b.get(b.ours, e.ID); !strings.Contains(string(got.Result), "omitted") || strings.Contains(string(got.Result), "horse") {
		t.Errorf("the result is %s", got.Result)
	}
}

func (b *bundle) keep(name, value string) {
	b.t.Helper()
	if _, _, err := secret.NewStore(b.api, b.keys).Put(b.t.Context(), b.ours, secret.Draft{Name: name, Value: keyring.NewText(value)}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) hasResult(what string, e execution.Execution, want string) {
	b.t.Helper()
	if string(e.Result) != want {
		b.t.Errorf("%s has the result %s, want %s", what, e.Result, want)
	}
}
