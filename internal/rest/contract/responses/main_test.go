package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The contract is complete as it is committed, and what is generated of it can be
// generated again from what is written by hand.
func TestSharedResponsesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../../../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	contract := string(raw)
	if diff := cmp.Diff(contract, fill(contract)); diff != "" {
		t.Errorf("run make gen (-committed +filled):\n%s", diff)
	}
	generated := regexp.MustCompile(`        '(304|400|401|403|406|413|415|429|500)': \{ \$ref: '#/components/responses/\w+' \}\n`)
	bare := generated.ReplaceAllString(contract, "")
	if len(bare) > len(contract)-10_000 {
		t.Fatalf("only %d bytes are generated", len(contract)-len(bare))
	}
	if diff := cmp.Diff(contract, fill(bare)); diff != "" {
		t.Errorf("without them, others are filled in (-committed +filled):\n%s", diff)
	}
}
