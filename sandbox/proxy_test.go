package sandbox_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// echo answers every byte with the same byte.
func echo(t *testing.T) (*sandbox.Proxy, func() net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); conn.Close() }()
		}
	}()
	proxy, err := sandbox.NewProxy(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	return proxy, func() net.Conn {
		conn, err := net.Dial("tcp", proxy.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

func ask(conn net.Conn, text string, patience time.Duration) (string, error) {
	if _, err := conn.Write([]byte(text)); err != nil {
		return "", err
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	answer := make([]byte, len(text))
	n, err := io.ReadFull(conn, answer)
	return string(answer[:n]), err
}

const (
	soon = 50 * time.Millisecond
	long = 30 * time.Second
)

func TestProxy_Forwards(t *testing.T) {
	proxy, dial := echo(t)
	conn := dial()
	if got, err := ask(conn, "hello", long); got != "hello" || err != nil {
		t.Errorf("answer = %q, %v", got, err)
	}
	eventually(t, "5 bytes to the client are counted", func() bool { return proxy.Passed(sandbox.ToClient) == 5 })
}

func TestProxy_StallLosesNothing(t *testing.T) {
	proxy, dial := echo(t)
	conn := dial()
	proxy.Stall()
	if got, err := ask(conn, "hello", soon); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("answer while stalled = %q, %v", got, err)
	}
	proxy.Heal()
	if got, err := ask(conn, "!", long); got != "h" || err != nil {
		t.Errorf("first byte after healing = %q, %v; want the one sent while stalled", got, err)
	}
}

func TestProxy_BlackholeLosesOneWay(t *testing.T) {
	proxy, dial := echo(t)
	conn := dial()
	proxy.Blackhole(sandbox.ToServer)
	if got, err := ask(conn, "hello", soon); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("answer through the hole = %q, %v", got, err)
	}
	eventually(t, "it was swallowed", func() bool { return proxy.Passed(sandbox.ToServer) == 5 })
	proxy.Heal()
	if got, err := ask(conn, "!", long); got != "!" || err != nil {
		t.Errorf("answer after healing = %q, %v; want only what came later", got, err)
	}
}

func TestProxy_CutsAfterTheBytesGiven(t *testing.T) {
	proxy, dial := echo(t)
	conn := dial()
	proxy.CutAfter(sandbox.ToServer, 3)
	if _, err := ask(conn, "hello", long); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection was not cut: %v", err)
	}
	if got := proxy.Passed(sandbox.ToServer); got != 3 {
		t.Errorf("bytes to the server = %d, want 3", got)
	}
	if got, err := ask(dial(), "hello", long); got != "hello" || err != nil {
		t.Errorf("the next connection: %q, %v", got, err)
	}
}

func TestProxy_RefusesNewConnectionsOnly(t *testing.T) {
	proxy, dial := echo(t)
	conn := dial()
	if _, err := ask(conn, "a", long); err != nil {
		t.Fatal(err)
	}
	proxy.Refuse()
	// The reset may come before the dial returned.
	if refused, err := net.Dial("tcp", proxy.Addr()); err == nil {
		defer refused.Close()
		if _, err := ask(refused, "b", long); err == nil {
			t.Error("a new connection was let in")
		}
	}
	if got, err := ask(conn, "c", long); got != "c" || err != nil {
		t.Errorf("the open connection: %q, %v", got, err)
	}
	proxy.Cut()
	if _, err := ask(conn, "d", long); err == nil {
		t.Error("the open connection was not cut")
	}
}
