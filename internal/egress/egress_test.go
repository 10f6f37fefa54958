package egress_test

import (
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"

	"github.com/scheduler-service/scheduler/internal/egress"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// client makes a client that is closed at the end of the test. A busy machine may stand still while
// it dials.
func client(t *testing.T, config egress.Config) *egress.Client {
	t.Helper()
	config.DialTimeout = time.Minute
	c, err := egress.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func prefixes(t *testing.T, texts ...string) []netip.Prefix {
	t.Helper()
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// get calls a URL and returns the response; the body is closed.
func get(t *testing.T, c *egress.Client, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(c, req)
}

func do(c *egress.Client, req *http.Request) (*http.Response, error) {
	resp, err := c.For(uuid.Nil).Do(req, nil)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	return resp, err
}

// serveOn serves HTTP on an address of this host, such as 127.0.0.2:0.
func serveOn(t *testing.T, address string, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close()
	var err error
	if server.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", address); err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// serveRaw answers each connection with whatever talk writes.
func serveRaw(t *testing.T, talk func(conn net.Conn)) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer conn.Close() // the test ends with it
				talk(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		open.Wait()
	})
	return "http://" + listener.Addr().String()
}

// resolver is a DNS server in memory. It answers each question with what
// answer says, with a time to live of 0; no address means no such name.
func resolver(answer func(name string) []netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: dnsDialer(answer)}
}

// dnsReply is a DNS answer to a question of one name.
func dnsReply(question []byte, answer func(name string) []netip.Addr) []byte {
	var labels []string
	end := 12
	for question[end] != 0 {
		size := int(question[end])
		labels = append(labels, string(question[end+1:end+1+size]))
		end += size + 1
	}
	end++
	kind := binary.BigEndian.Uint16(question[end:])
	addresses := answer(strings.ToLower(strings.Join(labels, ".")))
	reply := append([]byte{}, question[:end+4]...)
	reply[2], reply[3] = 0x81, 0x80 // an answer, recursion available
	clear(reply[6:12])
	if len(addresses) == 0 {
		reply[3] |= 3 // no such name
	}
	for _, addr := range addresses {
		if (kind == 1) != addr.Is4() || (kind != 1 && kind != 28) {
			continue
		}
		reply[7]++
		raw := addr.AsSlice()
		reply = append(reply, 0xC0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(raw)))
		reply = append(reply, raw...)
	}
	return reply
}

// quiet is a log for servers whose complaints are expected.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// closedPort is a URL of a port on which nobody listens, now or later: a
// connection has it.
func closedPort(t *testing.T) string {
	t.Helper()
	server := serveOn(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) {})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return "http://" + conn.LocalAddr().String()
}
