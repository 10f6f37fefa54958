package devstack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

const (
	// lowestPort is where the search begins: below it, machines tend to have
	// servers of their own.
	lowestPort = 10_000
	// usualPort begins the range from which Linux gives ports to connections,
	// unless it says otherwise.
	usualPort = 32_768
	portRange = "/proc/sys/net/ipv4/ip_local_port_range"
)

// portsGiven counts what FreeAddr gave, so that it gives no port twice while
// the first has not been listened on yet. It is global because ports are.
var portsGiven atomic.Int64

// FreeAddr is a loopback address, 127.0.0.1:port, for a server that is about to
// be started and can only be told its port. Nobody listens on the port, on any
// interface, and it lies below those that the system gives to connections
// or asks for any port, so that nobody gets it by chance in the meantime.
func FreeAddr() (string, error) {
	low, high := lowestPort, usualPort
	if text, err := os.ReadFile(portRange); err == nil {
		if _, err := fmt.Sscan(string(text), &high); err != nil {
			high = usualPort
		}
	}
	if high < low+1000 {
		low, high = 30_000, 60_000 // a machine that leaves nothing out
	}
	var busy error
	for range 1000 {
		// Each process begins somewhere else.
		port := low + (os.Getpid()*97+int(portsGiven.Add(1)))%(high-low)
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port)) // a listener does not wait
		if err == nil {
			return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), l.Close()
		}
		busy = err
	}
	return "", errors.Join(errors.New("no port is free"), busy)
}
