package signature_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/signature"
)

// The example of the specification's libraries.
const (
	key  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	id   = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	body = `{"test": 2432232314}`
	want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func TestSignatureIsThatOfTheSpecification(t *testing.T) {
	t.Parallel()
	for _, text := range []string{key, strings.TrimPrefix(key, "whsec_"), " " + key + "\n"} {
		keys, err := signature.ParseKeys(text)
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		keys.Sign(header, id, time.Unix(1614265330, 999), []byte(body))
		if header.Get("webhook-id") != id || header.Get("webhook-timestamp") != "1614265330" || header.Get("webhook-signature") != want {
			t.Errorf("key %q: %v", text, header)
		}
	}
}

func TestTwoKeysSignWhileTheyRotate(t *testing.T) {
	t.Parallel()
	next := base64.StdEncoding.EncodeToString([]byte("another key, of 32 bytes exactly"))
	keys, err := signature.ParseKeys(next, key)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	keys.Sign(header, id, time.Unix(1614265330, 0), []byte(body))
	both := strings.Split(header.Get("webhook-signature"), " ")
	if len(both) != 2 || both[1] != want || both[0] == want || !strings.HasPrefix(both[0], "v1,") {
		t.Errorf("signatures %q", both)
	}
	if _, err := signature.ParseKeys(key, key, key); err == nil {
		t.Error("three keys sign")
	}
}

func TestTextsThatAreNoKeys(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "whsec_", "hunter2", "whsec_!" + key[7:], base64.StdEncoding.EncodeToString(make([]byte, 23)), base64.StdEncoding.EncodeToString(make([]byte, 65))} {
		_, err := signature.ParseKeys(text)
		if !errors.Is(err, signature.ErrKey) || text != "" && strings.Contains(err.Error(), text) && text != "whsec_" {
			t.Errorf("ParseKeys(%q) = %v", text, err)
		}
	}
}

func TestWithoutKeysNothingIsSigned(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	signature.Keys{}.Sign(header, id, time.Unix(1, 0), nil)
	if len(header) > 0 {
		t.Errorf("header %v", header)
	}
}
