package socket_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/socket"
)

// With its address in the environment the test binary is the peer of BenchmarkTip.
const feedVariable = "SOCKET_TEST_FEED"

func TestMain(m *testing.M) {
	if addr := os.Getenv(feedVariable); addr != "" {
		feed(addr)
		return
	}
	os.Exit(m.Run())
}

// feed writes a row a millisecond until nobody reads them.
func feed(addr string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	for range time.Tick(time.Millisecond) {
		if _, err := conn.Write(make([]byte, row)); err != nil {
			return
		}
	}
}

const row = 300

// A row a millisecond from another process, an answer to each, and nothing to do in
// between: what a row costs is mostly being woken for it. The figure is cpu-ns/op; ns/op
// is the millisecond. See it with -cpu 1,2.
func BenchmarkTip(b *testing.B) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{"direct": socket.Direct, "told": socket.Below} {
		b.Run(name, func(b *testing.B) {
			conn := wrap(fed(b))
			p := make([]byte, row)
			before := used(b)
			b.ResetTimer()
			for range b.N {
				if _, err := io.ReadFull(conn, p); err != nil {
					b.Fatal(err)
				}
				if _, err := conn.Write(p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(used(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func fed(b *testing.B) net.Conn {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	peer := exec.Command(self)
	peer.Env = append(os.Environ(), feedVariable+"="+listener.Addr().String())
	if err := peer.Start(); err != nil {
		b.Fatal(err)
	}
	_ = listener.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	conn, err := listener.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		conn.Close()
		_ = peer.Process.Kill()
		_ = peer.Wait()
	})
	return conn
}

func used(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
