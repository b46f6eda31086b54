package sandbox

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fronts are the proxies before brokers. Clients that ask a broker where the
// others are get the proxies' addresses, so everything of theirs passes through.
type fronts struct {
	mu      sync.Mutex
	proxies []*Proxy
	direct  map[string]string // proxy → broker
}

// Proxies are those before the brokers, in the order of the brokers.
func (f *fronts) Proxies() []*Proxy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*Proxy(nil), f.proxies...)
}

// Direct has a client reach the brokers past their proxies: for whoever judges
// what went through them.
func (f *fronts) Direct() kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		f.mu.Lock()
		if broker, known := f.direct[addr]; known {
			addr = broker
		}
		f.mu.Unlock()
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, addr)
	})
}

func (f *fronts) add(proxy *Proxy, broker string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.direct == nil {
		f.direct = map[string]string{}
	}
	f.proxies = append(f.proxies, proxy)
	f.direct[proxy.Addr()] = broker
}

// front puts a proxy before a listener, which from then on gives the proxy's
// address as its own.
func (f *fronts) front(listener net.Listener, behind *Link) (net.Listener, error) {
	proxy, err := NewProxyBehind(behind, listener.Addr().String())
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	addr, err := net.ResolveTCPAddr("tcp", proxy.Addr())
	if err != nil {
		return nil, errors.Join(err, proxy.Close(), listener.Close())
	}
	f.add(proxy, listener.Addr().String())
	return &frontedListener{listener, addr}, nil
}

func (f *fronts) closeFronts() error {
	var errs []error
	for _, proxy := range f.Proxies() {
		errs = append(errs, proxy.Close())
	}
	return errors.Join(errs...)
}

type frontedListener struct {
	net.Listener
	addr net.Addr
}

func (l *frontedListener) Addr() net.Addr { return l.addr }
