package sandbox_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// No port is given twice, and none that the system may give to somebody else meanwhile.
func TestFreePort_IsNobodyElses(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		port, err := sandbox.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port >= 32768 || port < 1024 {
			t.Fatalf("port %d, after %d others", port, len(seen))
		}
		seen[port] = true
	}
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
}
