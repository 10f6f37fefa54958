// Package signintest is an OpenID Connect issuer for tests, over real HTTP: metadata, keys, codes
// bound to a client, an address and a challenge, ID and access tokens, refresh tokens.
package signintest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The issuer's one client.
const (
	ClientID     = "console"
	ClientSecret = "q7Zr2Vb9Lx4Nw8Tk"
)

// Issuer is the server. Its fields are set before it is asked.
type Issuer struct {
	*httptest.Server

	// Now is the issuer's clock.
	Now func() time.Time
	// Access and ID change what the tokens say, and Metadata what the issuer says of itself.
	Access, ID, Metadata func(map[string]any)
	// Sign signs an ID token; nil: as it should be.
	Sign func(id string, key *ecdsa.PrivateKey, claims jwt.MapClaims) string
	// Answer answers a request for a token instead; nil: nobody does.
	Answer http.HandlerFunc
	// AnswerRevocation answers a request to revoke a token instead; nil: nobody does.
	AnswerRevocation http.HandlerFunc
	// NoRefresh leaves out refresh tokens.
	NoRefresh bool

	mu      sync.Mutex
	id      string
	key     *ecdsa.PrivateKey
	codes   map[string]url.Values // what was asked for each code
	refresh string                // the one that is good
	asked   int                   // requests for tokens
}

// New starts one whose tokens are of a person of a tenant.
func New(t testing.TB, now func() time.Time, person map[string]any) *Issuer {
	t.Helper()
	i := &Issuer{Now: now, codes: map[string]url.Values{}}
	i.Access = func(claims map[string]any) { maps.Copy(claims, person) }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.metadata)
	mux.HandleFunc("GET /keys", i.keys)
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	mux.HandleFunc("POST /revoke", i.revoke)
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	if err := i.Rotate("k1"); err != nil {
		t.Fatal(err)
	}
	return i
}

// Rotate makes another key, which alone signs and is published from now on.
func (i *Issuer) Rotate(id string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id, i.key = id, key
	return nil
}

// Asked is how often somebody asked for a token.
func (i *Issuer) Asked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked
}

// Revoke ends the session of the person.
func (i *Issuer) Revoke() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refresh = ""
}

// Good says whether there is a refresh token that is good.
func (i *Issuer) Good() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.refresh != ""
}

// revoke ends the refresh token that a client sends (RFC 7009).
func (i *Issuer) revoke(w http.ResponseWriter, r *http.Request) {
	if i.AnswerRevocation != nil {
		i.AnswerRevocation(w, r)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if id, secret, _ := r.BasicAuth(); id != ClientID || secret != ClientSecret {
		send(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	if r.PostFormValue("token_type_hint") == "refresh_token" && r.PostFormValue("token") == i.refresh {
		i.refresh = ""
	}
	w.WriteHeader(http.StatusOK) // also for a token that is unknown, without a body
}

func (i *Issuer) metadata(w http.ResponseWriter, _ *http.Request) {
	says := map[string]any{
		"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys", "revocation_endpoint": i.URL + "/revoke", "end_session_endpoint": i.URL + "/logout",
		"code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true,
	}
	if i.Metadata != nil {
		i.Metadata(says)
	}
	send(w, http.StatusOK, says)
}

func (i *Issuer) keys(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	point, err := i.key.PublicKey.Bytes()
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	text := base64.RawURLEncoding.EncodeToString
	send(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{"kty": "EC", "crv": "P-256", "kid": i.id, "use": "sig", "x": text(point[1:33]), "y": text(point[33:])}}})
}

// authorize lets everybody in.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	if asked.Get("client_id") != ClientID || asked.Get("response_type") != "code" || asked.Get("code_challenge_method") != "S256" || len(asked.Get("code_challenge")) != 43 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	code := rand.Text()
	i.mu.Lock()
	i.codes[code] = asked
	i.mu.Unlock()
	w.Header().Set("Location", asked.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {asked.Get("state")}, "iss": {i.URL}}.Encode())
	w.WriteHeader(http.StatusFound)
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked++
	if i.Answer != nil {
		i.Answer(w, r)
		return
	}
	if id, secret, _ := r.BasicAuth(); id != ClientID || secret != ClientSecret {
		send(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	var nonce string
	switch r.PostFormValue("grant_type") {
	case "authorization_code":
		asked, ok := i.codes[r.PostFormValue("code")]
		delete(i.codes, r.PostFormValue("code"))
		challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if !ok || asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(challenge[:]) {
			send(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant", "error_description": "the code is not good"})
			return
		}
		nonce = asked.Get("nonce")
	default:
		if i.refresh == "" || r.PostFormValue("refresh_token") != i.refresh {
			send(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
			return
		}
	}
	send(w, http.StatusOK, i.grant(nonce))
}

// grant is an answer with tokens, good for five minutes.
func (i *Issuer) grant(nonce string) map[string]any {
	now := i.Now()
	claims := func(audience string, change func(map[string]any)) jwt.MapClaims {
		all := map[string]any{"iss": i.URL, "sub": "ada", "aud": audience, "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(), "jti": rand.Text()}
		if nonce != "" && audience == ClientID {
			all["nonce"] = nonce
		}
		if change != nil {
			change(all)
		}
		return all
	}
	sign := i.Sign
	if sign == nil {
		sign = Signed
	}
	answer := map[string]any{"token_type": "bearer", "access_token": Signed(i.id, i.key, claims("scheduler", i.Access)), "id_token": sign(i.id, i.key, claims(ClientID, i.ID))}
	if !i.NoRefresh {
		i.refresh = rand.Text()
		answer["refresh_token"] = i.refresh
	}
	return answer
}

// Signed is a token as it should be; empty where it cannot be made.
func Signed(id string, key *ecdsa.PrivateKey, claims jwt.MapClaims) string {
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	token.Header["kid"] = id
	text, err := token.SignedString(key)
	if err != nil {
		return ""
	}
	return text
}

func send(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // it fails only where the client is gone
}
