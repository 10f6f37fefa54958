package jwks_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity/jwks"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// authority answers as an auth service does, without a network, so that a
// test may turn its clock.
type authority struct {
	mu     sync.Mutex
	status int
	body   string
	away   bool
	asked  int
}

func (a *authority) RoundTrip(*http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.away {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: a.status, Body: io.NopCloser(strings.NewReader(a.body)), Header: http.Header{}}, nil
}

func (a *authority) say(status int, body string, away bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.body, a.away = status, body, away
}

func (a *authority) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

func newSet(a *authority) *jwks.Set {
	return jwks.New(jwks.Config{URL: "https://auth.example.com/keys", Log: slog.New(slog.DiscardHandler), Transport: a})
}

func text(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

// okp is an Ed25519 key as a set writes it.
func okp(id string) map[string]any {
	public, _, _ := ed25519.GenerateKey(rand.Reader)
	return map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": id, "x": text(public), "use": "sig", "alg": "EdDSA"}
}

func with(key map[string]any, pairs ...any) map[string]any {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == nil {
			delete(key, pairs[i].(string))
			continue
		}
		key[pairs[i].(string)] = pairs[i+1]
	}
	return key
}

func set(keys ...map[string]any) string {
	raw, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func rsaKey(t *testing.T, bits int) map[string]any {
	t.Helper()
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	n.Add(n, big.NewInt(1))
	return map[string]any{"kty": "RSA", "kid": "a", "n": text(n.Bytes()), "e": "AQAB"}
}

func ecKey(t *testing.T) map[string]any {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"kty": "EC", "crv": "P-256", "kid": "a", "x": text(point[1:33]), "y": text(point[33:])}
}

func kindOf(err error) string {
	if err == nil {
		return "found"
	}
	return fault.KindOf(err).String()
}

func TestKeysThatVerifyAreTakenAndOthersAreNot(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key   map[string]any
		taken bool
	}{
		"Ed25519":                     {okp("a"), true},
		"RSA":                         {rsaKey(t, 2048), true},
		"RSA bound to RS256":          {with(rsaKey(t, 2048), "alg", "RS256"), true},
		"P-256":                       {ecKey(t), true},
		"no use":                      {with(okp("a"), "use", nil, "alg", nil), true},
		"for verifying":               {with(okp("a"), "key_ops", []string{"verify"}), true},
		"for encryption":              {with(okp("a"), "use", "enc"), false},
		"for signing only":            {with(okp("a"), "key_ops", []string{"sign"}), false},
		"RSA of 1024 bits":            {rsaKey(t, 1024), false},
		"RSA of 16384 bits":           {rsaKey(t, 16384), false},
		"RSA with an exponent of 1":   {with(rsaKey(t, 2048), "e", "AQ"), false},
		"RSA with an even exponent":   {with(rsaKey(t, 2048), "e", "BA"), false},
		"RSA with a vast exponent":    {with(rsaKey(t, 2048), "e", text(bytes.Repeat([]byte{1}, 9))), false},
		"RSA without a modulus":       {with(rsaKey(t, 2048), "n", nil), false},
		"RSA bound to PS256":          {with(rsaKey(t, 2048), "alg", "PS256"), false},
		"RSA bound to HS256":          {with(rsaKey(t, 2048), "alg", "HS256"), false},
		"P-384 by name":               {with(ecKey(t), "crv", "P-384"), false},
		"not on the curve":            {with(ecKey(t), "y", text(make([]byte, 32))), false},
		"a short coordinate":          {with(ecKey(t), "y", text(make([]byte, 31))), false},
		"a secret":                    {map[string]any{"kty": "oct", "kid": "a", "k": text(make([]byte, 32))}, false},
		"X25519":                      {with(okp("a"), "crv", "X25519"), false},
		"Ed25519 of 31 bytes":         {with(okp("a"), "x", text(make([]byte, 31))), false},
		"an id that is a path":        {with(okp("a"), "kid", "../a"), false},
		"an id that is a number":      {with(okp("a"), "kid", 7), false},
		"numbers in standard base 64": {with(rsaKey(t, 2048), "e", "AQAB=="), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &authority{status: http.StatusOK, body: set(test.key, okp("other"))}
			_, err := newSet(a).Key(t.Context(), "a")
			if (err == nil) != test.taken {
				t.Errorf("the key was answered with %v, want it taken: %v", err, test.taken)
			}
		})
	}
}

func TestKeysWithOneIDAreAmbiguous(t *testing.T) {
	t.Parallel()
	s := newSet(&authority{status: http.StatusOK, body: set(okp("a"), okp("a"), okp("b"))})
	if _, err := s.Key(t.Context(), "a"); kindOf(err) != "unauthenticated" {
		t.Errorf("an id that two keys have was answered with %v", err)
	}
	if _, err := s.Key(t.Context(), "b"); err != nil {
		t.Error(err)
	}
}

func TestATokenWithoutAnIDTakesTheOnlyKey(t *testing.T) {
	t.Parallel()
	one := newSet(&authority{status: http.StatusOK, body: set(okp("a"))})
	if _, err := one.Key(t.Context(), ""); err != nil {
		t.Error(err)
	}
	two := newSet(&authority{status: http.StatusOK, body: set(okp("a"), okp("b"))})
	if _, err := two.Key(t.Context(), ""); kindOf(err) != "unauthenticated" {
		t.Errorf("of two keys, one was chosen: %v", err)
	}
}

