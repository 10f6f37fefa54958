package egress_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/egress"
)

// forward is a proxy that notes what it is asked for and connects every name to one
// address.
type forward struct {
	*httptest.Server
	to string

	mu    sync.Mutex
	asked []string
}

func newForward(t *testing.T, to string) *forward {
	t.Helper()
	f := &forward{to: to}
	f.Server = serveOn(t, "127.0.0.1:0", f.serve)
	return f
}

func (f *forward) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, strings.TrimSpace(r.Method+" "+r.URL.String()+" "+r.Header.Get("Proxy-Authorization")))
	f.mu.Unlock()
	if strings.Contains(r.Host, "refused") {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	target, err := net.Dial("tcp", f.to)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer target.Close()
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if r.Method == http.MethodConnect {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		var done sync.WaitGroup
		done.Go(func() { _, _ = io.Copy(target, buffered); _ = target.Close() })
		_, _ = io.Copy(conn, target)
		_ = conn.Close()
		done.Wait()
		return
	}
	r.RequestURI, r.Close = "", true
	_ = r.Write(target)
	resp, err := http.ReadResponse(bufio.NewReader(target), r)
	if err == nil {
		_ = resp.Write(conn)
	}
}

func (f *forward) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func proxied(t *testing.T, f *forward, change func(*egress.Config)) *egress.Client {
	t.Helper()
	address, err := url.Parse(strings.Replace(f.URL, "http://", "http://user:pass@", 1))
	if err != nil {
		t.Fatal(err)
	}
	config := egress.Config{Proxy: address, Resolver: resolver(func(name string) []netip.Addr {
		if strings.HasPrefix(name, "inside") {
			return []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		}
		if strings.HasPrefix(name, "public") {
			return []netip.Addr{netip.MustParseAddr("203.0.112.9")}
		}
		return nil // only the proxy resolves it
	})}
	if change != nil {
		change(&config)
	}
	return client(t, config)
}

// Everything goes through the proxy, the one address on the inside that may be reached.
func TestCallsGoThroughTheProxy(t *testing.T) {
	t.Parallel()
	plain := serveOn(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Host", r.Host) })
	f := newForward(t, plain.Listener.Addr().String())
	resp, err := get(t, proxied(t, f, nil), "http://public.example/a?b=c")
	if err != nil || resp.Header.Get("X-Host") != "public.example" {
		t.Fatalf("%v, %v", resp, err)
	}
	if diff := cmp.Diff([]string{"GET http://public.example/a?b=c Basic dXNlcjpwYXNz"}, f.requests()); diff != "" {
		t.Error(diff)
	}
}

func TestTLSThroughTheProxy(t *testing.T) {
	t.Parallel()
	server, roots := secure(t, func(*httptest.Server) {})
	f := newForward(t, server.Listener.Addr().String())
	c := proxied(t, f, func(c *egress.Config) { c.Roots = roots })
	if _, err := get(t, c, "https://example.com/"); err != nil { // the certificate's name
		t.Fatal(err)
	}
	_, err := get(t, c, "https://refused.example/")
	if err == nil || err.Error() != "the egress proxy does not connect to the target: status 403" {
		t.Errorf("error %v", err)
	}
	c.Close()
	if got := f.requests(); len(got) != 2 || !strings.HasPrefix(got[0], "CONNECT //example.com:443 Basic") {
		t.Errorf("asked for %q", got)
	}
}

// The proxy is not asked for what the guard refuses by name, by its form, or by an address
// that is known here.
func TestProxyIsNotAskedForTheInside(t *testing.T) {
	t.Parallel()
	plain := serveOn(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://inside.example/", http.StatusFound)
	})
	f := newForward(t, plain.Listener.Addr().String())
	c := proxied(t, f, nil)
	for target, rule := range map[string]string{
		"http://169.254.169.254/latest": "link-local", "http://127.0.0.1/": "loopback", "http://[::ffff:10.0.0.1]/": "private", "http://localhost/": "loopback",
		"http://2852039166/": "host-number", "http://inside.example/": "private", "http://public.example:22/": "port", "http://u:p@public.example/": "userinfo",
		f.URL: "loopback",
	} {
		_, err := get(t, c, target)
		checkBlocked(t, err, rule)
	}
	if got := f.requests(); len(got) > 0 {
		t.Errorf("asked for %q", got)
	}
	_, err := get(t, c, "http://public.example/")
	checkBlocked(t, err, "private")
	if got := f.requests(); len(got) != 1 {
		t.Errorf("asked for %q", got)
	}
}

func TestProxyThatIsAway(t *testing.T) {
	t.Parallel()
	f := &forward{Server: &httptest.Server{URL: closedPort(t)}}
	for _, scheme := range []string{"http", "https"} {
		_, err := get(t, proxied(t, f, nil), scheme+"://public.example/")
		if err == nil || err.Error() != "the egress proxy could not be reached" {
			t.Errorf("%s: %v", scheme, err)
		}
	}
	if _, err := egress.New(egress.Config{Proxy: &url.URL{Scheme: "http"}}); err == nil {
		t.Error("a proxy without a host is taken")
	}
}

// Endpoints are of this host: no proxy reaches them.
func TestEndpointsNeedNoProxy(t *testing.T) {
	t.Parallel()
	own := serveOn(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) {})
	f := newForward(t, "127.0.0.1:1")
	c := proxied(t, f, func(c *egress.Config) {
		c.Endpoints = []netip.AddrPort{netip.MustParseAddrPort(own.Listener.Addr().String())}
	})
	if _, err := get(t, c, own.URL); err != nil || len(f.requests()) > 0 {
		t.Errorf("%v, asked for %q", err, f.requests())
	}
}

// A tenant's list is asked before each call and each redirect, also where the address is
// allowed.
func TestHostsThatATenantMayNotCall(t *testing.T) {
	t.Parallel()
	ours, theirs := uuid.New(), uuid.New()
	server := serveOn(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	})
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	c := client(t, egress.Config{
		Allow:    prefixes(t, "127.0.0.0/8"),
		Resolver: resolver(func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} }),
		Admit:    func(tenant uuid.UUID, host string) bool { return tenant != ours || host == "fine.example" },
	})
	call := func(tenant uuid.UUID, target string) error {
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.For(tenant).Do(req, nil)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	fine, other := "http://fine.example:"+port+"/", "http://other.example:"+port+"/"
	for _, target := range []string{fine, fine + "?to=" + url.QueryEscape(fine)} {
		if err := call(ours, target); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
	for _, target := range []string{other, server.URL, fine + "?to=" + url.QueryEscape(other), fine + "?to=" + url.QueryEscape(fine+"?to="+url.QueryEscape(other))} {
		checkBlocked(t, call(ours, target), "allowed-host")
		if err := call(theirs, target); err != nil {
			t.Errorf("%s for a tenant without a list: %v", target, err)
		}
	}
}
