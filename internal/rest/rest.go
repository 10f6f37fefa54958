// Package rest is HTTP in and out: the server of openapi.yaml.
//
// It owns the router, the order of what happens to a request, the one table
// from fault to HTTP answer, the translation between the contract's types and
// the domain's, and the listening server. It refuses decisions: what a job may
// be is package job's business, who may ask package identity's, what the
// contract says package contract's.
package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/rest/console"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/rest/reference"
	"github.com/scheduler-service/scheduler/internal/turn"
	"github.com/scheduler-service/scheduler/web"
)

// base is where the API's paths begin.
const base = "/api/v1/scheduler"

// server is the API. It implements the generated StrictServerInterface in one
// file per group of the contract.
type server struct {
	parts.Deps
	contract *contract.Contract
	heavy    *turn.Limiter // of heavy requests
	cursors  *cursor.Codec
	pinged   goodKeys
	// verifying holds one for each verification of the audit log under way.
	verifying chan struct{}
	health    cached[parts.Health]
	ready     cached[[]string]
	started   time.Time
	running   clock.Mark
}

// referencePage is the same for all APIs of a process.
var referencePage = sync.OnceValues(func() (reference.Files, error) {
	document, err := api.GetSpecJSON()
	if err != nil {
		return nil, fmt.Errorf("read the contract: %w", err)
	}
	return reference.Gather(document)
})

// Front is the API, for package app.
func Front() parts.Front {
	return parts.Front{Handler: New, Serve: Serve, ChangedFields: ChangedFields}
}

// New makes the handler of the whole contract. It fails if the contract has an
// operation that names no permission.
func New(d parts.Deps) (http.Handler, error) {
	loaded, err := contract.Load()
	if err != nil {
		return nil, fmt.Errorf("rest: %w", err)
	}
	if err := checkOrigins(d.Origins); err != nil {
		return nil, err
	}
	cursors, err := cursor.New(d.CursorSecret)
	if err != nil {
		return nil, fmt.Errorf("rest: %w", err)
	}
	s := &server{Deps: d, contract: loaded, verifying: make(chan struct{}, verifiers), cursors: cursors, started: clock.Now(), running: clock.Start()}
	s.heavy = turn.New(turn.Config{
		All: heavyAll, Each: heavyEach, Spare: heavySpare, Limit: "heavyRequestsAtOnce",
		Message: "of bulk calls, batches, statistics, forecasts, verifications, edits of calendars and backfills, a tenant may have %d under way at once in each API process, which is fixed",
	})
	page, err := referencePage()
	if err != nil {
		return nil, fmt.Errorf("rest: %w", err)
	}
	shown, err := console.Handler(web.Build(), s.noRoute)
	if err != nil {
		return nil, fmt.Errorf("rest: %w", err)
	}
	return s.routes(page.Handler(s.noRoute), shown), nil
}

// publish serves a document that everybody may keep for five minutes.
func publish(document json.RawMessage) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=300")
		_, _ = w.Write(document)
	})
}

// routes is the order of what happens to a request:
//
//  0. bodiless: HEAD is a GET whose body is left out
//  1. identify: the request id, in the answer and in every log line
//     (trace: its span, where there are traces)
//  2. observe: one count and one line per request, once it is answered
//  3. rescue: a panic becomes a 500
//  4. harden: headers that keep answers from being sniffed and kept, the cap of
//     the body, the deadline; cors: pages of admitted origins may read the answer
//  5. the router; an unknown path is a 404, a known one with another method a
//     405, with OPTIONS the list of its methods
//  6. authenticate: who asks (401, or 429 where too many failed from the same
//     address), whether a role allows it (403), whether the tenant may act, from
//     there (403) and so often (429). Nothing of the body was read yet
//  7. negotiate: whether the caller can read the answer, which is JSON (406)
//  8. check: the body as strict JSON, then everything against the contract (400,
//     413, 415), so that handlers see only what it allows
//  9. begin: a heavy request takes its turn among those (429), and each
//     takes its turn at the database from here on
//     (follow: a stream of events is served here, and ends by itself)
//  10. the handler, which may find more to refuse
//  11. present: the whole answer gets its ETag, or is a 304
//
// The page that shows the contract and the console need only the first five; what the
// console does are calls of the API like any other.
func (s *server) routes(page, shown http.Handler) http.Handler {
	router := chi.NewRouter()
	router.Use(s.bodiless, s.identify, s.trace, s.observe, s.rescue, s.harden, s.cors, s.keepSide)
	router.NotFound(s.noRoute)
	router.MethodNotAllowed(s.noMethod(router))
	for _, path := range []string{reference.Path, reference.Path + "/", reference.Path + "/{file}"} {
		router.Method(http.MethodGet, path, page)
	}
	for _, path := range []string{console.Path, console.Path + "/*"} {
		router.Method(http.MethodGet, path, shown)
	}
	for path, document := range s.WellKnown {
		router.Method(http.MethodGet, path, publish(document))
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		router.MethodFunc(method, console.Session, s.consoleSession)
	}
	if s.Issuer != nil {
		router.Get(console.SignIn, s.beginSignIn)
		router.Get(console.Callback, s.finishSignIn)
	}
	router.Group(func(operations chi.Router) {
		operations.Use(s.authenticate, s.negotiate, s.check, s.begin, s.follow, s.present)
		strict := api.NewStrictHandlerWithOptions(s, nil, api.StrictHTTPServerOptions{
			RequestErrorHandlerFunc:  s.refuseUndecoded,
			ResponseErrorHandlerFunc: s.refuse,
		})
		api.HandlerWithOptions(strict, api.ChiServerOptions{BaseRouter: operations, ErrorHandlerFunc: s.refuseUndecoded})
	})
	return router
}

// noRoute says where the contract is, to people and to programs (RFC 8631). Who
// serves /internal alone has no page to show.
func (s *server) noRoute(w http.ResponseWriter, r *http.Request) {
	message := "there is nothing at this path"
	if s.Side != parts.Internal {
		message += ": see what there is at " + reference.Path + "/, and for programs at " + reference.Contract
		w.Header().Set("Link", "<"+reference.Contract+`>; rel="service-desc", <`+reference.Path+`/>; rel="service-doc"`)
	}
	s.refuse(w, r, fault.New(fault.NotFound, fault.CodeNotFound, message))
}

// noMethod answers a known path with another method, and says which ones it
// has; OPTIONS asks for nothing else.
func (s *server) noMethod(router chi.Router) http.HandlerFunc {
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	return func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if r.URL.RawPath != "" {
			path = r.URL.RawPath
		}
		var allowed []string
		for _, method := range methods {
			if router.Match(chi.NewRouteContext(), method, path) {
				allowed = append(allowed, method)
				if method == http.MethodGet {
					allowed = append(allowed, http.MethodHead)
				}
			}
		}
		if len(allowed) == 0 { // a method that nobody knows, somewhere
			s.noRoute(w, r)
			return
		}
		w.Header().Set("Allow", strings.Join(append(allowed, http.MethodOptions), ", "))
		if slices.Contains(allowed, http.MethodPatch) {
			w.Header().Set("Accept-Patch", patchMedia)
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.refuse(w, r, fault.New(fault.Invalid, fault.CodeMethodNotAllowed, "this path has no such method, see the header Allow"))
	}
}
