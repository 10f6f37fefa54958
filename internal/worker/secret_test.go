package worker_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

const canary = "canary-51c0ffee99"

// sealing gives the bundle keys, and its tenant the secret "key".
func (b *bundle) sealing(t *testing.T) *secret.Store {
	t.Helper()
	var err error
	if b.keys, err = keyring.Parse(keyring.Generate("k1")); err != nil {
		t.Fatal(err)
	}
	api := open(t, b.database.URL, postgres.API)
	b.jobs = job.NewStore(api, job.Config{Keys: b.keys})
	store := secret.NewStore(api, b.keys)
	if _, _, err := store.Put(t.Context(), b.who, secret.Draft{Name: "key", Value: keyring.NewText(canary)}); err != nil {
		t.Fatal(err)
	}
	return store
}

func config(text string) func(*job.Spec) {
	return func(s *job.Spec) { s.Config = json.RawMessage(text) }
}

// The run gets the values, and what it leaves behind does not hold them.
func TestSecretsReachTheRunAndNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sealing(t)
	seen := make(chan string, 2)
	fails := false
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		seen <- string(run.Config)
		out := executor.Outcome{Result: json.RawMessage(`{"echo":` + string(run.Config) + `,"n":1}`)}
		if fails {
			out.Err = &executor.Error{Type: executor.UserError, Message: "no: " + string(run.Config), Stack: "at " + string(run.Config)}
		}
		return out
	}
	w := b.start(nil)
	text := `{"parameters":{"a":"x {{secret:key}}","password":"` + canary + `-2"}}`
	e := b.pending(config(text))
	b.handle(w, e.ID)
	if got, want := <-seen, `{"parameters":{"a":"x `+canary+`","password":"`+canary+`-2"}}`; got != want {
		t.Errorf("ran with %s, want %s", got, want)
	}
	e = b.reaches(e.ID, execution.Completed)
	var result struct {
		Echo struct{ Parameters struct{ A, Password string } }
		N    int
	}
	if err := json.Unmarshal(e.Result, &result); err != nil || result.N != 1 || result.Echo.Parameters.A != "x ***" || result.Echo.Parameters.Password != "***" {
		t.Errorf("the result is %s, %v", e.Result, err)
	}
	fails = true
	e = b.pending(config(text))
	b.handle(w, e.ID)
	<-seen
	e = b.reaches(e.ID, execution.Failed)
	if kept := string(e.Result) + e.Error.Message + e.Error.Stack; strings.Contains(kept, canary) || !strings.HasPrefix(e.Error.Message, "no: ") || !strings.Contains(e.Error.Stack, "***") {
		t.Errorf("a failed run leaves %s", kept)
	}
}

// A value that was replaced serves the next attempt; one that is gone fails it
// for good, whatever the job says of retries.
func TestSecretsAreReadForEachAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	store := b.sealing(t)
	seen := make(chan string, 3)
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		seen <- string(run.Config)
		return executor.Outcome{}
	}
	w := b.start(nil)
	edit := func(s *job.Spec) {
		s.Config, s.Retry.OnErrorTypes = json.RawMessage(`{"body":"{{secret:key}}"}`), []string{"VALIDATION_ERROR", "SYSTEM_ERROR"}
	}
	e := b.pending(edit)
	b.handle(w, e.ID)
	if got := <-seen; got != `{"body":"`+canary+`"}` {
		t.Errorf("ran with %s", got)
	}
	b.reaches(e.ID, execution.Completed)
	if _, _, err := store.Put(t.Context(), b.who, secret.Draft{Name: "key", Value: keyring.NewText("replaced-0")}); err != nil {
		t.Fatal(err)
	}
	e = b.pending(edit)
	b.handle(w, e.ID)
	if got := <-seen; got != `{"body":"replaced-0"}` {
		t.Errorf("ran with %s", got)
	}
	e = b.pending(edit)
	b.exec("DELETE FROM secrets")
	b.handle(w, e.ID)
	e = b.reaches(e.ID, execution.Failed)
	if e.Error.Type != "VALIDATION_ERROR" || !strings.Contains(e.Error.Message, `no secret "key"`) || e.Attempt != 1 {
		t.Errorf("ended after %d attempts with %+v", e.Attempt, e.Error)
	}
}

// A worker without the key fails the attempt as its own trouble: another
// worker, or a later attempt, may have it.
func TestAWorkerWithoutTheKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sealing(t)
	b.keys = nil
	b.run = func(context.Context, executor.Run) executor.Outcome {
		t.Error("it ran without its secret")
		return executor.Outcome{}
	}
	w := b.start(nil)
	e := b.pending(func(s *job.Spec) { s.Config, s.Retry.MaxRetries = json.RawMessage(`{"body":"{{secret:key}}"}`), 0 })
	b.handle(w, e.ID)
	e = b.reaches(e.ID, execution.Failed)
	if e.Error.Type != "SYSTEM_ERROR" || !strings.Contains(e.Error.Message, "SECRETS_KEYS") {
		t.Errorf("ended with %+v", e.Error)
	}
}
