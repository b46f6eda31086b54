package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/tail"
)

func TestTail_StreamsASampleUntilThePageIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := tools()
		of.Tail = new(tail.Tail)
		c, console := consoleOf(t, Config{Listen: local}, streaming, of)
		ctx, stop := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "GET", "/api/v1/tail?topic=orders", nil)
		r.Host, r.RemoteAddr = local, "127.0.0.1:1"
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() { defer close(done); c.handler.ServeHTTP(w, r) }()
		synctest.Wait()
		row := &wal.Row{Txn: &wal.Txn{}, Relation: &wal.Relation{Namespace: "public", Name: "outbox"}}
		var records []record.Record
		for range 940 {
			records = append(records, record.Record{Topic: "orders", Key: []byte("secret-key"), Value: []byte("secret-value"), Row: row}, record.Record{Topic: "bills", Row: row})
		}
		of.Tail.Delivered(records)
		pass(1500 * time.Millisecond)
		stop()
		<-done
		text := w.Body.String()
		if w.Header().Get("Content-Type") != "text/event-stream" || !strings.Contains(text, `"passed":940}`) || strings.Count(text, `"topic":"orders"`) != 1 || strings.Contains(text, "bills") || strings.Contains(text, "secret") {
			t.Errorf("%s: %s", w.Header(), text)
		}
		if console.streams.all != 0 {
			t.Error("it counts as open")
		}
		of.Tail.Delivered(records)
		if lines, passed := of.Tail.Open("", "").Next(); len(lines) != 0 || passed != 0 {
			t.Error("rows were counted although nobody looked")
		}
	})
	for listen, want := range map[string]int{":8080": 403, local: 404} {
		c, _ := consoleOf(t, Config{Listen: listen}, func() status.Status { return streaming() }, tools())
		if w := c.get("/api/v1/tail"); w.Code != want {
			t.Errorf("listening on %s: %d", listen, w.Code)
		}
	}
}

// Pages that do not read are dropped. Until then neither delivery nor the sampler waits for one.
func TestTail_PagesThatDoNotReadHoldNothingUp(t *testing.T) {
	var console *Console // of the bubble
	rows := new(tail.Tail)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "127.0.0.1:1" // a pipe has none
		HandlerWithConsole(Config{Listen: local}, streaming, http.HandlerFunc(metricsStub), console).ServeHTTP(w, r)
	})
	served(t, handler, func(t *testing.T, dial func() net.Conn) {
		with := tools()
		with.Tail = rows
		console = NewConsole(streaming, with, time.Minute)
		open := func() int {
			console.streams.mu.Lock()
			defer console.streams.mu.Unlock()
			return console.streams.all
		}
		for i := range maxStreams {
			c := dial()
			defer c.Close()
			path := []string{"/api/v1/tail", "/api/v1/stream?kinds=status,charts,log"}[i%2]
			if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		began := time.Now()
		if n := open(); n != maxStreams {
			t.Fatalf("%d streams are open", n)
		}
		relation := &wal.Relation{Namespace: "public", Name: "outbox"}
		for range 10_000 {
			rows.Delivered([]record.Record{{Topic: "orders", Row: &wal.Row{Relation: relation, Txn: new(wal.Txn)}}})
			console.Sample(time.Now())
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("delivery waited for %s", took)
		}
		pass(slowReader + 2*time.Second)
		synctest.Wait()
		if n := open(); n != 0 {
			t.Errorf("%d streams are still open", n)
		}
	})
}
