package admin

import (
	"bufio"
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/tail"
)

// A tab that stays open for two hours has its stream and its session for as long, and costs no more at the end than
// at the beginning. The times of the server, such as that for writing an answer, do not cut it.
func TestStream_GoesOnForHours(t *testing.T) {
	for name, path := range map[string]string{"figures": "/api/v1/stream?kinds=status,charts,log", "the log alone": "/api/v1/stream?kinds=log", "the tail": "/api/v1/tail"} {
		t.Run(name, func(t *testing.T) {
			var console *Console // of the bubble
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.RemoteAddr = "127.0.0.1:1" // a pipe has none
				HandlerWithConsole(withToken(), streaming, http.HandlerFunc(metricsStub), console).ServeHTTP(w, r)
			})
			served(t, handler, func(t *testing.T, dial func() net.Conn) {
				with := tools()
				with.Tail = new(tail.Tail)
				console = NewConsole(streaming, with, time.Hour)
				secret := console.sessions.begin(time.Now(), sha256.Sum256([]byte("sesame")))
				c := dial()
				defer c.Close()
				if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nCookie: "+plainCookie+"="+secret+"\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				began, lines, events := time.Now(), bufio.NewReader(c), 0
				var before, after runtime.MemStats
				for time.Since(began) < 2*time.Hour {
					line, err := lines.ReadString('\n')
					if err != nil {
						t.Fatalf("the stream ended after %s: %v", time.Since(began), err)
					}
					if strings.HasPrefix(line, "event:") || strings.HasPrefix(line, ": nothing new") {
						events++
					}
					if before.HeapAlloc == 0 && time.Since(began) >= 10*time.Minute {
						runtime.GC()
						runtime.ReadMemStats(&before)
					}
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
					t.Errorf("%d bytes more after two hours than after ten minutes", grown)
				}
				if least := map[string]int{"figures": 7000, "the log alone": 470, "the tail": 7000}[name]; events < least {
					t.Errorf("%d events in two hours, want %d", events, least)
				}
			})
		})
	}
}
