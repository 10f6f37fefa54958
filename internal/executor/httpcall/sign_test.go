package httpcall_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/executor"
)

var (
	oldKey = []byte("an old key of 24 bytes..")
	newKey = []byte("the new key, of 32 random bytes.")
)

func keyText(key []byte) string { return "whsec_" + base64.StdEncoding.EncodeToString(key) }

// A target verifies with either key, over the bytes that it got.
func TestCallsAreSigned(t *testing.T) {
	t.Parallel()
	var header http.Header
	var body []byte
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	})
	for _, sent := range []string{`"body":{"a":1},`, `"body":"text",`, ``} {
		r := run(server, `{"url":"$URL","method":"POST",`+sent+`"headers":{"Webhook-Id":"forged"},"signingKeys":["`+keyText(newKey)+`","`+keyText(oldKey)+`"]}`)
		if out := call(t, t.Context(), r); out.Err != nil {
			t.Fatal(out.Err)
		}
		if id := header.Get("webhook-id"); id != r.ExecutionID.String() {
			t.Errorf("webhook-id %q", id)
		}
		if at := header.Get("webhook-timestamp"); at != strconv.FormatInt(now.Unix(), 10) {
			t.Errorf("webhook-timestamp %q", at)
		}
		got := strings.Fields(header.Get("webhook-signature"))
		for i, key := range [][]byte{newKey, oldKey} {
			sum := hmac.New(sha256.New, key)
			_, _ = io.WriteString(sum, header.Get("webhook-id")+"."+header.Get("webhook-timestamp")+"."+string(body))
			if want := "v1," + base64.StdEncoding.EncodeToString(sum.Sum(nil)); len(got) != 2 || got[i] != want {
				t.Errorf("body %q: signatures %q, want %q in place %d", body, got, want, i)
			}
		}
	}
}

// A secret that is no key ends the attempt before the call, and stands in no message.
func TestSecretThatIsNoKeySignsNothing(t *testing.T) {
	t.Parallel()
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the call was made") })
	out := call(t, t.Context(), run(server, `{"url":"$URL","signingKeys":["hunter2-hunter2"]}`))
	if out.Err == nil || out.Err.Type != executor.ValidationError || strings.Contains(out.Err.Message, "hunter2") || !strings.Contains(out.Err.Message, "24 to 64 bytes") {
		t.Errorf("outcome %+v", out.Err)
	}
}

// A definition refers to its keys and holds none.
func TestSigningKeysAreReferences(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for keys, want := range map[string]string{
		`["{{secret:hook}}"]`:                            "",
		`["{{secret:hook}}","{{secret:hook-old}}"]`:      "",
		`["` + keyText(oldKey) + `"]`:                    "config.signingKeys[0] reference",
		`["x{{secret:hook}}"]`:                           "config.signingKeys[0] reference",
		`["{{secret:a}}{{secret:b}}"]`:                   "config.signingKeys[0] reference",
		`[]`:                                             "config.signingKeys length",
		`["{{secret:a}}","{{secret:b}}","{{secret:c}}"]`: "config.signingKeys length",
		`"{{secret:hook}}"`:                              "config.signingKeys type",
	} {
		got := strings.Join(rules(e.Validate(json.RawMessage(`{"url":"https://example.com","signingKeys":`+keys+`}`))), ", ")
		if got != want {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
}
