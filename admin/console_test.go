package admin

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/ways"
	"github.com/rs/zerolog"
)

// pass lets a time pass, in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// client asks a handler as a browser or a script does.
type client struct {
	t       *testing.T
	handler http.Handler
	cookies []*http.Cookie
	header  map[string]string
}

func (c *client) ask(method, path, body string) *httptest.ResponseRecorder {
	c.t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "127.0.0.1:8080", "127.0.0.1:5000"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, cookie := range c.cookies {
		r.AddCookie(cookie)
	}
	for k, v := range c.header {
		if k == "Host" {
			r.Host = v
		} else {
			r.Header.Set(k, v)
		}
	}
	c.handler.ServeHTTP(w, r)
	for _, cookie := range w.Result().Cookies() {
		c.cookies = []*http.Cookie{cookie}
	}
	return w
}

func (c *client) get(path string) *httptest.ResponseRecorder {
	c.t.Helper()
	return c.ask("GET", path, "")
}

func tools() Tools {
	tail := new(LogTail)
	log := zerolog.New(tail)
	log.Info().Msg("first")
	log.Warn().Msg("second")
	return Tools{
		Log: tail, Tables: []string{"public.outbox"}, Facts: ways.Facts{Stops: true, Brokers: "b1:9092"},
		Configuration: func() (string, error) { return "pipeline: default  # default\n", nil },
		Check:         func(context.Context) (any, error) { return map[string]int{"ok": 3}, nil },
		Explain: func(_ context.Context, table string, values bool) (any, error) {
			return map[string]any{"table": table, "values": values}, nil
		},
	}
}

const local = "127.0.0.1:8080"

func consoleOf(t *testing.T, cfg Config, show func() status.Status, tools Tools) (*client, *Console) {
	t.Helper()
	c := NewConsole(show, tools, time.Hour)
	return &client{t: t, handler: HandlerWithConsole(cfg, show, http.HandlerFunc(metricsStub), c)}, c
}

func withToken() Config {
	return Config{Listen: local, Token: func() (string, error) { return "sesame", nil }}
}

func reasonOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var p struct{ Reason, Detail string }
	if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" || json.Unmarshal(w.Body.Bytes(), &p) != nil || p.Detail == "" {
		t.Errorf("%d %s %s is no problem of ours", w.Code, kind, w.Body)
	}
	return p.Reason
}

