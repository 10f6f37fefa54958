package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/egress"
)

// secure serves HTTPS and gives a pool that trusts it.
func secure(t *testing.T, change func(*httptest.Server)) (*httptest.Server, *x509.CertPool) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	}))
	server.Config.ErrorLog = quiet()
	change(server)
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server, roots
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server, roots := secure(t, func(s *httptest.Server) { s.EnableHTTP2 = true })
	old, oldRoots := secure(t, func(s *httptest.Server) {
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	})
	plain := serveOn(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) {})
	named := resolver(func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} })
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, test := range []struct {
		name, url string
		roots     *x509.CertPool
		want      string // part of the error; empty is success
	}{
		{"trusted", server.URL, roots, ""},
		{"not trusted", server.URL, nil, "certificate is not accepted"},
		{"another name", "https://other.test:" + port, roots, "certificate is not accepted"},
		{"TLS 1.1", old.URL, oldRoots, "the TLS handshake failed"},
		{"no TLS", strings.Replace(plain.URL, "http:", "https:", 1), roots, "does not speak TLS"},
		{"down from https", server.URL + "?to=" + plain.URL, roots, "redirect-downgrade"},
		{"up to https", plain.URL, roots, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := client(t, egress.Config{Allow: prefixes(t, "127.0.0.0/8"), Roots: test.roots, Resolver: named})
			resp, err := get(t, c, test.url)
			if test.want == "" && err != nil {
				t.Fatalf("error = %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Fatalf("error = %v, want one with %q", err, test.want)
			}
			if test.name == "trusted" && resp.ProtoMajor != 2 {
				t.Errorf("spoke %s, want HTTP/2", resp.Proto)
			}
		})
	}
}

// Failures say what happened in words that hold neither the query, nor an
// address, nor the name of an inside server.
func TestFailuresKeepSecrets(t *testing.T) {
	t.Parallel()
	endless := func(start, piece string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_, err := io.WriteString(conn, start)
			for err == nil {
				_, err = io.WriteString(conn, piece)
			}
		}
	}
	reset := func(conn net.Conn) {
		_, _ = bufio.NewReader(conn).ReadString('\n')
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	for _, test := range []struct{ name, url, want string }{
		{"closed port", closedPort(t), "the target refused the connection"},
		{"no such name", "http://nowhere.test", "the host name does not resolve"},
		{"reset", serveRaw(t, reset), "the target reset the connection"},
		{"closed without an answer", serveRaw(t, func(conn net.Conn) { _, _ = bufio.NewReader(conn).ReadString('\n') }), "the target "},
		{"endless headers", serveRaw(t, endless("HTTP/1.1 200 OK\r\n", "X-A: "+strings.Repeat("a", 1000)+"\r\n")), "headers are too large"},
		{"one endless header", serveRaw(t, endless("HTTP/1.1 200 OK\r\n", strings.Repeat("a", 1000))), "headers are too large"},
		{"interim answers without end", serveRaw(t, endless("", "HTTP/1.1 103 Early Hints\r\n\r\n")), "headers are too large"},
		{"not HTTP", serveRaw(t, func(conn net.Conn) { _, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.9\r\n") }), "not HTTP"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := client(t, egress.Config{
				Allow:    prefixes(t, "127.0.0.0/8"),
				Resolver: resolver(func(string) []netip.Addr { return nil }),
			})
			_, err := get(t, c, test.url+"/path?token=secret")
			var failure *egress.Failure
			if !errors.As(err, &failure) || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error = %v, want a failure with %q", err, test.want)
			}
			for _, leak := range []string{"secret", "127.0.0.1", "nowhere.test", "token"} {
				if strings.Contains(err.Error(), leak) {
					t.Errorf("%q holds %q", err, leak)
				}
			}
		})
	}
}

func TestDeadlineCoversEverything(t *testing.T) {
	t.Parallel()
	arrived, done := make(chan struct{}, 1), make(chan struct{})
	server := serveOn(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-done
	})
	defer close(done)
	c := client(t, egress.Config{Allow: prefixes(t, "127.0.0.0/8")})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if _, err := do(c, req); !errors.Is(err, context.Canceled) || err.Error() != "the call was cancelled" {
		t.Errorf("error = %v, want the cancellation", err)
	}
}

// After 101 net/http gives the connection away, and no deadline covers it any
// more: a target could hold a worker's slot for ever.
func TestSwitchingProtocolsIsRefused(t *testing.T) {
	t.Parallel()
	hungUp := make(chan struct{})
	target := serveRaw(t, func(conn net.Conn) {
		defer close(hungUp)
		reader := bufio.NewReader(conn)
		_, _ = reader.ReadString('\n')
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, reader) // until we hang up
	})
	c := client(t, egress.Config{Allow: prefixes(t, "127.0.0.0/8")})
	_, err := get(t, c, target)
	var failure *egress.Failure
	if !errors.As(err, &failure) || err.Error() != "the target switched to another protocol" {
		t.Errorf("error = %v", err)
	}
	<-hungUp
}

// A compressed response stays compressed: a bomb does not unfold here,
// and we do not ask for it either.
func TestCompressionIsLeftAlone(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	server := serveOn(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte("\x1f\x8bnot unfolded"))
	})
	c := client(t, egress.Config{Allow: prefixes(t, "127.0.0.0/8")})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	resp, err := c.For(uuid.Nil).Do(req, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // only read from
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "\x1f\x8bnot unfolded" || asked.Load() != "" {
		t.Errorf("body %q, error %v, asked for %q", body, err, asked.Load())
	}
}

// Calls that are under way at once to one host find their connections again.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	const callers, rounds = 20, 5
	var connections atomic.Int32
	arrived := make(chan chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		leave := make(chan struct{})
		arrived <- leave
		<-leave
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c := client(t, egress.Config{Allow: prefixes(t, "127.0.0.0/8")})
	for range rounds {
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				if _, err := get(t, c, server.URL); err != nil {
					t.Error(err)
				}
			})
		}
		var waiting []chan struct{}
		for range callers {
			waiting = append(waiting, <-arrived)
		}
		for _, leave := range waiting { // all were under way at once
			close(leave)
		}
		group.Wait()
	}
	if got := connections.Load(); got > 2*callers {
		t.Errorf("%d connections for %d rounds of %d calls", got, rounds, callers)
	}
}

func TestHeadersUpTo64KiB(t *testing.T) {
	t.Parallel()
	server := serveOn(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.Path[1:])
		w.Header().Set("X-Large", strings.Repeat("a", size<<10))
	})
	c := client(t, egress.Config{Allow: prefixes(t, "127.0.0.0/8")})
	if _, err := get(t, c, server.URL+"/60"); err != nil {
		t.Errorf("60 KiB: %v", err)
	}
	if _, err := get(t, c, server.URL+"/70"); err == nil {
		t.Error("70 KiB of headers were taken")
	}
}

// A proxy would be what the guard looks at, instead of the target.
func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	var proxied atomic.Int32
	proxy := serveOn(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) { proxied.Add(1) })
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	c := client(t, egress.Config{
		Allow:    prefixes(t, "127.0.0.1/32"),
		Resolver: resolver(func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.0.0.1")} }),
	})
	_, err := get(t, c, "http://inside.test/")
	checkBlocked(t, err, "private")
	if proxied.Load() != 0 {
		t.Error("the call went through the proxy of the environment")
	}
}
