package deadletter_test

import (
	"testing"

	"github.com/scheduler-service/scheduler/internal/deadletter"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		one, other string
		same       bool
	}{
		{"the same text", "connection refused", "connection refused", true},
		{"another text", "connection refused", "connection reset", false},
		{"numbers", "the target answered 503 after 1204 ms", "the target answered 502 after 9 ms", true},
		{"numbers with a point", "took 1.5 s", "took 12 s", true},
		{"numbers in words", "node17 is gone", "node4 is gone", true},
		{"addresses", "dial tcp 10.1.2.3:8080: refused", "dial tcp 10.9.9.9:443: refused", true},
		{"ids", "no order 0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10", "no order 1192F0A1-7B3C-7D4E-8F5A-6B7C8D9E0F11", true},
		{"hex", "panic at 0xc000123abc", "panic at 0xdeadbeef", true},
		{"a digest", "commit 5f2a9bde10", "commit aabbccddee", true},
		{"a word of hex letters that is short", "facade is down", "deadbed is down", false},
		{"quoted text", `no such host "a.example"`, `no such host "b.example"`, true},
		{"text in single quotes", "no such key 'a' here", "no such key 'b' here", true},
		{"an apostrophe is no quote", "the host doesn't answer, the disk isn't there", "the host doesn't know, the disk isn't there", false},
		{"spaces", "a  b\n", "a b", true},
		{"nothing", "", "", true},
		{"nothing and a number", "", "7", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			one, other := deadletter.Fingerprint("TIMEOUT", test.one), deadletter.Fingerprint("TIMEOUT", test.other)
			if len(one) != 16 || (one == other) != test.same {
				t.Errorf("%q and %q: %s and %s, want the same: %v", test.one, test.other, one, other, test.same)
			}
			if one == deadletter.Fingerprint("USER_ERROR", test.one) {
				t.Error("another type has the same fingerprint")
			}
		})
	}
}
