package socket

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// In a pause the kernel is quiet until the buffer is well filled. After it a read waits
// for no more than one byte again, and takes what came meanwhile.
func TestConn_PausesQuietly(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	theirs := make(chan net.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			theirs <- conn
		}
	}()
	ours, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	server := <-theirs
	defer server.Close()

	raw, err := ours.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	lowest := func() (n int) {
		err := raw.Control(func(fd uintptr) { n, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT) })
		if err != nil {
			t.Error(err)
		}
		return n
	}
	var p *Pace
	g := &Conn{Conn: ours, buf: make([]byte, bufferSize)}
	read := func() <-chan int {
		got := make(chan int, 1)
		go func() {
			n, err := g.Read(make([]byte, bufferSize))
			if err != nil {
				n = -1
			}
			got <- n
		}()
		return got
	}
	for pause, late := 300*time.Millisecond, true; late; pause *= 2 { // one that is over before all is written shows nothing
		p = &Pace{sent: 1 << 40, committed: 1, size: 1}
		g.Follow(p, Pacing{Pause: pause})
		began := time.Now()
		behind := read()
		for lowest() < receiveBuffer/2 && len(behind) == 0 && time.Since(began) < pause {
		}
		quiet := lowest() >= receiveBuffer/2
		for range 3 {
			if _, err := server.Write([]byte("row")); err != nil {
				t.Fatal(err)
			}
		}
		late = time.Since(began) > pause
		n := <-behind
		if late && pause < 8*time.Second {
			for p.Off = true; n > 0 && n < 9; n += <-read() {
			}
			continue
		}
		if !quiet || n != 9 {
			t.Fatalf("%d bytes were read behind the pause, want all 9; the kernel was asked to be quiet: %t", n, quiet)
		}
	}
	p.Off = true
	tip := read()
	if _, err := server.Write([]byte("at the tip")); err != nil {
		t.Fatal(err)
	}
	if n := <-tip; n != 10 || lowest() != 1 {
		t.Errorf("%d bytes were read at the tip, where %d wake a reader", n, lowest())
	}
}
