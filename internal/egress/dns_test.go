package egress_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
)

// dnsDialer connects a resolver to dnsReply by a pipe, over which questions
// and answers are framed as they are over TCP.
func dnsDialer(answer func(name string) []netip.Addr) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close() // a pipe
			for {
				var size [2]byte
				if _, err := io.ReadFull(far, size[:]); err != nil {
					return
				}
				question := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(far, question); err != nil {
					return
				}
				reply := dnsReply(question, answer)
				framed := binary.BigEndian.AppendUint16(nil, uint16(len(reply)))
				if _, err := far.Write(append(framed, reply...)); err != nil {
					return
				}
			}
		}()
		return near, nil
	}
}
