package secret_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

func dbNames(tenant uuid.UUID, names ...string) db.ListSealedSecretsParams {
	return db.ListSealedSecretsParams{TenantID: tenant, Names: names}
}

// webhook is a definition with these headers.
func webhook(headers string) job.Spec {
	return at("https://a.example/", headers)
}

func at(url, headers string) job.Spec {
	return job.Spec{
		Name: "hook", Type: "http", Config: json.RawMessage(`{"url":"` + url + `","headers":` + headers + `}`), Retry: job.DefaultRetry(),
	}.WithDefaults()
}

// attempt is what an attempt of a job's version runs with.
func (b *bundle) attempt(keys *keyring.Ring, j job.Job) secret.Ready {
	b.t.Helper()
	ask := secret.Input{Version: secret.Version{Tenant: j.TenantID, Job: j.ID, Number: j.Version}, Config: j.Config}
	err := b.admin.QueryRow(b.t.Context(), "SELECT coalesce((SELECT sealed FROM job_credentials WHERE job_id = $1 AND version = $2), '')", j.ID, j.Version).Scan(&ask.Sealed)
	if err != nil {
		b.t.Fatal(err)
	}
	ready, err := secret.NewResolver(b.engine, keys).Resolve(b.t.Context(), ask)
	if err != nil {
		b.t.Fatal(err)
	}
	return ready
}

func headersOf(t *testing.T, config json.RawMessage) map[string]string {
	t.Helper()
	var c struct{ Headers map[string]string }
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	return c.Headers
}

func rulesOf(t *testing.T, err error) []string {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Invalid {
		t.Fatalf("%v is no refusal", err)
	}
	var rules []string
	for _, field := range f.Fields {
		rules = append(rules, field.Path+" "+field.Rule)
	}
	return rules
}

