package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/identity/signin"
	"github.com/scheduler-service/scheduler/internal/rest/console"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

const (
	// signInHeader tells the console where to sign in at the issuer.
	signInHeader = "X-Scheduler-Sign-In"
	// attemptCookie binds a sign-in under way to the browser that began it. It has to come along when
	// the issuer's page sends the browser back, so it is not kept to our own pages.
	attemptCookie = "scheduler_sign_in"
	// ticketCookie keeps, sealed, the issuer's refresh token beside the session.
	ticketCookie = "scheduler_ticket"
	// renewBefore is how long before its end a token is renewed.
	renewBefore = 30 * time.Second
	// maxRefresh bounds a refresh token in bytes, so that its cookie, sealed, has at most maxCookie.
	maxRefresh = 2500
	// maxReturn bounds the address that a sign-in leads to.
	maxReturn = 1000
)

// Why a sign-in failed that the issuer let through; see signin.Problem.
const (
	noAccess signin.Problem = "access" // the API does not believe the token
	noRights signin.Problem = "rights" // the API believes it, and grants nothing
	tooLong  signin.Problem = "long"   // no cookie has room for it
)

// ticket is what a session has that an issuer opened.
type ticket struct {
	Tenant  uuid.UUID
	Subject string
	Refresh string // empty where the issuer gave none
}

// of says whether the next token of a session is that of the same person; a session without a
// ticket is anybody's.
func (t ticket) of(who tenant.Actor) bool {
	return t == ticket{} || t.Tenant == who.TenantID && t.Subject == who.Subject
}

// renewSeconds is when to renew a token; 0: never.
func (t ticket) renewSeconds(token string, now time.Time) int {
	expires := identity.Expiry(token)
	if t.Refresh == "" || expires.IsZero() {
		return 0
	}
	return max(10, int((expires.Sub(now) - renewBefore).Seconds()))
}

// beginSignIn sends a browser to the issuer.
func (s *server) beginSignIn(w http.ResponseWriter, r *http.Request) {
	callOf(r.Context()).operation = &contract.Operation{ID: "consoleSignIn"}
	attempt, address, err := s.Issuer.Begin(r.Context(), ownPage(r.URL.Query().Get("to")))
	if err != nil {
		s.notSignedIn(w, r, signin.ProblemOf(err), err)
		return
	}
	sealed, err := s.Issuer.Seal(attemptCookie, attempt)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	s.keepAttempt(w, r, sealed)
	seeOther(w, address)
}

// finishSignIn opens the session of somebody whom the issuer sends back.
func (s *server) finishSignIn(w http.ResponseWriter, r *http.Request) {
	callOf(r.Context()).operation = &contract.Operation{ID: "consoleSignIn"}
	s.keepAttempt(w, r, "") // good once
	var attempt signin.Attempt
	if err := s.Issuer.Open(attemptCookie, cookieOf(r, attemptCookie), &attempt); err != nil {
		s.notSignedIn(w, r, signin.Stale, err)
		return
	}
	bucket, failures := s.guesses(r)
	if wait := s.Buckets.Refused(bucket); wait > 0 {
		s.refuse(w, r, s.tooMany(failures, "authenticationFailures", wait, tooManyGuesses))
		return
	}
	grant, err := s.Issuer.Finish(r.Context(), attempt, r.URL.Query())
	if err != nil {
		s.notSignedIn(w, r, signin.ProblemOf(err), err)
		return
	}
	who, _, err := s.judge(w, r, grant.Access)
	t := ticket{Tenant: who.Actor.TenantID, Subject: who.Actor.Subject, Refresh: fitting(grant.Refresh)}
	switch {
	case fault.KindOf(err) == fault.Unauthenticated:
		s.notSignedIn(w, r, noAccess, err)
		return
	case fault.KindOf(err) == fault.Forbidden:
		s.notSignedIn(w, r, noRights, err)
		return
	case err != nil:
		s.refuse(w, r, err)
		return
	case len(grant.Access) > maxCookie && t.Refresh == "":
		s.notSignedIn(w, r, tooLong, fmt.Errorf("the access token has %d bytes, and no refresh token comes with it", len(grant.Access)))
		return
	}
	s.keepSession(w, r, grant.Access)
	s.keepTicket(w, r, t)
	seeOther(w, attempt.Return)
}