func TestConsole_PagesAreOneDocumentThatLoadsNothingFromElsewhere(t *testing.T) {
	c, _ := consoleOf(t, Config{Listen: local}, streaming, tools())
	for _, path := range pages {
		w := c.get(path)
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") || !strings.Contains(w.Body.String(), "cdc-relay status --watch") {
			t.Errorf("%s: %d %s", path, w.Code, w.Header())
		}
		for header, want := range map[string]string{
			"Content-Security-Policy": pagePolicy, "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Header().Get(header); got != want {
				t.Errorf("%s: %s is %q", path, header, got)
			}
		}
	}
	if w := c.get("/nothing"); w.Code != 404 {
		t.Errorf("a page that is none: %d", w.Code)
	}
	elsewhere := regexp.MustCompile(`(?i)(src|href|url\(|import|fetch)[^\n]{0,10}https?:`)
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|dangerously|srcdoc`)
	for name, a := range assets() {
		if found := elsewhere.Find(a.plain); found != nil {
			t.Errorf("%s loads %s", name, found)
		}
		if found := forbidden.Find(a.plain); found != nil {
			t.Errorf("%s has %s: text is put into the page as text nodes alone", name, found)
		}
	}
}

func TestConsole_AssetsAreSmallAndSentOnce(t *testing.T) {
	c, _ := consoleOf(t, Config{Listen: local}, streaming, tools())
	sum := 0
	for _, name := range []string{"index.html", "console.js", "console.css", "icon.svg"} {
		c.header = map[string]string{"Accept-Encoding": "br, gzip"}
		w := c.get("/assets/" + name)
		sum += w.Body.Len()
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		packed, _ := io.ReadAll(z)
		c.header = map[string]string{"Accept-Encoding": "gzip;q=0"}
		if plain := c.get("/assets/" + name); !bytes.Equal(plain.Body.Bytes(), packed) || plain.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: packed and plain differ", name)
		}
		c.header = map[string]string{"If-None-Match": w.Header().Get("ETag")}
		if again := c.get("/assets/" + name); again.Code != 304 || again.Body.Len() != 0 {
			t.Errorf("%s is sent again: %d", name, again.Code)
		}
	}
	if sum > 90<<10 {
		t.Errorf("the page takes %d bytes", sum)
	}
	c.header = nil
	if w := c.get("/assets/nothing.js"); w.Code != 404 {
		t.Errorf("an asset that is none: %d", w.Code)
	}
}

// What a page may ask, by who asks: nobody on loopback, without the token, and with it.
func TestConsole_WhoMaySeeWhat(t *testing.T) {
	for _, tt := range []struct {
		method, path                 string
		loopback, without, anybodyOf int // with the token it is as on loopback; anybodyOf: no token, and the network may ask
	}{
		{"GET", "/", 200, 401, 200},
		{"GET", "/login", 200, 200, 200},
		{"GET", "/assets/console.js", 200, 200, 200},
		{"GET", "/api/v1/openapi.json", 200, 200, 200},
		{"GET", "/api/v1/console", 200, 200, 200},
		{"GET", "/api/v1/status", 200, 401, 200},
		{"GET", "/api/v1/history", 200, 401, 200},
		{"GET", "/api/v1/obstacle", 200, 401, 200},
		{"GET", "/api/v1/runbook/slot_lost", 200, 401, 200},
		{"GET", "/api/v1/tables", 200, 401, 200},
		{"GET", "/api/v1/tables/public.outbox/explain", 200, 401, 403},
		{"GET", "/api/v1/check", 200, 401, 403},
		{"POST", "/api/v1/check", 200, 401, 403},
		{"GET", "/api/v1/configuration", 200, 401, 403},
		{"GET", "/api/v1/log", 200, 401, 403},
		{"POST", "/api/v1/status", 405, 405, 405},
		{"DELETE", "/api/v1/check", 405, 405, 405},
		{"PUT", "/", 405, 405, 405},
		{"POST", "/blocked", 405, 405, 405},
	} {
		body := ""
		if tt.method == "POST" {
			body = "{}"
		}
		for who, of := range map[string]struct {
			cfg    Config
			bearer string
			want   int
		}{
			"loopback":          {Config{Listen: local}, "", tt.loopback},
			"without the token": {withToken(), "", tt.without},
			"a wrong token":     {withToken(), "Bearer wrong", tt.without},
			"with the token":    {withToken(), "Bearer sesame", tt.loopback},
			"the network":       {Config{Listen: ":8080"}, "", tt.anybodyOf},
		} {
			c, _ := consoleOf(t, of.cfg, streaming, tools())
			if of.bearer != "" {
				c.header = map[string]string{"Authorization": of.bearer}
			}
			if w := c.ask(tt.method, tt.path, body); w.Code != of.want {
				t.Errorf("%s, %s %s: %d, want %d: %.200s", who, tt.method, tt.path, w.Code, of.want, w.Body)
			}
		}
	}
}

func TestConsole_OffIsNotThere(t *testing.T) {
	c := &client{t: t, handler: HandlerWithConsole(Config{Listen: local}, streaming, http.HandlerFunc(metricsStub), nil)}
	for _, path := range []string{"/", "/blocked", "/assets/console.js", "/api/v1/history", "/api/v1/log"} {
		if w := c.get(path); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := c.ask("POST", "/login", "{}"); w.Code != 405 {
		t.Errorf("POST /login: %d", w.Code)
	}
}

func TestConsole_AnswersNoForeignNameOnLoopback(t *testing.T) {
	for _, path := range []string{"/", "/login", "/assets/console.js", "/api/v1/console", "/api/v1/history", "/api/v1/log", "/api/v1/openapi.json"} {
		c, _ := consoleOf(t, Config{Listen: local, Hosts: []string{"relay.example"}}, streaming, tools())
		for host, want := range map[string]int{"evil.example": 421, "127.0.0.1:8080": 200, "localhost:8080": 200, "[::1]:8080": 200, "relay.example": 200} {
			c.header = map[string]string{"Host": host}
			if w := c.get(path); w.Code != want {
				t.Errorf("%s asked as %s: %d, want %d", path, host, w.Code, want)
			}
		}
	}
}

func TestConsole_TakesNothingThatAnotherOriginSends(t *testing.T) {
	for name, tt := range map[string]struct {
		header map[string]string
		body   string
		want   int
		reason string
	}{
		"a script":           {nil, "{}", 200, ""},
		"our page":           {map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8080"}, "{}", 200, ""},
		"another page":       {map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"}, "{}", 403, "foreign_origin"},
		"an old browser":     {map[string]string{"Origin": "http://evil.example"}, "{}", 403, "foreign_origin"},
		"a page of our site": {map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:9090"}, "{}", 403, "foreign_origin"},
		"a form":             {map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, "a=b", 415, "content_type"},
		"text":               {map[string]string{"Content-Type": "text/plain"}, "{}", 415, "content_type"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := consoleOf(t, Config{Listen: local}, streaming, tools())
			c.header = tt.header
			w := c.ask("POST", "/api/v1/check", tt.body)
			if w.Code != tt.want {
				t.Errorf("%d: %s", w.Code, w.Body)
			}
			if tt.reason != "" && reasonOf(t, w) != tt.reason {
				t.Errorf("reason: %s", w.Body)
			}
		})
	}
}
