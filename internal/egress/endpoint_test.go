package egress_test

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/egress"
)

// A single endpoint opens neither its address nor its port to anything else.
func TestEndpointOpensNothingElse(t *testing.T) {
	t.Parallel()
	open := serveOn(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) {})
	closed := serveOn(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) {})
	address := netip.MustParseAddrPort(open.Listener.Addr().String())
	client := client(t, egress.Config{Endpoints: []netip.AddrPort{address}})
	call := func(target string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		if parsed, err := url.Parse(target); err != nil || client.Check(parsed) != nil {
			return errors.Join(err, client.Check(parsed))
		}
		answer, err := client.For(uuid.Nil).Do(request, nil)
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	if err := call(open.URL); err != nil {
		t.Errorf("the endpoint itself: %v", err)
	}
	for _, target := range []string{closed.URL, "http://127.0.0.1/", "http://127.0.0.2:80/", "http://localhost/"} {
		var refused *egress.Blocked
		if err := call(target); !errors.As(err, &refused) {
			t.Errorf("%s: %v, want it refused", target, err)
		}
	}
}
