package identity_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

var (
	key    = []byte("0123456789abcdef0123456789abcdef")
	other  = []byte("fedcba9876543210fedcba9876543210")
	now    = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	tenid  = uuid.MustParse("0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10")
	issuer = "https://auth.example.com"
)

func newTokens(t *testing.T) *identity.Tokens {
	t.Helper()
	tokens, err := identity.NewTokens(identity.Config{
		Secret: key, Issuer: issuer, Audience: "scheduler", Clock: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func bearer(token string) http.Header {
	return http.Header{"Authorization": {"Bearer " + token}}
}

// claims are those of a good token; change may spoil them.
func claims(change func(map[string]any)) map[string]any {
	c := map[string]any{
		"sub": "user-1", "tenant_id": tenid.String(), "roles": []string{"viewer"},
		"iss": issuer, "aud": "scheduler", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	if change != nil {
		change(c)
	}
	return c
}

// sign builds a token by hand, so that headers and claims may be anything.
func sign(t *testing.T, secret []byte, header, claims map[string]any) string {
	t.Helper()
	part := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	return seal(secret, part(header)+"."+part(claims))
}

// signText builds a token of texts that no map can hold.
func signText(secret []byte, header, claims string) string {
	return seal(secret, base64.RawURLEncoding.EncodeToString([]byte(header))+"."+base64.RawURLEncoding.EncodeToString([]byte(claims)))
}

func seal(secret []byte, text string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// claimsText are good claims with some text before them.
func claimsText(first string) string {
	good, _ := json.Marshal(claims(nil)) // strings and numbers always marshal
	return "{" + first + string(good[1:])
}

func hs256(extra ...any) map[string]any {
	h := map[string]any{"alg": "HS256", "typ": "JWT"}
	for i := 0; i < len(extra); i += 2 {
		h[extra[i].(string)] = extra[i+1]
	}
	return h
}

func TestAuthenticateAcceptsAGoodToken(t *testing.T) {
	t.Parallel()
	minted, err := identity.Mint(key, identity.Claims{
		Subject: "user-1", Tenant: tenid, Roles: []identity.Role{identity.Viewer}, Issuer: issuer, Audience: "scheduler",
	}, now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"minted":                   minted,
		"signed by hand":           sign(t, key, hs256(), claims(nil)),
		"a kid is ignored":         sign(t, key, hs256("kid", "../../dev/null"), claims(nil)),
		"no typ":                   sign(t, key, map[string]any{"alg": "HS256"}, claims(nil)),
		"an access token":          sign(t, key, hs256("typ", "at+JWT"), claims(nil)),
		"several audiences":        sign(t, key, hs256(), claims(func(c map[string]any) { c["aud"] = []string{"x", "scheduler"} })),
		"expired within leeway":    sign(t, key, hs256(), claims(func(c map[string]any) { c["exp"] = now.Add(-20 * time.Second).Unix() })),
		"issued a little later":    sign(t, key, hs256(), claims(func(c map[string]any) { c["iat"] = now.Add(20 * time.Second).Unix() })),
		"claims of other services": sign(t, key, hs256(), claims(func(c map[string]any) { c["scope"] = "a b" })),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := newTokens(t).Authenticate(t.Context(), bearer(token))
			if err != nil {
				t.Fatal(err)
			}
			want := identity.Principal{Actor: tenant.Actor{TenantID: tenid, Subject: "user-1"}, Roles: []identity.Role{identity.Viewer}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("principal differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuthenticateRefusesForgedTokens(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := sign(t, key, hs256(), claims(nil))
	parts := strings.Split(good, ".")
	none := func(alg string) string {
		unsigned := sign(t, key, map[string]any{"alg": alg, "typ": "JWT"}, claims(nil))
		return unsigned[:strings.LastIndex(unsigned, ".")+1]
	}
	with := func(method jwt.SigningMethod, signer any) string {
		token, err := jwt.NewWithClaims(method, jwt.MapClaims(claims(nil))).SignedString(signer)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	for name, token := range map[string]string{
		"alg none":                      none("none"),
		"alg None":                      none("None"),
		"alg nOnE with a signature":     sign(t, key, map[string]any{"alg": "nOnE"}, claims(nil)),
		"no alg":                        sign(t, key, map[string]any{"typ": "JWT"}, claims(nil)),
		"alg is a number":               sign(t, key, map[string]any{"alg": 1}, claims(nil)),
		"another secret":                sign(t, other, hs256(), claims(nil)),
		"an empty secret":               sign(t, nil, hs256(), claims(nil)),
		"HS384 with the right secret":   with(jwt.SigningMethodHS384, key),
		"HS512 with the right secret":   with(jwt.SigningMethodHS512, key),
		"RS256":                         with(jwt.SigningMethodRS256, rsaKey),
		"HS256 signature, alg RS256":    sign(t, key, map[string]any{"alg": "RS256"}, claims(nil)),
		"jwk":                           sign(t, key, hs256("jwk", map[string]any{"kty": "oct", "k": "AAAA"}), claims(nil)),
		"jku":                           sign(t, key, hs256("jku", "https://evil.example/keys"), claims(nil)),
		"x5u":                           sign(t, key, hs256("x5u", "https://evil.example/cert"), claims(nil)),
		"x5c":                           sign(t, key, hs256("x5c", []string{"AAAA"}), claims(nil)),
		"crit":                          sign(t, key, hs256("crit", []string{"b64"}, "b64", false), claims(nil)),
		"b64":                           sign(t, key, hs256("b64", false), claims(nil)),
		"zip":                           sign(t, key, hs256("zip", "DEF"), claims(nil)),
		"alg twice":                     signText(key, `{"alg":"HS256","alg":"HS256"}`, claimsText("")),
		"a claim twice":                 signText(key, `{"alg":"HS256"}`, claimsText(`"tenant_id":"`+uuid.NewString()+`",`)),
		"a claim twice, in capitals":    signText(key, `{"alg":"HS256"}`, claimsText(`"Tenant_ID":"`+uuid.NewString()+`",`)),
		"a logout token":                sign(t, key, hs256("typ", "logout+jwt"), claims(nil)),
		"no signature":                  parts[0] + "." + parts[1] + ".",
		"no third part":                 parts[0] + "." + parts[1],
		"a fourth part":                 good + ".e30",
		"five parts":                    good + ".e30.e30",
		"another payload":               parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"root"}`)) + "." + parts[2],
		"payload null":                  parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte("null")) + "." + parts[2],
		"signature with a stray bit":    good[:len(good)-1] + flip(good[len(good)-1]),
		"padding":                       good + "=",
		"dots":                          strings.Repeat(".", 5000),
		"one megabyte of dots":          strings.Repeat(".", 1<<20),
		"long but well-formed":          sign(t, key, hs256(), claims(func(c map[string]any) { c["x"] = strings.Repeat("a", 9000) })),
		"not base64":                    "a!b.c.d",
		"a token in a token":            "Bearer " + good,
		"a space after it":              good + " ",
		"a null byte":                   good + "\x00",
		"nothing":                       "",
		"an API key of some other kind": "sk_live_abcdefgh_0123456789",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, bearer(token))
		})
	}
}

// flip changes the lowest of the six bits of a base64 character that ends a
// 32 byte value: a bit that is not used, so a lax decoder reads the same.
func flip(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(alphabet[strings.IndexByte(alphabet, c)^1])
}

func TestAuthenticateRefusesBadClaims(t *testing.T) {
	t.Parallel()
	set := func(name string, value any) func(map[string]any) {
		return func(c map[string]any) { c[name] = value }
	}
	drop := func(name string) func(map[string]any) { return func(c map[string]any) { delete(c, name) } }
	for name, change := range map[string]func(map[string]any){
		"expired":                      set("exp", now.Add(-40*time.Second).Unix()),
		"exp missing":                  drop("exp"),
		"exp a text":                   set("exp", "tomorrow"),
		"exp digits as text":           set("exp", strconv.FormatInt(now.Add(time.Hour).Unix(), 10)),
		"iat digits as text":           set("iat", strconv.FormatInt(now.Unix(), 10)),
		"exp null":                     set("exp", nil),
		"not valid yet":                set("nbf", now.Add(time.Minute).Unix()),
		"issued in the future":         set("iat", now.Add(time.Minute).Unix()),
		"iss missing":                  drop("iss"),
		"iss other":                    set("iss", "https://evil.example"),
		"iss prefix":                   set("iss", issuer+".evil.example"),
		"aud missing":                  drop("aud"),
		"aud other":                    set("aud", "billing"),
		"aud empty":                    set("aud", []string{}),
		"sub missing":                  drop("sub"),
		"sub empty":                    set("sub", ""),
		"sub a number":                 set("sub", 1),
		"sub too long":                 set("sub", strings.Repeat("a", 256)),
		"sub with a NUL":               set("sub", "a\x00b"),
		"sub with a line break":        set("sub", "a\n{\"level\":\"error\"}"),
		"tenant missing":               drop("tenant_id"),
		"tenant no UUID":               set("tenant_id", "1 OR 1=1"),
		"tenant nil":                   set("tenant_id", uuid.Nil.String()),
		"tenant in braces":             set("tenant_id", "{"+tenid.String()+"}"),
		"tenant as URN":                set("tenant_id", tenid.URN()),
		"tenant without dashes":        set("tenant_id", strings.ReplaceAll(tenid.String(), "-", "")),
		"tenant a list":                set("tenant_id", []string{tenid.String()}),
		"roles a text":                 set("roles", "admin"),
		"roles a list of lists":        set("roles", [][]string{{"admin"}}),
		"roles an object":              set("roles", map[string]bool{"admin": true}),
		"sub missing, name in capital": func(c map[string]any) { delete(c, "sub"); c["subject"] = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, bearer(sign(t, key, hs256(), claims(change))))
		})
	}
}

func TestAuthenticateRefusesOtherHeaders(t *testing.T) {
	t.Parallel()
	good := sign(t, key, hs256(), claims(nil))
	for name, header := range map[string]http.Header{
		"none":           {},
		"empty":          {"Authorization": {""}},
		"no scheme":      {"Authorization": {good}},
		"basic":          {"Authorization": {"Basic dXNlcjpwYXNz"}},
		"scheme only":    {"Authorization": {"Bearer"}},
		"twice":          {"Authorization": {"Bearer " + good, "Bearer " + good}},
		"another header": {"X-Authorization": {"Bearer " + good}, "Cookie": {"token=" + good}, "X-Tenant-Id": {tenid.String()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, header)
		})
	}
	if _, err := newTokens(t).Authenticate(t.Context(), http.Header{"Authorization": {"bEaReR " + good}}); err != nil {
		t.Errorf("the scheme's case counts: %v", err)
	}
}

// refused demands Unauthenticated with a message that repeats nothing.
func refused(t *testing.T, header http.Header) {
	t.Helper()
	principal, err := newTokens(t).Authenticate(t.Context(), header)
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Unauthenticated || f.Code != "UNAUTHORIZED" {
		t.Fatalf("Authenticate = %+v, %v; want UNAUTHORIZED", principal, err)
	}
	if strings.Contains(f.Message, "expired") {
		principal.Actor = tenant.Actor{} // whose it was, who may do nothing
	}
	if !cmp.Equal(principal, identity.Principal{}) {
		t.Errorf("a refusal comes with the principal %+v", principal)
	}
	if len(f.Message) > 150 || strings.Contains(f.Message, "eyJ") {
		t.Errorf("the message %q repeats the token", f.Message)
	}
}

func TestNewTokensRefusesAShortSecret(t *testing.T) {
	t.Parallel()
	if _, err := identity.NewTokens(identity.Config{Secret: key[:31], Clock: func() time.Time { return now }}); err == nil {
		t.Error("31 bytes were accepted")
	}
}

func TestIssuerAndAudienceAreOptional(t *testing.T) {
	t.Parallel()
	tokens, err := identity.NewTokens(identity.Config{Secret: key, Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	minted, err := identity.Mint(key, identity.Claims{Subject: "u", Tenant: tenid}, now, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tokens.Authenticate(t.Context(), bearer(minted))
	if err != nil || len(got.Roles) != 0 {
		t.Errorf("Authenticate = %+v, %v; want a principal without roles", got, err)
	}
}

// A token is good for as long as one may be and no longer, whatever it says.
func TestALongLifeIsRefused(t *testing.T) {
	t.Parallel()
	const longest = 24 * time.Hour
	for name, test := range map[string]struct {
		bound    time.Duration
		iat, exp any // nil: left out
		ok       bool
	}{
		"as long as may be":              {longest, now.Unix(), now.Add(longest).Unix(), true},
		"half used":                      {longest, now.Add(-12 * time.Hour).Unix(), now.Add(12 * time.Hour).Unix(), true},
		"a second longer":                {longest, now.Unix(), now.Add(longest + time.Second).Unix(), false},
		"about to expire, made long ago": {longest, now.Add(-10 * 24 * time.Hour).Unix(), now.Add(time.Minute).Unix(), false},
		"for good":                       {longest, now.Unix(), int64(1) << 52, false},
		"for good, in a float":           {longest, now.Unix(), 1e300, false},
		"no iat":                         {longest, nil, now.Add(longest).Unix(), true},
		"no iat, a clock ahead":          {longest, nil, now.Add(longest + 30*time.Second).Unix(), true},
		"no iat, longer":                 {longest, nil, now.Add(longest + 31*time.Second).Unix(), false},
		"iat null, longer":               {longest, json.RawMessage("null"), now.Add(longest + 31*time.Second).Unix(), false},
		"any":                            {0, now.Unix(), now.Add(10 * 365 * longest).Unix(), true},
		"any, no iat":                    {0, nil, now.Add(10 * 365 * longest).Unix(), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokens, err := identity.NewTokens(identity.Config{Secret: key, MaxLifetime: test.bound, Clock: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			token := sign(t, key, hs256(), claims(func(c map[string]any) {
				for claim, value := range map[string]any{"iat": test.iat, "exp": test.exp} {
					if c[claim] = value; value == nil {
						delete(c, claim)
					}
				}
			}))
			_, err = tokens.Authenticate(t.Context(), bearer(token))
			var f *fault.Error
			switch {
			case test.ok && err != nil:
				t.Errorf("refused: %v", err)
			case !test.ok && (!errors.As(err, &f) || f.Kind != fault.Unauthenticated):
				t.Errorf("got %v, want Unauthenticated", err)
			}
			if name == "a second longer" && f != nil && f.Message != "the token is good for longer than the 24 hours that are allowed" {
				t.Errorf("the reason is %q", f.Message)
			}
		})
	}
}

// Refusing a header takes a bounded number of
// allocations (a parser that splits at each dot makes thousands of them). Not
// parallel: the count is of the whole process.
func TestATokenOfDotsCostsLittle(t *testing.T) {
	tokens := newTokens(t)
	for _, length := range []int{8000, 1 << 20} {
		h := bearer(strings.Repeat(".", length))
		allocations := testing.AllocsPerRun(100, func() {
			if _, err := tokens.Authenticate(t.Context(), h); err == nil {
				t.Fatal("believed")
			}
		})
		if allocations > 50 {
			t.Errorf("a token of %d dots takes %g allocations", length, allocations)
		}
	}
}
