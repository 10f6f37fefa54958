package chaos

import (
	"net"
	"sync"
	"time"
)

// cutter stands between one process and one store, and breaks what passes. It
// listens on a loopback port and speaks to the store's unix socket, so that a
// store that is restarted keeps its address. A nil cutter stands before a store
// that is not there.
type cutter struct {
	addr   string // host:port for the process
	socket string // of the store

	listener net.Listener
	pumps    sync.WaitGroup

	mu      sync.Mutex
	down    bool
	blocked chan struct{} // closed while bytes may pass
	way     chan struct{} // likewise, for answers
	latency time.Duration
	pairs   map[*pair]struct{}
}

// pair is one connection and its other half.
type pair struct {
	client, server net.Conn
	losing         bool // the next answer is lost, and the connection with it
}

func newCutter(socket string) (*cutter, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a loopback listener does not wait
	if err != nil {
		return nil, err
	}
	c := &cutter{
		addr: listener.Addr().String(), socket: socket, listener: listener,
		blocked: make(chan struct{}), way: make(chan struct{}), pairs: map[*pair]struct{}{},
	}
	close(c.blocked)
	close(c.way)
	c.pumps.Go(c.accept)
	return c, nil
}

func (c *cutter) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return // closed
		}
		c.pumps.Go(func() { c.join(client) })
	}
}

// join connects a client to the store, unless the way is cut.
func (c *cutter) join(client net.Conn) {
	server, err := net.DialTimeout("unix", c.socket, time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	p := &pair{client: client, server: server}
	c.mu.Lock()
	if c.down {
		c.mu.Unlock()
		p.cut()
		return
	}
	c.pairs[p] = struct{}{}
	c.mu.Unlock()
	c.pumps.Go(func() { c.pump(p, client, server, false) })
	c.pump(p, server, client, true)
	c.mu.Lock()
	delete(c.pairs, p)
	c.mu.Unlock()
}

// pump carries bytes one way until either end is gone.
func (c *cutter) pump(p *pair, from, to net.Conn, answers bool) {
	defer p.cut()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		c.mu.Lock()
		gate, latency, lost := c.blocked, c.latency, answers && p.losing
		if answers {
			gate = c.way
		}
		c.mu.Unlock()
		if lost {
			return
		}
		<-gate
		if latency > 0 {
			<-time.After(latency)
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (p *pair) cut() {
	_ = p.client.Close()
	_ = p.server.Close()
}

// Down cuts every connection and refuses new ones until Up.
func (c *cutter) Down() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
	for p := range c.pairs {
		p.cut()
	}
}

// Hold lets nothing pass until Up, without a word to either end.
func (c *cutter) Hold() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	block(&c.blocked)
	block(&c.way)
}

// HoldAnswers lets what is asked pass, and nothing back, until Up.
func (c *cutter) HoldAnswers() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	block(&c.way)
}

// block blocks the connection, unless it is.
func block(blocked *chan struct{}) {
	select {
	case <-*blocked:
		*blocked = make(chan struct{})
	default:
	}
}

// unblock unblocks it, unless it is.
func unblock(blocked chan struct{}) {
	select {
	case <-blocked:
	default:
		close(blocked)
	}
}

// Latency delays every piece that passes, each way, until Up.
func (c *cutter) Latency(d time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latency = d
}

// LoseAnswers cuts each connection at the store's next answer: what was asked
// is done, and the one who asked does not know.
func (c *cutter) LoseAnswers() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.pairs {
		p.losing = true
	}
}

// Up heals everything but the connections that are gone.
func (c *cutter) Up() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down, c.latency = false, 0
	unblock(c.blocked)
	unblock(c.way)
}

// close ends the cutter and waits for what it started.
func (c *cutter) close() {
	if c == nil {
		return
	}
	_ = c.listener.Close()
	c.Up()
	c.Down()
	c.pumps.Wait()
}
