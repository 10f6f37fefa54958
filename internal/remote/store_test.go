package remote_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/remote"
)

// Jobs are checked against what workers registered.
func TestJobsAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	spec := remote.Spec{Name: "w", Slots: 1, Lease: time.Minute, Functions: []remote.Function{{
		Name: "invoice", Parameters: json.RawMessage(`{"type":"object","properties":{"month":{"type":"string"}},"required":["month"]}`),
	}}}
	if faults := spec.Validate(); faults != nil {
		t.Fatal(faults)
	}
	if _, err := b.store.Register(t.Context(), b.ours, spec); err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string]string{
		`{"functionName":"invoice","parameters":{"month":"2026-03"}}`: "",
		`{"functionName":"invoice"}`:                                  "config.parameters.month",
		`{"functionName":"invoice","parameters":{"month":1}}`:         "config.parameters.month",
		`{"functionName":"nobody"}`:                                   "config.functionName",
		`{"functionName":"-"}`:                                        "config.functionName",
	} {
		faults, err := b.store.Check(t.Context(), b.ours, json.RawMessage(config))
		if err != nil || (want == "") != (len(faults) == 0) || want != "" && faults[0].Path != want {
			t.Errorf("%s: %v, %v, want one at %q", config, faults, err, want)
		}
	}
	if faults, err := b.store.Check(t.Context(), b.theirs, json.RawMessage(`{"functionName":"invoice","parameters":{"month":"x"}}`)); err != nil || len(faults) != 1 {
		t.Errorf("another tenant's function: %v, %v", faults, err)
	}
	spec.Functions = append(spec.Functions, spec.Functions[0], remote.Function{Name: "a b"}, remote.Function{Name: "list", Parameters: json.RawMessage(`[]`)},
		remote.Function{Name: "large", Parameters: json.RawMessage(`{"description":"` + strings.Repeat("x", 33<<10) + `"}`)})
	var paths []string
	for _, f := range spec.Validate() {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{"functions[1].name", "functions[2].name", "functions[3].parameters", "functions[4].parameters"}, paths); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// A tenant has so many workers; one that deregisters makes room.
func TestWorkersAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	last := b.register(b.ours, "invoice")
	b.exec(`INSERT INTO workers (id, tenant_id, host, pid, slots, name, lease_seconds, expires_at)
		SELECT gen_random_uuid(), $1, '', 0, 1, 'w', 30, now() + interval '1 minute' FROM generate_series(1, 199)`, b.ours.TenantID)
	spec := remote.Spec{Name: "w", Slots: 1, Lease: time.Minute, Functions: []remote.Function{{Name: "f", Parameters: json.RawMessage(`{}`)}}}
	_, err := b.store.Register(t.Context(), b.ours, spec)
	kind(t, "one worker too many", err, fault.Forbidden, fault.CodeQuotaExceeded)
	if err := b.store.Deregister(t.Context(), b.ours, last.ID); err != nil {
		t.Fatal(err)
	}
	kind(t, "deregistered twice", b.store.Deregister(t.Context(), b.ours, last.ID), fault.NotFound, fault.CodeWorkerNotFound)
	if _, err := b.store.Register(t.Context(), b.ours, spec); err != nil {
		t.Error(err)
	}
	_, err = remote.NewDesk(remote.Config{}).Claim(t.Context(), b.ours.TenantID, remote.Request{Worker: last.ID, Most: 1}, nil)
	kind(t, "without keys", err, fault.Unavailable, fault.CodeSecretsNotConfigured)
}