func TestCredentialsOfADefinition(t *testing.T) {
	t.Parallel()
	b, keys := setup(t), ring(t, keyring.Generate("k1"))
	jobs := job.NewStore(b.api, job.Config{Keys: keys})
	update := func(j job.Job, spec job.Spec) (job.Job, error) {
		return jobs.Update(t.Context(), b.ours, j.ID, spec, 0)
	}
	made, _, err := jobs.Create(t.Context(), b.ours, webhook(`{"Authorization":"Bearer `+canary+`","X":"y"}`), idempotency.Key{Value: "k", Route: "r"})
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{"Authorization": "***", "X": "y"}
	if diff := cmp.Diff(shown, headersOf(t, made.Config)); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	list, err := jobs.List(t.Context(), b.ours, job.Filter{Limit: 10})
	if err != nil || len(list.Jobs) != 1 || cmp.Diff(shown, headersOf(t, list.Jobs[0].Config)) != "" {
		t.Errorf("listed %v, %v", list, err)
	}
	// *** keeps it, also where others come and go.
	kept, err := update(made, webhook(`{"Authorization":"***","X-Api-Key":"`+canary+`-2"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Authorization": "Bearer " + canary, "X-Api-Key": canary + "-2"}
	if diff := cmp.Diff(want, headersOf(t, b.attempt(keys, kept).Config)); diff != "" {
		t.Errorf("an attempt gets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"Authorization": "Bearer " + canary, "X": "y"}, headersOf(t, b.attempt(keys, made).Config)); diff != "" {
		t.Errorf("an attempt of the first version gets (-want +got):\n%s", diff)
	}
	// It does not follow the URL to another host.
	for _, url := range []string{"https://evil.example/", "http://a.example/", "https://a.example:8443/"} {
		_, err := update(kept, at(url, `{"Authorization":"***","X-Api-Key":"new-0123"}`))
		if diff := cmp.Diff([]string{"config.headers.Authorization masked"}, rulesOf(t, err)); diff != "" {
			t.Errorf("%s: %s", url, diff)
		}
	}
	if _, err := update(kept, at("https://a.example/other?x=1", `{"Authorization":"***"}`)); err != nil {
		t.Errorf("another path of the same host: %v", err)
	}
	// A credential that is not stored cannot be kept, and the key dropped above is not.
	_, err = update(kept, webhook(`{"X-Api-Key":"***","X-Token":"***"}`))
	if diff := cmp.Diff([]string{"config.headers.X-Api-Key masked", "config.headers.X-Token masked"}, rulesOf(t, err)); diff != "" {
		t.Error(diff)
	}
	_, _, err = jobs.Create(t.Context(), b.ours, webhook(`{"Authorization":"***"}`), idempotency.Key{})
	if diff := cmp.Diff([]string{"config.headers.Authorization masked"}, rulesOf(t, err)); diff != "" {
		t.Error(diff)
	}
	// A version that is brought back brings its own, also to its own host.
	if _, err := update(made, at("https://b.example/", `{"Authorization":"Bearer other-0123"}`)); err != nil {
		t.Fatal(err)
	}
	first, err := jobs.Version(t.Context(), b.ours, made.ID, 1)
	if err != nil {
		t.Fatal(err)
	}
	back, err := jobs.Restore(t.Context(), b.ours, made.ID, first, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"Authorization": "Bearer " + canary, "X": "y"}, headersOf(t, b.attempt(keys, back).Config)); diff != "" {
		t.Errorf("brought back (-want +got):\n%s", diff)
	}
	if strings.Contains(b.dump(), canary) {
		t.Error("a table holds a credential")
	}
}

func TestWithoutKeysCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := job.NewStore(b.api, job.Config{}).Create(t.Context(), b.ours, at("https://a.example/?token=a", `{"Authorization":"Bearer a"}`), idempotency.Key{})
	if diff := cmp.Diff([]string{"config.headers.Authorization credential", "config.url credential"}, rulesOf(t, err)); diff != "" {
		t.Error(diff)
	}
}

// Where the keys went, or are others, a definition can still be replaced: what
// was sealed is gone, and has to be given again.
func TestKeysThatAreLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made, _, err := job.NewStore(b.api, job.Config{Keys: ring(t, keyring.Generate("k1"))}).Create(t.Context(), b.ours, webhook(`{"Authorization":"Bearer a"}`), idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	bare, other := job.NewStore(b.api, job.Config{}), job.NewStore(b.api, job.Config{Keys: ring(t, keyring.Generate("k2"))})
	_, err = bare.Update(t.Context(), b.ours, made.ID, webhook(`{"Authorization":"***"}`), 0)
	if diff := cmp.Diff([]string{"config.headers.Authorization credential"}, rulesOf(t, err)); diff != "" {
		t.Error(diff)
	}
	if _, err := other.Update(t.Context(), b.ours, made.ID, webhook(`{"Authorization":"***"}`), 0); fault.KindOf(err) != fault.Internal || err == nil {
		t.Errorf("kept what does not open: %v", err)
	}
	if _, err := other.Update(t.Context(), b.ours, made.ID, webhook(`{"Authorization":"Bearer b"}`), 0); err != nil {
		t.Errorf("given again: %v", err)
	}
	if _, err := bare.Update(t.Context(), b.ours, made.ID, webhook(`{}`), 0); err != nil {
		t.Errorf("taken out: %v", err)
	}
}

// The credentials of one version open for no other job, version or tenant.
func TestMovedCredentialsDoNotOpen(t *testing.T) {
	t.Parallel()
	b, keys := setup(t), ring(t, keyring.Generate("k1"))
	jobs := job.NewStore(b.api, job.Config{Keys: keys})
	made, _, err := jobs.Create(t.Context(), b.ours, webhook(`{"Authorization":"Bearer `+canary+`"}`), idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	var sealed []byte
	if err := b.admin.QueryRow(t.Context(), "SELECT sealed FROM job_credentials").Scan(&sealed); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]secret.Version{
		"tenant":  {Tenant: b.theirs.TenantID, Job: made.ID, Number: 1},
		"job":     {Tenant: b.ours.TenantID, Job: uuid.New(), Number: 1},
		"version": {Tenant: b.ours.TenantID, Job: made.ID, Number: 2},
	} {
		_, err := secret.NewResolver(b.engine, keys).Resolve(t.Context(), secret.Input{Version: of, Config: made.Config, Sealed: sealed})
		if fault.KindOf(err) != fault.Internal || err == nil || strings.Contains(fmt.Sprint(err), canary) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

func TestSecretsThatJobsReferTo(t *testing.T) {
	t.Parallel()
	b, keys := setup(t), ring(t, keyring.Generate("k1"))
	store, jobs := secret.NewStore(b.api, keys), job.NewStore(b.api, job.Config{Keys: keys})
	b.put(keys, b.theirs, "api", "theirs-0123")
	spec := webhook(`{"Authorization":"Bearer {{secret:api}}","X":"{{secret:other}}"}`)
	_, _, err := jobs.Create(t.Context(), b.ours, spec, idempotency.Key{})
	if diff := cmp.Diff([]string{"config.headers.Authorization exists", "config.headers.X exists"}, rulesOf(t, err)); diff != "" {
		t.Errorf("another tenant's secret counts: %s", diff)
	}
	b.put(keys, b.ours, "api", canary)
	b.put(keys, b.ours, "other", canary+"-2")
	made, _, err := jobs.Create(t.Context(), b.ours, spec, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	if got := headersOf(t, made.Config)["Authorization"]; got != "Bearer {{secret:api}}" {
		t.Errorf("shown as %q", got)
	}
	want := map[string]string{"Authorization": "Bearer " + canary, "X": canary + "-2"}
	if diff := cmp.Diff(want, headersOf(t, b.attempt(keys, made).Config)); diff != "" {
		t.Errorf("an attempt gets (-want +got):\n%s", diff)
	}
	err = store.Delete(t.Context(), b.ours, "api", 0)
	if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "1 job refers") {
		t.Errorf("deleted while a job refers to it: %v", err)
	}
	if _, err := jobs.Update(t.Context(), b.ours, made.ID, webhook(`{"X":"{{secret:gone}}"}`), 0); cmp.Diff([]string{"config.headers.X exists"}, rulesOf(t, err)) != "" {
		t.Errorf("updated: %v", err)
	}
	if _, err := jobs.Update(t.Context(), b.ours, made.ID, webhook(`{}`), 0); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), b.ours, "api", 0); err != nil {
		t.Errorf("not deleted although no job refers to it: %v", err)
	}
}
