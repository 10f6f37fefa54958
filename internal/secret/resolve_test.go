package secret

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// Values of the run need neither keys nor the database.
func TestValuesOfTheRun(t *testing.T) {
	t.Parallel()
	ready, err := (*Resolver)(nil).Resolve(t.Context(), Input{
		Version:   Version{Tenant: uuid.MustParse("00000000-0000-4000-8000-000000000001"), Job: uuid.MustParse("00000000-0000-4000-8000-000000000002")},
		Execution: uuid.MustParse("00000000-0000-4000-8000-000000000003"), Attempt: 4,
		ScheduledAt: time.Date(2026, 3, 4, 9, 0, 0, 500_000_000, time.FixedZone("CST", 8*3600)),
		Config:      json.RawMessage(`{"url":"https://h.example/{{run:executionId}}?at={{run:scheduledAt}}","body":{"n":"{{run:attempt}}","of":"{{run:jobId}} {{run:tenantId}}","x":"{{run:other}} {{name}}"}}`),
		Parameters:  json.RawMessage(`{"query":{"n":"{{run:attempt}}"}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"body":{"n":"4","of":"00000000-0000-4000-8000-000000000002 00000000-0000-4000-8000-000000000001","x":"{{run:other}} {{name}}"},` +
		`"url":"https://h.example/00000000-0000-4000-8000-000000000003?at=2026-03-04T01%3A00%3A00.5Z"}`
	if string(ready.Config) != want || string(ready.Parameters) != `{"query":{"n":"4"}}` {
		t.Errorf("config %s\nwant   %s\nparameters %s", ready.Config, want, ready.Parameters)
	}
	if text := "attempt 4 of 00000000-0000-4000-8000-000000000003"; ready.Mask.Text(text) != text {
		t.Error("values of the run are masked")
	}
}

// A credential is masked as its target was sent it, filled in.
func TestFilledCredentialsAreMasked(t *testing.T) {
	t.Parallel()
	ring, err := keyring.Parse(keyring.Generate("k"))
	if err != nil {
		t.Fatal(err)
	}
	of := Version{Tenant: uuid.New(), Job: uuid.New(), Number: 1}
	config := json.RawMessage(`{"headers":{"X-Token":"hunter2-{{run:attempt}}-hunter2"}}`)
	vault := NewVault(ring)
	protected := vault.protect(config, true)
	sealed, err := vault.seal(of, protected)
	if err != nil {
		t.Fatal(err)
	}
	ready, err := NewResolver(nil, ring).Resolve(t.Context(), Input{Version: of, Config: protected.Config, Sealed: sealed, Attempt: 3})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(ready.Config), "hunter2-3-hunter2") || ready.Mask.Text("got hunter2-3-hunter2") != "got ***" {
		t.Errorf("config %s, masked %q", ready.Config, ready.Mask.Text("got hunter2-3-hunter2"))
	}
}
