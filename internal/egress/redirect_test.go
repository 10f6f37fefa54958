package egress_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/egress"
)

func TestRedirectToInsideIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ location, rule string }{
		{"http://169.254.169.254/latest/meta-data/", "link-local"},
		{"http://127.0.0.9:8080/", "loopback"},
		{"//[::ffff:10.0.0.1]/", "private"},
		{"http://inside.test/", "private"},
		{"http://2852039166/", "host-number"},
		{"file:///etc/passwd", "scheme"},
		{"http://user:pass@example.com/", "userinfo"},
		{"http://example.com:22/", "port"},
	} {
		t.Run(test.location, func(t *testing.T) {
			t.Parallel()
			server := serveOn(t, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", test.location)
				w.WriteHeader(http.StatusFound)
			})
			c := client(t, egress.Config{
				Allow:    prefixes(t, "127.0.0.1/32"),
				Resolver: resolver(func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.0.0.1")} }),
			})
			_, err := get(t, c, server.URL)
			checkBlocked(t, err, test.rule)
		})
	}
}

func TestRedirectCount(t *testing.T) {
	t.Parallel()
	// /3 redirects to /2, /2 to /1, /1 to /0, which answers.
	server := serveOn(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		if left := r.URL.Path[1] - '0'; left > 0 {
			w.Header().Set("Location", "/"+string('0'+left-1))
			w.WriteHeader(http.StatusMovedPermanently)
		}
	})
	c := client(t, egress.Config{Allow: prefixes(t, "127.0.0.0/8")})
	resp, err := get(t, c, server.URL+"/3")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("3 redirects: %v, %v", resp, err)
	}
	_, err = get(t, c, server.URL+"/4")
	checkBlocked(t, err, "redirect-limit")
}

func TestFinalStatusIsReturned(t *testing.T) {
	t.Parallel()
	server := serveOn(t, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusSeeOther)
	})
	c := client(t, egress.Config{Allow: prefixes(t, "127.0.0.0/8")})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	resp, err := c.For(uuid.Nil).Do(req, func(status int) bool { return status == http.StatusSeeOther })
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // only read from
	if resp.StatusCode != http.StatusSeeOther {
		t.Errorf("status = %d, want the 303 itself", resp.StatusCode)
	}
}

// serveOnOnePort serves on two addresses, on a port that is free on both.
func serveOnOnePort(t *testing.T, handler http.HandlerFunc) (first, second *httptest.Server) {
	t.Helper()
	for range 100 {
		first := serveOn(t, "127.0.0.1:0", handler)
		_, port, _ := net.SplitHostPort(first.Listener.Addr().String())
		if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.2:"+port); err == nil {
			second := httptest.NewUnstartedServer(handler)
			_ = second.Listener.Close()
			second.Listener = l
			second.Start()
			t.Cleanup(second.Close)
			return first, second
		}
	}
	t.Fatal("no port is free on both addresses")
	return nil, nil
}

// The canary is a header that net/http itself would send on.
func TestHeadersStayWithTheirHost(t *testing.T) {
	t.Parallel()
	type seen struct{ Canary, Authorization, Cookie, Referer, Agent string }
	var last atomic.Pointer[seen]
	record := func(w http.ResponseWriter, r *http.Request) {
		last.Store(&seen{
			r.Header.Get("X-Api-Key"), r.Header.Get("Authorization"), r.Header.Get("Cookie"),
			r.Header.Get("Referer"), r.Header.Get("User-Agent"),
		})
		if to := r.URL.Query().Get("to"); to != "" {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	}
	home, foreign := serveOnOnePort(t, record)
	sibling := serveOn(t, "127.0.0.1:0", record)
	all := seen{Canary: "secret", Authorization: "Bearer secret", Cookie: "a=b", Agent: "test"}
	none := seen{Agent: "test"}
	for _, test := range []struct {
		name, path string
		want       seen
	}{
		{"no redirect", "/?q=secret", all},
		{"same host", "/?to=/next", all},
		{"another host", "/?to=" + foreign.URL, none},
		{"another port", "/?to=" + sibling.URL, none},
		{"there and back", "/?to=" + foreign.URL + "?to=" + home.URL, none},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := client(t, egress.Config{Allow: prefixes(t, "127.0.0.0/8")})
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, home.URL+test.path, nil)
			req.Header.Set("X-Api-Key", "secret")
			req.Header.Set("Authorization", "Bearer secret")
			req.Header.Set("Cookie", "a=b")
			req.Header.Set("User-Agent", "test")
			if _, err := do(c, req); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, *last.Load()); diff != "" {
				t.Errorf("the last hop saw other headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBodyStaysWithItsHost(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	foreign := serveOn(t, "127.0.0.2:0", func(_ http.ResponseWriter, r *http.Request) { got.Store("sent to " + r.Method) })
	home := serveOn(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/end":
			body, _ := io.ReadAll(r.Body)
			got.Store(r.Method + " " + string(body))
		case "/307-home":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		case "/307-foreign":
			http.Redirect(w, r, foreign.URL, http.StatusTemporaryRedirect)
		case "/303-foreign":
			http.Redirect(w, r, foreign.URL, http.StatusSeeOther)
		}
	})
	for _, test := range []struct{ path, want, rule string }{
		{"/307-home", "POST secret", ""},
		{"/303-foreign", "sent to GET", ""},
		{"/307-foreign", "", "redirect-body"},
	} {
		t.Run(test.path, func(t *testing.T) {
			got.Store("")
			c := client(t, egress.Config{Allow: prefixes(t, "127.0.0.0/8")})
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, home.URL+test.path, strings.NewReader("secret"))
			_, err := do(c, req)
			if test.rule != "" {
				checkBlocked(t, err, test.rule)
			} else if err != nil {
				t.Fatal(err)
			}
			if got.Load() != test.want {
				t.Errorf("got %q, want %q", got.Load(), test.want)
			}
		})
	}
}
