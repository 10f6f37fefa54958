package devstack

import (
	"net"
	"testing"
)

func TestFreeAddr(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		addr, err := FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		if seen[addr] {
			t.Errorf("%s was given twice", addr)
		}
		seen[addr] = true
	}
	for addr := range seen {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
}
