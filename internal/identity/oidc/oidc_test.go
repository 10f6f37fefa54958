package oidc_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/identity/oidc"
)

func newKey(id string) string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw)
	return id + ":" + base64.StdEncoding.EncodeToString(raw)
}

func TestAddressesAndKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	const address = "https://scheduler.example.com"
	for _, test := range []struct{ address, keys, want string }{
		{"", "", ""},
		{address + "/", newKey("a") + ", " + newKey("b"), ""},
		{address, "", ""},
		{address, " , ", "there are 0 keys"},
		{"", newKey("a"), "need PUBLIC_URL"},
		{"scheduler.example.com", newKey("a"), "need a PUBLIC_URL"},
		{"ftp://a.example", newKey("a"), "need a PUBLIC_URL"},
		{"https://u:p@a.example", newKey("a"), "need a PUBLIC_URL"},
		{address + "?x", newKey("a"), "need a PUBLIC_URL"},
		{address, "hunter2hunter2", "not of the form"},
		{address, "a b:" + newKey("")[1:], "not of the form"},
		{address, "a:aHVudGVyMg==", "not the base64 of 32 bytes"},
		{address, "a:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)), "not random"},
		{address, "a://///wAAAAD//////////7zm+q2nF56E87nKwvxjJVE=", "no key of P-256"}, // the order of the curve
		{address, newKey("a") + "," + newKey("a"), "stands twice"},
		{address, newKey("a") + "," + newKey("b") + "," + newKey("c") + "," + newKey("d") + "," + newKey("e"), "there are 5 keys"},
	} {
		_, err := oidc.New(test.address, test.keys)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%q: %v", test.address, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "aHVudGVyMg") || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%q: %v, want %q", test.address, err, test.want)
		}
	}
}

func TestWithoutAnIssuer(t *testing.T) {
	t.Parallel()
	i, err := oidc.New("https://scheduler.example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	if documents, err := i.Documents(); len(documents) != 0 || err != nil {
		t.Errorf("it publishes %s, %v", documents, err)
	}
	if _, err := i.Sign(oidc.Run{}, time.Unix(0, 0)); err == nil {
		t.Error("it signs")
	}
}
