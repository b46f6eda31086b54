package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
)

// drawn is a screen that a test reads.
type drawn struct {
	mu   sync.Mutex
	text string
	keys chan byte
}

func (d *drawn) screen() *screen {
	return &screen{keys: d.keys, size: func() (int, int) { return 100, 30 }, close: func() {}, write: func(text []byte) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.text = string(text)
	}}
}

// await waits until the frame has a text.
func (d *drawn) await(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; {
		d.mu.Lock()
		text := d.text
		d.mu.Unlock()
		if strings.Contains(text, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the frame never had %q:\n%s", want, text)
		}
		select {
		case d.keys <- 'x': // a key that means nothing has it drawn
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestWatch_DrawsAndObeysKeys(t *testing.T) {
	var now atomic.Pointer[status.Status]
	show := func(s status.Status) { s.Headline = status.Headline(&s, time.Now()); now.Store(&s) }
	lag := 0.2
	calm := status.Status{State: status.Streaming, Slot: "cdc_relay", LagSeconds: &lag, Since: time.Now()}
	show(calm)
	var withLetters atomic.Bool
	withLetters.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/status":
			_ = json.NewEncoder(w).Encode(now.Load())
		case "/api/v1/obstacle":
			_, _ = w.Write([]byte(`{"ways": [{"title": "Create the topic", "shell": "kafka-topics.sh --create"}]}`))
		case "/api/v1/dead-letters":
			if !withLetters.Load() {
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(`{"reason": "no_dead_letters", "detail": "this relay has no dead-letter topic: relay.on_reject is not dead_letter"}`))
				return
			}
			_, _ = w.Write([]byte(`{"topic": "letters", "read_at": "2030-01-31T14:00:00Z", "total": 5, "waiting": 1, "reasons": [{"name": "record_too_large", "count": 1}],
				"letters": [{"partition": 3, "offset": 17, "time": "2030-01-31T13:58:40Z", "reason": "record_too_large", "table": "public.outbox", "topic": "order-events", "event_id": "7f0c", "value_bytes": 1348211}]}`))
		case "/api/v1/history":
			_, _ = w.Write([]byte(`{"series": {"acknowledged": [null, 1, 2, 3, 4, 8], "lag_seconds": [1, 2, null, 3]}}`))
		}
	}))
	defer server.Close()
	c := newClient(time.Minute) // an answer that is late is none, and rings
	c.base = server.URL
	var rings bytes.Buffer
	a := &app{process: process{stdout: os.Stdout, stderr: &rings, env: []string{"TERM=xterm"}}}
	d := &drawn{keys: make(chan byte)}
	ended := make(chan error, 1)
	go func() {
		ended <- a.watchScreen(context.Background(), c, statusFlags{interval: 20 * time.Millisecond, bell: true}, d.screen())
	}()
	d.await(t, "Streaming, 0.2 s behind.")
	d.await(t, "█") // of the past
	blocked := calm
	blocked.State, blocked.Reason, blocked.Message = status.Blocked, "unknown_topic", "topic orders does not exist"
	blocked.Obstacle = &status.Obstacle{Reason: "unknown_topic"}
	show(blocked)
	d.await(t, "kafka-topics.sh --create")
	d.keys <- 'b'
	d.await(t, "1. Create the topic")
	d.keys <- 'p'
	d.await(t, "held")
	show(calm)
	d.keys <- 'p'
	d.await(t, "Nothing stands in the way.")
	d.keys <- 'n'
	d.await(t, "WAL lasts")
	d.keys <- 'd'
	d.await(t, "  public.outbox → order-events, 1.3 MiB, event 7f0c")
	d.await(t, "1 of 5 letters in letters, read ")
	withLetters.Store(false)
	d.await(t, "relay.on_reject is not dead_letter")
	d.keys <- 'n'
	d.await(t, "WAL lasts")
	server.Close()
	d.await(t, "No answer for")
	d.keys <- 'q'
	if err := <-ended; err == nil || exitCode(err) != exitFailed {
		t.Errorf("the relay does not answer, and the command ends with %v", err)
	}
	if rings.String() != "\a\a" {
		t.Errorf("it rang %q, want once at each end", rings.String())
	}
}

func TestWatch_NeedsATerminal(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	a := &app{process: process{stdout: file, env: []string{"TERM=xterm"}}}
	if s := a.openScreen(false); s != nil {
		t.Error("a file is taken for a terminal")
	}
}
