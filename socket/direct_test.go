package socket_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/socket"
)

// pair connects two ends of a network; the near one is direct, the far one is not.
func pair(t testing.TB, network string) (near, far net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	listener, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialed, err := net.Dial(network, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near = socket.Direct(dialed)
	t.Cleanup(func() {
		near.Close()
		far.Close()
	})
	return near, far
}

func TestDirect_PassesEveryByte(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			near, far := pair(t, network)
			limit(t, near, far)
			sent := make([]byte, 8<<20) // more than the sockets hold: writes and reads are partial, and wait
			for i := range sent {
				sent[i] = byte(i * i >> 7)
			}
			var group sync.WaitGroup
			group.Go(func() { _, _ = io.Copy(far, far) })
			group.Go(func() {
				if n, err := near.Write(sent); n != len(sent) || err != nil {
					t.Errorf("wrote %d of %d bytes: %v", n, len(sent), err)
				}
			})
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(near, got); err != nil {
				t.Error(err)
			}
			if !bytes.Equal(got, sent) {
				t.Error("other bytes came back")
			}
			near.Close()
			group.Wait()
		})
	}
}

// limit has what hangs fail, and writes be partial.
func limit(t *testing.T, conns ...net.Conn) {
	t.Helper()
	for _, c := range conns {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if b, ok := socket.Below(c).(interface{ SetWriteBuffer(int) error }); ok {
			_ = b.SetWriteBuffer(4 << 10)
		}
	}
}

// Two writes at a time leave one after the other, however often each has to wait.
func TestDirect_WritesDoNotMix(t *testing.T) {
	near, far := pair(t, "tcp")
	limit(t, near, far)
	const size = 2 << 20
	var group sync.WaitGroup
	for _, b := range []byte("ab") {
		group.Go(func() {
			if _, err := near.Write(bytes.Repeat([]byte{b}, size)); err != nil {
				t.Error(err)
			}
		})
	}
	got := make([]byte, 2*size)
	if _, err := io.ReadFull(far, got); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if changes := bytes.Count(got, []byte("ab")) + bytes.Count(got, []byte("ba")); changes != 1 {
		t.Errorf("the bytes of two writes changed %d times", changes)
	}
}

func TestDirect_UnderTLS(t *testing.T) {
	near, far := pair(t, "tcp")
	limit(t, near, far)
	server := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	client := tls.Client(near, &tls.Config{InsecureSkipVerify: true})
	var group sync.WaitGroup
	group.Go(func() { _, _ = io.Copy(server, server) })
	sent := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	group.Go(func() {
		if _, err := client.Write(sent); err != nil {
			t.Error(err)
		}
	})
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("other bytes came back: %v", err)
	}
	near.Close()
	group.Wait()
}

// Whoever looks at an error finds what the net package would have given it.
func TestDirect_ErrorsAreThoseOfTheNetPackage(t *testing.T) {
	for name, c := range map[string]struct {
		provoke func(near, far net.Conn) error
		is      error
		op      string
	}{
		"end": {func(near, far net.Conn) error {
			far.Close()
			return read(near)
		}, io.EOF, ""},
		"deadline of a read": {func(near, _ net.Conn) error {
			_ = near.SetReadDeadline(time.Now().Add(time.Millisecond))
			return read(near)
		}, os.ErrDeadlineExceeded, "read"},
		"deadline of a write": {func(near, _ net.Conn) error {
			_ = near.SetWriteDeadline(time.Now().Add(time.Millisecond))
			_, err := near.Write(make([]byte, 64<<20))
			return err
		}, os.ErrDeadlineExceeded, "write"},
		"closed before": {func(near, _ net.Conn) error {
			near.Close()
			return read(near)
		}, net.ErrClosed, "read"},
		"closed meanwhile": {func(near, _ net.Conn) error {
			time.AfterFunc(time.Millisecond, func() { near.Close() })
			return read(near)
		}, net.ErrClosed, "read"},
		"reset": {func(near, far net.Conn) error {
			_ = far.(*net.TCPConn).SetLinger(0)
			far.Close()
			return read(near)
		}, syscall.ECONNRESET, "read"},
		"nobody there": {func(near, far net.Conn) error {
			_ = far.(*net.TCPConn).SetLinger(0)
			far.Close()
			_ = read(near)
			_, err := near.Write([]byte("x"))
			return err
		}, syscall.EPIPE, "write"},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t, "tcp")
			plain, other := pair(t, "tcp")
			err, want := c.provoke(near, far), c.provoke(socket.Below(plain), other)
			if !errors.Is(want, c.is) {
				t.Fatalf("the net package says %v", want)
			}
			if !errors.Is(err, c.is) {
				t.Fatalf("%v, want %v", err, want)
			}
			if isTimeout(err) != isTimeout(want) {
				t.Errorf("timeout %t, want %t", isTimeout(err), isTimeout(want))
			}
			e, known := errors.AsType[*net.OpError](err)
			if c.op == "" {
				if known {
					t.Errorf("%v is dressed up", err)
				}
				return
			}
			w, _ := errors.AsType[*net.OpError](want)
			if !known {
				t.Fatalf("%v is not dressed up as %v", err, want)
			}
			if e.Source.String() != near.LocalAddr().String() || e.Addr.String() != near.RemoteAddr().String() {
				t.Errorf("%v, want both addresses", err)
			}
			if e.Op != c.op || e.Op != w.Op || e.Net != w.Net || e.Err.Error() != w.Err.Error() {
				t.Errorf("%v, want the words of %v", err, want)
			}
		})
	}
}

func TestDirect_AnEmptyReadOrWriteDoesNothing(t *testing.T) {
	near, _ := pair(t, "tcp")
	if n, err := near.Read(nil); n != 0 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	if n, err := near.Write(nil); n != 0 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
}

// A deadline in the past is how a read that waits is called back; the connection goes
// on afterwards.
func TestDirect_GoesOnAfterADeadline(t *testing.T) {
	near, far := pair(t, "tcp")
	time.AfterFunc(time.Millisecond, func() { _ = near.SetReadDeadline(time.Unix(1, 0)) })
	if err := read(near); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	_ = near.SetReadDeadline(time.Time{})
	_, _ = far.Write([]byte("x"))
	if err := read(near); err != nil {
		t.Error(err)
	}
}

func TestDirect_AllocatesNothing(t *testing.T) {
	near, far := pair(t, "tcp")
	p := make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		_, _ = far.Write(p)
		_, _ = io.ReadFull(near, p)
		_, _ = near.Write(p)
		_, _ = io.ReadFull(far, p)
	}); n > 0 {
		t.Errorf("%v allocations a round", n)
	}
}

func TestBelow(t *testing.T) {
	near, _ := net.Pipe() // no socket
	if socket.Direct(near) != near || socket.Below(near) != near {
		t.Error("a connection without a socket is not left alone")
	}
	tcp, _ := pair(t, "tcp")
	if _, ok := socket.Below(tcp).(*net.TCPConn); !ok {
		t.Errorf("below is a %T", socket.Below(tcp))
	}
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return server.TLS.Certificates[0]
}

func read(conn net.Conn) error {
	_, err := conn.Read(make([]byte, 1))
	return err
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
