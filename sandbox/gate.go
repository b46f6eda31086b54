package sandbox

import (
	"net"
	"sync"
	"time"
)

// gate stands before the brokers' listeners. Shut, it cuts what is open and
// resets what comes.
type gate struct {
	mu     sync.Mutex
	closed bool
	timer  *time.Timer
	conns  map[net.Conn]struct{}
}

func (g *gate) shut(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for conn := range g.conns {
		reset(conn)
	}
	clear(g.conns)
	g.stopTimer()
	if d > 0 {
		g.timer = time.AfterFunc(d, g.open)
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
	g.stopTimer()
}

func (g *gate) stopTimer() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// pass counts a new connection in, or reports that the gate is shut.
func (g *gate) pass(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.conns[conn] = struct{}{}
	}
	return !g.closed
}

func (g *gate) forget(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, conn)
}

// reset closes with RST, so that the other side learns at once and what is in the
// buffers is lost.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

type gatedListener struct {
	net.Listener
	gate *gate
}

func (l *gatedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.gate.pass(conn) {
			return &gatedConn{Conn: conn, gate: l.gate}, nil
		}
		reset(conn)
	}
}

type gatedConn struct {
	net.Conn
	gate *gate
}

func (c *gatedConn) Close() error {
	c.gate.forget(c.Conn)
	return c.Conn.Close()
}
