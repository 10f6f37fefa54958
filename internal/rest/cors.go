package rest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/scheduler-service/scheduler/internal/fault"
)

const (
	// anyOrigin in Deps.Origins admits every origin.
	anyOrigin = "*"
	// corsMethods, corsHeaders and corsExposed are what pages of an admitted origin may
	// use and read. A preflight is answered with them, whatever it asks for.
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	corsHeaders = "Authorization, Content-Type, Accept, Idempotency-Key, If-Match, If-None-Match, X-Request-Id"
	corsExposed = "ETag, Location, Retry-After, RateLimit, RateLimit-Policy, Idempotent-Replayed, Link, X-Request-Id"
	// corsAge is for how many seconds a browser may keep the answer to a preflight.
	corsAge = "600"
)

// cors lets browsers show answers to pages of the origins that the installation admits;
// without any, nothing is different from a service that knows no CORS. Access is by a
// token in a header, so cookies and other credentials of the browser are never
// admitted. /internal is for no page.
func (s *server) cors(next http.Handler) http.Handler {
	if len(s.Origins) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin == "" || isInternal(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Add("Vary", "Origin")
		if !slices.Contains(s.Origins, anyOrigin) && !slices.Contains(s.Origins, origin) {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
		if slices.Contains(s.Origins, anyOrigin) {
			h.Set("Access-Control-Allow-Origin", anyOrigin)
		}
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", corsMethods)
			h.Set("Access-Control-Allow-Headers", corsHeaders)
			h.Set("Access-Control-Max-Age", corsAge)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.Set("Access-Control-Expose-Headers", corsExposed)
		next.ServeHTTP(w, r)
	})
}

// fromOrigin refuses a page's call for a tenant that does not admit the page's origin.
func fromOrigin(c *call, answer http.Header) error {
	admitted := c.tenant.AllowedOrigins
	if c.origin == "" || len(admitted) == 0 || slices.Contains(admitted, c.origin) {
		return nil
	}
	answer.Del("Access-Control-Allow-Origin")
	return fault.New(fault.Forbidden, fault.CodeForbidden, "calls of this tenant may not come from pages of this origin")
}

// isOrigin says whether a text is an origin as browsers send it.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && !strings.Contains(u.Host, anyOrigin) && text == u.Scheme+"://"+strings.ToLower(u.Host)
}

// checkOrigins refuses a configuration with something that no browser sends.
func checkOrigins(origins []string) error {
	for _, one := range origins {
		if one != anyOrigin && !isOrigin(one) {
			return fmt.Errorf("CORS_ORIGINS: %q is no origin; https://console.example.com and * are", one)
		}
	}
	return nil
}
