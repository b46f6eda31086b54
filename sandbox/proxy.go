package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is one of the two streams of a connection.
type Direction int

// The two directions.
const (
	ToServer Direction = iota
	ToClient
)

// Proxy forwards TCP connections to a server and breaks them on demand. A fault
// applies to open and to new connections until Heal. Its methods may be called
// from any goroutine.
type Proxy struct {
	listener net.Listener
	addr     string // as clients have it
	work     sync.WaitGroup
	ctx      context.Context
	stop     context.CancelFunc

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when a fault changes
	target  string
	faults  [2]fault
	refuse  bool
	conns   map[net.Conn]struct{}
	passed  [2]int64
}

// fault is what happens in one direction.
type fault struct {
	stalled   bool
	blackhole bool
	rate      int // bytes a second; 0 is no limit
	delay     time.Duration
	left      int64 // bytes until every connection is cut; negative is no limit
}

var healthy = fault{left: -1}

// NewProxy listens on a free port of the loopback address. The caller calls
// Close.
func NewProxy(target string) (*Proxy, error) { return NewProxyBehind(nil, target) }

// NewProxyBehind listens behind a link; nil is none.
func NewProxyBehind(link *Link, target string) (*Proxy, error) {
	here, there := "127.0.0.1", "127.0.0.1"
	if link != nil {
		here, there = link.Here(), link.There()
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(here, "0"))
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start proxy: %w", err), listener.Close())
	}
	p := &Proxy{listener: listener, addr: net.JoinHostPort(there, port), target: target, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.faults = [2]fault{healthy, healthy}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.work.Go(p.accept)
	return p, nil
}

// Addr is host:port to connect to.
func (p *Proxy) Addr() string { return p.addr }

// Passed is the number of bytes forwarded so far.
func (p *Proxy) Passed(d Direction) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[d]
}

// Retarget sends new connections elsewhere.
func (p *Proxy) Retarget(target string) { p.set(func() { p.target = target }) }

// Stall stops forwarding both ways. Nothing is lost: the senders' buffers fill.
func (p *Proxy) Stall() {
	p.set(func() { p.faults[ToServer].stalled, p.faults[ToClient].stalled = true, true })
}

// StallOne stops forwarding one way.
func (p *Proxy) StallOne(d Direction) { p.set(func() { p.faults[d].stalled = true }) }

// Blackhole swallows what goes one way: the sender sees no trouble.
func (p *Proxy) Blackhole(d Direction) { p.set(func() { p.faults[d].blackhole = true }) }

// Slow limits one way to a number of bytes a second.
func (p *Proxy) Slow(d Direction, bytesPerSecond int) {
	p.set(func() { p.faults[d].rate = bytesPerSecond })
}

// Delay holds each piece that goes one way back for a while, as a long way does.
// Pieces wait one after another, so throughput falls with it.
func (p *Proxy) Delay(d Direction, by time.Duration) { p.set(func() { p.faults[d].delay = by }) }

// CutAfter resets every connection once n more bytes went one way.
func (p *Proxy) CutAfter(d Direction, n int64) { p.set(func() { p.faults[d].left = n }) }

// Refuse resets new connections. Open ones stay; Cut ends those.
func (p *Proxy) Refuse() { p.set(func() { p.refuse = true }) }

// Heal ends every fault. What was swallowed stays lost.
func (p *Proxy) Heal() {
	p.set(func() { p.faults, p.refuse = [2]fault{healthy, healthy}, false })
}

// Cut resets every open connection.
func (p *Proxy) Cut() { p.set(p.cutLocked) }

func (p *Proxy) cutLocked() {
	for conn := range p.conns {
		reset(conn)
	}
	clear(p.conns)
}

// Close cuts what is open and waits for its goroutines.
func (p *Proxy) Close() error {
	p.stop()
	err := p.listener.Close()
	p.Cut()
	p.work.Wait()
	return err
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	target, refuse := p.target, p.refuse
	p.mu.Unlock()
	if refuse || p.ctx.Err() != nil {
		reset(client)
		return
	}
	var dialer net.Dialer
	server, err := dialer.DialContext(p.ctx, "tcp", target)
	if err != nil {
		reset(client)
		return
	}
	p.track(client, server)
	defer p.forget(client, server)
	var both sync.WaitGroup
	both.Go(func() { p.forward(ToServer, server, client) })
	both.Go(func() { p.forward(ToClient, client, server) })
	both.Wait()
}

func (p *Proxy) track(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		p.conns[conn] = struct{}{}
	}
	if p.ctx.Err() != nil {
		p.cutLocked()
	}
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.conns, conn)
		_ = conn.Close()
	}
}

// forward copies one direction. An end of the stream is passed on as such; any
// other trouble ends the connection.
func (p *Proxy) forward(d Direction, to, from net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.pass(d, to, buffer[:n]) {
			break
		}
		if err != nil {
			break
		}
	}
	if tcp, ok := to.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}

// pass waits out a stall and forwards what the fault lets through.
func (p *Proxy) pass(d Direction, to net.Conn, data []byte) bool {
	for len(data) > 0 {
		f, err := p.await(d, to)
		if err != nil {
			return false
		}
		n := len(data)
		if f.left >= 0 {
			n = int(min(int64(n), f.left))
		}
		if f.rate > 0 {
			n = min(n, max(1, f.rate/20))
		}
		if f.delay > 0 {
			pause(p.ctx, f.delay)
		}
		if !f.blackhole && n > 0 {
			if _, err := to.Write(data[:n]); err != nil {
				return false
			}
		}
		if p.count(d, n) {
			return false
		}
		if f.rate > 0 {
			pause(p.ctx, time.Second*time.Duration(n)/time.Duration(f.rate))
		}
		data = data[n:]
	}
	return true
}

var errGone = errors.New("connection is gone")

// await returns when the direction is not stalled.
func (p *Proxy) await(d Direction, conn net.Conn) (fault, error) {
	for {
		p.mu.Lock()
		f, changed := p.faults[d], p.changed
		_, open := p.conns[conn]
		p.mu.Unlock()
		if !open {
			return f, errGone
		}
		if !f.stalled {
			return f, nil
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			return f, errGone
		}
	}
}

// count books n bytes and cuts everything when the limit of CutAfter is reached.
func (p *Proxy) count(d Direction, n int) (cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed[d] += int64(n)
	if p.faults[d].left < 0 {
		return false
	}
	p.faults[d].left = max(0, p.faults[d].left-int64(n))
	if p.faults[d].left > 0 {
		return false
	}
	p.faults[d].left = -1
	p.cutLocked()
	return true
}
