package rest

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/console"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
)

const (
	// sessionCookie keeps the console's token while the browser runs, where no
	// script reads it.
	sessionCookie = "scheduler_session"
	// sessionHeader stands on every call of the session. A page of another origin
	// cannot send it: cors admits it for none.
	sessionHeader = "X-Scheduler-Console"
	// maxCookie is how long a token may be that a cookie keeps; browsers drop longer
	// ones. The console keeps those in memory alone.
	maxCookie = 3800
)

// session is what the console learns when it signs in.
type session struct {
	Token       string    `json:"token"`
	Subject     string    `json:"subject"`
	TenantID    uuid.UUID `json:"tenantId"`
	Permissions []string  `json:"permissions"`
	// RenewSeconds is when to ask for the session again, to get the token that follows
	// this one; 0: none does.
	RenewSeconds int `json:"renewSeconds,omitempty"`
}

// consoleSession signs the console in (POST, with a token, an API key or a code
// that is good once), tells a page that was loaded again, or whose token is about to
// expire, who is signed in (GET), and signs out (DELETE).
//
// The cookies go to this path alone: the API believes the header Authorization and
// no cookie, so no other page can make a browser call the API in somebody's name.
func (s *server) consoleSession(w http.ResponseWriter, r *http.Request) {
	c := callOf(r.Context())
	c.operation = &contract.Operation{ID: "consoleSession"}
	if r.Header.Get(sessionHeader) == "" {
		s.refuse(w, r, fault.New(fault.Forbidden, fault.CodeForbidden, "the console's session is for the console: the header "+sessionHeader+" is missing"))
		return
	}
	if s.Issuer != nil {
		w.Header().Set(signInHeader, s.SignInURL)
	}
	if r.Method == http.MethodDelete {
		s.signOut(w, r)
		return
	}
	token, t, err := s.sessionToken(r)
	if err == nil && token == "" {
		w.WriteHeader(http.StatusNoContent) // nobody is signed in
		return
	}
	if err == nil {
		err = s.openSession(w, r, token, t)
	}
	if err != nil {
		if fault.KindOf(err) == fault.Unauthenticated {
			s.endSession(w, r)
		}
		s.refuse(w, r, err)
	}
}

// sessionToken is the token of a call: of a sign-in what its header says, otherwise
// the cookie's or the one that follows it; empty where there is no cookie.
func (s *server) sessionToken(r *http.Request) (string, ticket, error) {
	if r.Method == http.MethodGet {
		return s.keptToken(r)
	}
	code, once := strings.CutPrefix(r.Header.Get("Authorization"), "Code ")
	if !once {
		token, err := identity.Bearer(r.Header)
		return token, ticket{}, err
	}
	if s.SignIn != nil {
		if token, ok := s.SignIn(code); ok {
			return token, ticket{}, nil
		}
	}
	return "", ticket{}, fault.New(fault.Unauthenticated, fault.CodeUnauthorized, "this sign-in was already used, or the service was restarted since: sign in with a token")
}

// openSession answers who the bearer of a token is and what it may do, after the
// checks that each call of the API makes.
func (s *server) openSession(w http.ResponseWriter, r *http.Request, token string, t ticket) error {
	who, granted, err := s.judge(w, r, token)
	if err != nil {
		return err
	}
	if !t.of(who.Actor) {
		return fault.New(fault.Unauthenticated, fault.CodeUnauthorized, "the issuer's next token is somebody else's: sign in again")
	}
	s.keepSession(w, r, token)
	s.keepTicket(w, r, t)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	// It fails only where the client is gone.
	_ = json.NewEncoder(w).Encode(session{Token: token, Subject: who.Actor.Subject, TenantID: who.Actor.TenantID, Permissions: granted, RenewSeconds: t.renewSeconds(token, s.Clock())})
	return nil
}

// judge says who the bearer of a token is and what it may do, after the checks that each call of the
// API makes.
func (s *server) judge(w http.ResponseWriter, r *http.Request, token string) (who identity.Principal, granted []string, err error) {
	c := callOf(r.Context())
	asked := r.Clone(r.Context())
	asked.Header.Set("Authorization", "Bearer "+token)
	who, err = s.identity(asked, c.operation)
	if c.who = who; err != nil {
		return who, nil, err
	}
	if granted = s.permissions(who); len(granted) == 0 {
		return who, nil, fault.New(fault.Forbidden, fault.CodeForbidden, "no role of the token and no scope of the key grants anything here")
	}
	c.operation.Permission = granted[0]
	return who, granted, s.mayAct(r.Context(), c, w.Header())
}

// permissions are those of the contract that somebody has, in order.
func (s *server) permissions(who identity.Principal) []string {
	granted := map[string]bool{}
	for _, operation := range s.contract.Operations() {
		if needed := identity.Permission(operation.Permission); needed.Known() && who.May(needed) {
			granted[operation.Permission] = true
		}
	}
	if who.May("secrets:use") { // no operation is for that alone
		granted["secrets:use"] = true
	}
	return slices.Sorted(maps.Keys(granted))
}

// keepSession sets the cookie, or with an empty token removes it.
func (s *server) keepSession(w http.ResponseWriter, r *http.Request, token string) {
	setCookie(w, r, http.Cookie{Name: sessionCookie, Value: token, Path: console.Session, SameSite: http.SameSiteStrictMode})
}

// endSession removes what the browser keeps of a session.
func (s *server) endSession(w http.ResponseWriter, r *http.Request) {
	s.keepSession(w, r, "")
	s.keepTicket(w, r, ticket{})
}

// setCookie sets a cookie that no script reads, or removes one that is empty or too long.
func setCookie(w http.ResponseWriter, r *http.Request, cookie http.Cookie) {
	cookie.HttpOnly = true
	// A proxy in front may have ended the encryption. A client that lies about it keeps a cookie from itself.
	cookie.Secure = r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
	if cookie.Value == "" || len(cookie.Value) > maxCookie {
		cookie.Value, cookie.MaxAge = "", -1
	}
	http.SetCookie(w, &cookie)
}
