package sandbox_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestLink_CarriesEverythingLater(t *testing.T) {
	const delay = 20 * time.Millisecond
	link := harness.Link(t, sandbox.LinkOptions{Delay: delay, Rate: 20 << 20})
	listener, err := net.Listen("tcp", net.JoinHostPort(link.Here(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	sent := bytes.Repeat([]byte("what goes in comes out "), 1<<17) // 3 MB, more than the queue
	from := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		from <- conn.RemoteAddr().String()
		_, _ = conn.Write(sent) // the reader sees what is missing
	}()

	_, port, _ := net.SplitHostPort(listener.Addr().String())
	began := time.Now()
	conn, err := net.Dial("tcp", net.JoinHostPort(link.There(), port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if took := time.Since(began); took < 2*delay {
		t.Errorf("connecting took %s, less than a round trip", took)
	}
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes arrived as they were sent: %v", len(got), len(sent), err)
	}
	if took := time.Since(began); took < time.Duration(len(sent))*time.Second/(20<<20) {
		t.Errorf("%d bytes came in %s, faster than the link", len(sent), took)
	}
	if host, _, _ := net.SplitHostPort(<-from); host != link.There() {
		t.Errorf("the connection came from %s, want %s", host, link.There())
	}
}

// Of many round trips the quickest is hardly longer than the link says: a busy machine makes
// them longer, and a coarse timer makes each one longer.
func TestLink_KeepsAShortDelay(t *testing.T) {
	const delay = 500 * time.Microsecond
	link := harness.Link(t, sandbox.LinkOptions{Delay: delay})
	listener, err := net.Listen("tcp", net.JoinHostPort(link.Here(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	conn, err := net.Dial("tcp", net.JoinHostPort(link.There(), port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	quickest := time.Hour
	for range 500 {
		began := time.Now()
		if _, err := conn.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		quickest = min(quickest, time.Since(began))
	}
	if quickest < 2*delay || quickest > 3*delay {
		t.Errorf("the quickest round trip took %s, want hardly more than %s", quickest, 2*delay)
	}
}
