package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"
)

// What a closed connection has not delivered is discarded and not sent later: with TLS,
// whose last word would have to wait for it, at once as well.
func TestKafka_ClosingAConnectionDiscardsWhatWasNotDelivered(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	for name, settings := range map[string]func() (*tls.Config, error){
		"plain": nil,
		"tls":   func() (*tls.Config, error) { return &tls.Config{RootCAs: pool, ServerName: "example.com"}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			took := closeFull(t, server, settings)
			for range 2 { // a machine that stood still does not do so each time
				if took > 4*time.Second { // TLS would give its last message five
					took = closeFull(t, server, settings)
				}
			}
			if took > 4*time.Second {
				t.Errorf("closing took %s", took)
			}
		})
	}
}

// closeFull is how long it takes to close a connection that has undelivered bytes. The broker has a
// reset of it.
func closeFull(t *testing.T, server *httptest.Server, settings func() (*tls.Config, error)) (took time.Duration) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if settings != nil {
			_ = tls.Server(conn, server.TLS).Handshake() // reads nothing after it
		}
		accepted <- conn
	}()
	conn, err := Connection{TLS: settings}.Dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	broker := <-accepted
	defer broker.Close()

	below := conn // what fills it does not matter, and TLS would not go on after a deadline
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		below = secured.NetConn()
	}
	for _, piece := range []int{4 << 20, 1 << 10, 1} { // where a large one does not fit, a small one may
		_ = below.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		var err error
		for err == nil {
			_, err = below.Write(make([]byte, piece))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	_ = below.SetWriteDeadline(time.Time{})
	began := time.Now()
	_ = conn.Close()
	took = time.Since(began)
	_ = broker.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := io.Copy(io.Discard, broker); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the broker read %d bytes and then %v, want a reset", n, err)
	}
	return took
}
