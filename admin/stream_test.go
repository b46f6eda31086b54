package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

func TestStream_SendsWhatIsNewAndEndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rotated atomic.Bool
		of := tools()
		c, console := consoleOf(t, Config{Listen: local, Token: func() (string, error) {
			if rotated.Load() {
				return "another", nil
			}
			return "sesame", nil
		}}, streaming, of)
		ctx, stop := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "GET", "/api/v1/stream?kinds=status,charts,log", nil)
		r.Header.Set("Authorization", "Bearer sesame")
		r.Header.Set("Last-Event-ID", "1")
		r.RemoteAddr = "10.0.0.1:1"
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() { defer close(done); c.handler.ServeHTTP(w, r) }()
		pass(1500 * time.Millisecond)
		console.Sample(time.Now())
		log := zerolog.New(of.Log)
		log.Info().Msg("third")
		pass(2 * time.Second)
		rotated.Store(true)
		pass(2 * time.Second)
		select {
		case <-done:
		default:
			t.Error("it goes on although the token was rotated")
		}
		stop()
		<-done
		text := w.Body.String()
		if w.Header().Get("Content-Type") != "text/event-stream" || strings.Count(text, "event: status\n") < 3 || strings.Count(text, "event: charts\n") != 1 {
			t.Errorf("%s: %s", w.Header(), text)
		}
		if strings.Contains(text, `"first"`) || strings.Count(text, `"second"`) != 1 || strings.Count(text, `"third"`) != 1 || !strings.Contains(text, "id: 3\nevent: log\n") {
			t.Errorf("lines of the log: %s", text)
		}
		if console.streams.all != 0 || len(console.streams.open) != 0 {
			t.Error("it counts as open")
		}
	})
}

func TestStream_IsLimited(t *testing.T) {
	var s streams
	for i := range maxStreams {
		if !s.enter(fmt.Sprint(i / maxAddressStreams)) {
			t.Fatalf("stream %d is refused", i)
		}
	}
	if s.enter("new") {
		t.Error("there is no limit in all")
	}
	s.leave("1")
	if s.enter("0") || !s.enter("new") {
		t.Error("there is no limit of one address")
	}
	var tunnelled streams // all come from this machine
	for i := range maxStreams {
		if !tunnelled.enter("127.0.0.1") {
			t.Fatalf("stream %d of loopback is refused", i)
		}
	}
	if tunnelled.enter("127.0.0.1") || tunnelled.left("127.0.0.1") != 0 || s.left("0") != 0 || s.left("1") != 0 {
		t.Error("there is no limit of loopback")
	}
	c, console := consoleOf(t, Config{Listen: local}, streaming, tools())
	if about := c.get("/api/v1/console"); !strings.Contains(about.Body.String(), `"streams_left":`) || strings.Contains(about.Body.String(), `"streams_left":0`) {
		t.Errorf("with no stream: %s", about.Body)
	}
	console.streams.all = maxStreams
	if about := c.get("/api/v1/console"); !strings.Contains(about.Body.String(), `"streams_left":0`) {
		t.Errorf("with %d streams: %s", maxStreams, about.Body)
	}
	if w := c.get("/api/v1/stream"); w.Code != 503 || w.Header().Get("Retry-After") != "5" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	network, _ := consoleOf(t, Config{Listen: ":8080"}, streaming, tools())
	if w := network.get("/api/v1/stream?kinds=log"); w.Code != 403 || reasonOf(t, w) != "token_needed" {
		t.Errorf("the log for the network: %d %s", w.Code, w.Body)
	}
}

// A page that was open while the relay was started again asks behind a line of the process before.
func TestLogTail_GoesOnBehindTheProcessBefore(t *testing.T) {
	start := time.UnixMilli(1_700_000_000_000)
	before, now := NewLogTail(start), NewLogTail(start.Add(time.Second))
	_, _ = before.Write([]byte(`{"msg": "old"}`))
	_, _ = now.Write([]byte(`{"msg": "new"}`))
	if lines := now.After(before.After(0)[0].Number); len(lines) != 1 || string(lines[0].Line) != `{"msg": "new"}` {
		t.Errorf("%v", lines)
	}
}

func TestLogTail_IsBounded(t *testing.T) {
	l := new(LogTail)
	for i := range 2000 {
		fmt.Fprintf(l, `{"n": %d}`+"\n", i)
	}
	if all := l.After(0); len(all) != maxLogLines || all[0].Number != 1501 || string(all[499].Line) != `{"n": 1999}`+"\n" {
		t.Errorf("%d lines, from %d", len(all), all[0].Number)
	}
	if all := l.After(1998); len(all) != 2 || len(l.After(2000)) != 0 || len(l.After(9000)) != 0 {
		t.Errorf("behind 1998: %v", all)
	}
	_, _ = l.Write(bytes.Repeat([]byte("x"), 9<<10))
	_, _ = l.Write([]byte("no JSON"))
	for _, line := range l.After(2000) {
		if !json.Valid(line.Line) || len(line.Line) > 200 {
			t.Errorf("%s", line.Line)
		}
	}
	long := []byte(`{"x": "` + strings.Repeat("y", 7<<10) + `"}`)
	for range 100 {
		_, _ = l.Write(long)
	}
	if l.bytes > maxLogBytes {
		t.Errorf("%d bytes are kept", l.bytes)
	}
}
