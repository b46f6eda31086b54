package sandbox_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// portsEach is how many ports each of two processes takes.
const portsEach = 500

// takePorts prints ports, and has them until nobody needs them any more.
func takePorts() {
	for range portsEach {
		port, err := sandbox.FreePort()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(port)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// No port is given twice, to this process or to another one, and none that the system may give to
// somebody else meanwhile.
func TestFreePort_IsNobodyElses(t *testing.T) {
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), owner+"=ports")
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	hold, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	note := func(port int, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port >= 32768 || port < 1024 {
			t.Fatalf("port %d, after %d others", port, len(seen))
		}
		seen[port] = true
	}
	lines := bufio.NewScanner(out)
	for range portsEach {
		note(sandbox.FreePort())
		if !lines.Scan() {
			t.Fatal("the other process got no port")
		}
		note(strconv.Atoi(lines.Text()))
	}
	if err := errors.Join(hold.Close(), other.Wait()); err != nil {
		t.Fatal(err)
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
