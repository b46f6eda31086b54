// Package peer finds out what answers at an address where something else was expected.
package peer

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"
)

// Patience is how long a server may be silent before it is worth asking what it is.
const Patience = 2 * time.Second

// What Identify can tell.
const (
	Kafka = "a Kafka broker"
	HTTP  = "an HTTP server"
)

// within bounds each question.
const within = time.Second

const correlation = 0x43444352

// Identify asks the server at a TCP address what it is. It is empty where that is not known,
// as for PostgreSQL and for servers behind TLS. It takes about two seconds at most.
func Identify(ctx context.Context, address string) string {
	for _, question := range [][]byte{apiVersions(), []byte("GET / HTTP/1.0\r\n\r\n")} {
		answer := ask(ctx, address, question)
		switch {
		case len(answer) == 8 && binary.BigEndian.Uint32(answer[4:]) == correlation:
			return Kafka
		case bytes.HasPrefix(answer, []byte("HTTP/")):
			return HTTP
		case len(answer) > 0:
			return ""
		}
	}
	return ""
}

// ask gives the first eight bytes of the answer, or fewer.
func ask(ctx context.Context, address string, question []byte) []byte {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(question); err != nil {
		return nil
	}
	answer := make([]byte, 8)
	n, _ := io.ReadFull(conn, answer)
	return answer[:n]
}

// apiVersions is a request that every Kafka broker answers, also before authentication.
func apiVersions() []byte {
	const key, version, noClient = 18, 0, 0xFFFF
	body := binary.BigEndian.AppendUint16(nil, key)
	body = binary.BigEndian.AppendUint16(body, version)
	body = binary.BigEndian.AppendUint32(body, correlation)
	body = binary.BigEndian.AppendUint16(body, noClient)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// While runs connect, and asks the server at each address what it is when connect takes
// longer than Patience. Once one of them is something other than what is wanted, the
// context of connect ends, and found says what answers where.
func While(ctx context.Context, addresses []string, wanted string, connect func(context.Context) error) (found string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, told := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(told)
		select {
		case <-time.After(Patience):
		case <-ended:
			return
		}
		for _, address := range addresses {
			if what := Identify(ctx, address); what != "" && what != wanted {
				told <- what + " answers at " + address
				cancel()
				return
			}
		}
	}()
	err = connect(ctx)
	close(ended)
	if err == nil {
		return "", nil
	}
	cancel()
	return <-told, err
}
