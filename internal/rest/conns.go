package rest

import (
	"net"
	"sync"
)

// capped is a listener with at most n connections open at once.
func capped(l net.Listener, n int) net.Listener {
	return &cappedListener{Listener: l, free: make(chan struct{}, n), closed: make(chan struct{})}
}

type cappedListener struct {
	net.Listener
	free   chan struct{} // holds one for each open connection
	once   sync.Once
	closed chan struct{}
}

// Accept waits until fewer than the bound are open.
func (l *cappedListener) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &cappedConn{Conn: conn, end: sync.OnceFunc(func() { <-l.free })}, nil
}

// Close also ends an Accept that waits.
func (l *cappedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type cappedConn struct {
	net.Conn
	end func()
}

// Close makes room for another connection.
func (c *cappedConn) Close() error {
	err := c.Conn.Close()
	c.end()
	return err
}
