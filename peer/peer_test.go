package peer_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/peer"
)

// serve answers every connection with what answer makes of it.
func serve(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// web says nothing before it has read a line, as many servers do.
func web(conn net.Conn) {
	if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil && line == "GET / HTTP/1.0\r\n" {
		_, _ = io.WriteString(conn, "HTTP/1.0 400 Bad Request\r\n\r\n")
	}
}

// broker answers as Kafka does: the size of the answer, then the number of the request.
func broker(conn net.Conn) {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil || binary.BigEndian.Uint32(size[:]) > 100 {
		return
	}
	request := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, request); err == nil {
		_, _ = conn.Write(append([]byte{0, 0, 0, 10}, request[4:8]...))
	}
}

func silent(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func database(conn net.Conn) {
	_, _ = io.ReadFull(conn, make([]byte, 8))
	_, _ = io.WriteString(conn, "E\x00\x00\x00\x8cSFATAL\x00")
}

// patience is that of tests: a machine that stands still misses the second that a question has.
const patience = time.Minute

func TestIdentify_TellsWhatAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(net.Conn)
		want   string
	}{
		"a broker":        {broker, peer.Kafka},
		"a web server":    {web, peer.HTTP},
		"PostgreSQL":      {database, ""},
		"silence":         {silent, ""},
		"one that closes": {func(net.Conn) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := serve(t, tt.answer)
			began := time.Now()
			got := peer.Identify(t.Context(), address)
			if took := time.Since(began); took > 30*time.Second { // what it does not give up would stay for good
				t.Errorf("it took %s", took)
			}
			for got == "" && tt.want != "" && time.Since(began) < patience { // who stood still has answered too late
				got = peer.Identify(t.Context(), address)
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
	if got := peer.Identify(t.Context(), "127.0.0.1:1"); got != "" {
		t.Errorf("nobody: %q", got)
	}
}

// A connection that succeeds, or fails, is not held up, and one that hangs ends.
func TestWhile_EndsWhatHangsAtAnotherServer(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	var found string
	var err error
	for began := time.Now(); found == "" && time.Since(began) < patience; { // as above
		tried, cancel := context.WithTimeout(t.Context(), 10*peer.Patience)
		found, err = peer.While(tried, []string{serve(t, silent), serve(t, web)}, peer.Kafka, hang)
		cancel()
	}
	if len(found) < len(peer.HTTP) || found[:len(peer.HTTP)] != peer.HTTP || err == nil {
		t.Errorf("%q, %v", found, err)
	}
	limited, cancel := context.WithTimeout(t.Context(), 2*peer.Patience)
	defer cancel()
	if found, err := peer.While(limited, []string{serve(t, broker)}, peer.Kafka, hang); found != "" || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a slow broker: %q, %v", found, err)
	}
	failure := errors.New("refused")
	if found, err := peer.While(t.Context(), []string{serve(t, web)}, "", func(context.Context) error { return failure }); found != "" || !errors.Is(err, failure) {
		t.Errorf("%q, %v", found, err)
	}
	if found, err := peer.While(t.Context(), []string{serve(t, web)}, "", func(context.Context) error { return nil }); found != "" || err != nil {
		t.Errorf("%q, %v", found, err)
	}
}