// notSignedIn sends the browser to the console, which says in words what the problem is; the log has
// the cause.
func (s *server) notSignedIn(w http.ResponseWriter, r *http.Request, problem signin.Problem, cause error) {
	s.Log.WarnContext(r.Context(), "a sign-in at the issuer failed", "problem", string(problem), "error", cause)
	if problem == signin.Stale || problem == signin.Refused {
		bucket, failures := s.guesses(r)
		s.Buckets.Take(r.Context(), bucket, failures)
	}
	callOf(r.Context()).refused = string(fault.Unauthenticated)
	seeOther(w, console.Path+"/#sign-in-failed="+string(problem))
}

// fitting is a refresh token that a cookie has room for; empty where it is longer, and the session ends
// with its token.
func fitting(refresh string) string {
	if len(refresh) > maxRefresh {
		return ""
	}
	return refresh
}

// keptToken is the token of the cookie, or where that ends soon, the one that follows it.
func (s *server) keptToken(r *http.Request) (string, ticket, error) {
	var t ticket
	kept := cookieOf(r, sessionCookie)
	if s.Issuer == nil || s.Issuer.Open(ticketCookie, cookieOf(r, ticketCookie), &t) != nil {
		return kept, ticket{}, nil
	}
	left := identity.Expiry(kept).Sub(s.Clock())
	if t.Refresh == "" || left > renewBefore {
		return kept, t, nil
	}
	grant, err := s.Issuer.Renew(r.Context(), t.Refresh)
	switch {
	case err == nil:
		t.Refresh = fitting(grant.Refresh)
		return grant.Access, t, nil
	case signin.ProblemOf(err) == signin.Unreachable && left > 0:
		return kept, t, nil
	}
	s.Log.WarnContext(r.Context(), "a session could not be renewed at the issuer", "problem", string(signin.ProblemOf(err)), "error", err)
	if signin.ProblemOf(err) == signin.Unreachable {
		return "", t, fault.Wrap(fault.Unavailable, "", "the issuer that renews your session does not answer: try again", err)
	}
	return "", t, fault.Wrap(fault.Unauthenticated, fault.CodeUnauthorized, "your session at the issuer has ended: sign in again", err)
}

// signOut ends a session here, ends its refresh token at the issuer if that answers in time, and says
// where to end the issuer's session.
func (s *server) signOut(w http.ResponseWriter, r *http.Request) {
	var t ticket
	s.endSession(w, r)
	if s.Issuer != nil && s.Issuer.Open(ticketCookie, cookieOf(r, ticketCookie), &t) == nil {
		if t.Refresh != "" {
			if err := s.Issuer.Revoke(r.Context(), t.Refresh); err != nil {
				s.Log.WarnContext(r.Context(), "a session that ended here could not be revoked at the issuer", "problem", string(signin.ProblemOf(err)), "error", err)
			}
		}
		if address := s.Issuer.SignOutURL(r.Context()); address != "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			_ = json.NewEncoder(w).Encode(map[string]string{"signOutUrl": address}) // it fails only where the client is gone
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// keepTicket sets the cookie of the ticket, or without one removes it.
func (s *server) keepTicket(w http.ResponseWriter, r *http.Request, t ticket) {
	if s.Issuer == nil {
		return
	}
	sealed := ""
	if t != (ticket{}) {
		sealed, _ = s.Issuer.Seal(ticketCookie, t) // texts and an id can be written
	}
	setCookie(w, r, http.Cookie{Name: ticketCookie, Value: sealed, Path: console.Session, SameSite: http.SameSiteStrictMode})
}

func (s *server) keepAttempt(w http.ResponseWriter, r *http.Request, sealed string) {
	setCookie(w, r, http.Cookie{Name: attemptCookie, Value: sealed, Path: console.SignIn, SameSite: http.SameSiteLaxMode, MaxAge: int(signin.Lifetime.Seconds())})
}

// cookieOf is the value of a cookie that came once; empty otherwise.
func cookieOf(r *http.Request, name string) string {
	if all := r.CookiesNamed(name); len(all) == 1 {
		return all[0].Value
	}
	return ""
}

// ownPage is an address of the console, as it was given if it is one.
func ownPage(to string) string {
	const home = console.Path + "/"
	parsed, err := url.Parse(to)
	if err != nil || len(to) > maxReturn || parsed.Scheme != "" || parsed.Host != "" || parsed.User != nil || parsed.Fragment != "" ||
		!strings.HasPrefix(to, home) || path.Clean(parsed.Path)+"/" != home && path.Clean(parsed.Path) != strings.TrimSuffix(parsed.Path, "/") || strings.ContainsAny(to, "\\\r\n\t") {
		return home
	}
	return (&url.URL{Path: parsed.Path, RawPath: parsed.RawPath, RawQuery: parsed.RawQuery}).String()
}
