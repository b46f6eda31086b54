package replication

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/socket"
)

// PostgreSQL puts each message of a stream into a TLS record of its own, and a read gives one
// record. What lies ready below TLS is read with it.
func TestFrames_ReadsOnWhileTLSHasRecordsAtHand(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const messages, size = 400, 150 // below what the socket of the server takes at once
	message := make([]byte, size)
	message[0], message[4] = 'd', size-1
	written := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			written <- err
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		server := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}})
		for range messages {
			if _, err = server.Write(message); err != nil {
				break
			}
		}
		written <- err
	}()

	below, err := socket.Dial(new(net.Dialer).DialContext, socket.Pacing{})(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(below, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // of this test
	defer conn.Close()
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	f := newFrames(conn)
	f.more = socket.Of(conn).HoldsTLSRecord
	count := func() (n int) {
		for {
			if _, _, ok, err := f.next(); err != nil {
				t.Fatal(err)
			} else if !ok {
				return n
			}
			n++
		}
	}
	largest, all := 0, 0
	for all < messages {
		if _, err := f.readMore(); err != nil {
			t.Fatal(err)
		}
		n := count()
		largest, all = max(largest, n), all+n
	}
	if largest < messages/10 || all != messages {
		t.Errorf("%d messages, at most %d of them in one read", all, largest)
	}
}