// A new key is believed at once; made-up ids do not become a load on the auth
// service, and neither do ids that cannot be one.
func TestAnUnknownIDAsksAgainButNotOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &authority{status: http.StatusOK, body: set(okp("old"))}
		s := newSet(a)
		if _, err := s.Key(t.Context(), "old"); err != nil {
			t.Fatal(err)
		}
		a.say(http.StatusOK, set(okp("old"), okp("new")), false)
		if _, err := s.Key(t.Context(), "new"); kindOf(err) != "unauthenticated" || a.count() != 1 {
			t.Errorf("at once after an answer: %v, asked %d times", err, a.count())
		}
		<-time.After(10 * time.Second)
		if _, err := s.Key(t.Context(), "new"); err != nil || a.count() != 2 {
			t.Errorf("ten seconds later: %v, asked %d times", err, a.count())
		}
		<-time.After(time.Minute)
		for i := range 1000 {
			if _, err := s.Key(t.Context(), fmt.Sprint("made-up-", i)); kindOf(err) != "unauthenticated" {
				t.Fatal(err)
			}
		}
		<-time.After(time.Minute) // asking would be due again, for what could be an id
		for _, id := range []string{"../../dev/null", "' OR 1=1", strings.Repeat("a", 10_000), "a b", "é", "a.b"} {
			if _, err := s.Key(t.Context(), id); kindOf(err) != "unauthenticated" {
				t.Errorf("the id %.20q: %v", id, err)
			}
		}
		if a.count() != 3 {
			t.Errorf("asked %d times", a.count())
		}
	})
}

// refresh refreshes a set as the API does.
func refresh(ctx context.Context, s *jwks.Set) error {
	r := loop.Runner{Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
	return r.Run(ctx, []loop.Pass{{Name: "refresh", Every: jwks.RefreshEvery, Do: func(ctx context.Context, _ *loop.Turn) error { return s.Refresh(ctx) }}})
}

func TestKeysStayWhileTheAddressIsAwayForADay(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(*authority){
		"refuses connections": func(a *authority) { a.say(0, "", true) },
		"answers 500":         func(a *authority) { a.say(http.StatusInternalServerError, set(okp("b")), false) },
		"answers a redirect":  func(a *authority) { a.say(http.StatusFound, "", false) },
		"answers no JSON":     func(a *authority) { a.say(http.StatusOK, "<html>", false) },
		"answers no key":      func(a *authority) { a.say(http.StatusOK, `{"keys":[]}`, false) },
		"answers too much":    func(a *authority) { a.say(http.StatusOK, set(okp("b"))+strings.Repeat(" ", 256<<10), false) },
		"answers many keys":   func(a *authority) { a.say(http.StatusOK, `{"keys":[`+strings.Repeat(`{},`, 100)+`{}]}`, false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := &authority{status: http.StatusOK, body: set(okp("a"))}
				s := newSet(a)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- refresh(ctx, s) }()
				synctest.Wait()
				broken(a)
				<-time.After(23 * time.Hour)
				synctest.Wait()
				if _, err := s.Key(t.Context(), "a"); err != nil {
					t.Errorf("after 23 hours: %v", err)
				}
				if _, err := s.Key(t.Context(), "b"); kindOf(err) != "unavailable" {
					t.Errorf("an unknown key while the address is away: %v", err)
				}
				<-time.After(2 * time.Hour)
				synctest.Wait()
				if _, err := s.Key(t.Context(), "a"); kindOf(err) != "unavailable" {
					t.Errorf("after 25 hours: %v", err)
				}
				a.say(http.StatusOK, set(okp("a")), false)
				<-time.After(6 * time.Minute)
				synctest.Wait()
				if _, err := s.Key(t.Context(), "a"); err != nil {
					t.Errorf("back again: %v", err)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAWithdrawnKeyIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &authority{status: http.StatusOK, body: set(okp("a"), okp("b"))}
		s := newSet(a)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- refresh(ctx, s) }()
		synctest.Wait()
		a.say(http.StatusOK, set(okp("b")), false)
		<-time.After(6 * time.Minute)
		synctest.Wait()
		if _, err := s.Key(t.Context(), "a"); kindOf(err) != "unauthenticated" {
			t.Errorf("the withdrawn key: %v", err)
		}
		stop()
		<-done
	})
}

// Over a real connection: an address that never answers and one that
// redirects cost a bounded time, and many who wait ask once.
func TestOverTheWire(t *testing.T) {
	t.Parallel()
	public, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	asked := map[string]int{} // by the query
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.RawQuery]++
		mu.Unlock()
		if r.URL.Path != "/keys" {
			w.Header().Set("Location", "/keys")
			w.WriteHeader(http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, set(map[string]any{"kty": "RSA", "kid": "a", "n": text(public.N.Bytes()), "e": "AQAB"}))
	}))
	defer server.Close()
	ask := func(query string) (times int, err error) {
		s, all := jwks.New(jwks.Config{URL: server.URL + "/keys?" + query, Log: slog.New(slog.DiscardHandler)}), make([]error, 50)
		var group sync.WaitGroup
		for i := range all {
			group.Go(func() {
				key, err := s.Key(t.Context(), "a")
				if all[i] = err; err == nil && !public.PublicKey.Equal(key) {
					t.Errorf("Key = %v", key)
				}
			})
		}
		group.Wait()
		mu.Lock()
		defer mu.Unlock()
		return asked[query], errors.Join(all...)
	}
	times, err := ask("0")
	// An answer may take three seconds, and a busy machine may stand still for longer.
	for try := 1; try < 5 && fault.KindOf(err) == fault.Unavailable; try++ {
		times, err = ask(fmt.Sprint(try))
	}
	if err != nil || times != 1 {
		t.Errorf("asked %d times: %v", times, err)
	}
	redirected := jwks.New(jwks.Config{URL: server.URL + "/old", Log: slog.New(slog.DiscardHandler)})
	if _, err := redirected.Key(t.Context(), "a"); kindOf(err) != "unavailable" {
		t.Errorf("a redirect was followed: %v", err)
	}
}
