package admin

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/history"
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

func TestLogin_IsASessionUntilTheTokenChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := "sesame"
		c, _ := consoleOf(t, Config{Listen: local, Token: func() (string, error) { return token, nil }}, streaming, tools())
		c.header = map[string]string{"Accept": "text/html"}
		if w := c.get("/blocked"); w.Code != 303 || w.Header().Get("Location") != "/login?next=blocked" {
			t.Errorf("a browser that is not signed in: %d %s", w.Code, w.Header())
		}
		begin := func() {
			t.Helper()
			if w := c.ask("POST", "/login", `{"token": "sesame"}`); w.Code != 204 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		begin()
		cookie := c.cookies[0]
		if cookie.Name != plainCookie || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Secure || len(cookie.Value) < 43 || strings.Contains(cookie.String(), "sesame") {
			t.Errorf("%s", cookie)
		}
		if w := c.get("/api/v1/log"); w.Code != 200 {
			t.Errorf("signed in: %d", w.Code)
		}
		pass(sessionIdle - time.Minute)
		if w := c.get("/"); w.Code != 200 {
			t.Errorf("after 59 minutes: %d", w.Code)
		}
		pass(sessionIdle + time.Minute)
		if w := c.get("/api/v1/log"); w.Code != 401 {
			t.Errorf("after an idle hour: %d", w.Code)
		}
		begin()
		for range 13 {
			pass(sessionLasts / 13)
			c.get("/api/v1/log")
		}
		pass(time.Minute)
		if w := c.get("/api/v1/log"); w.Code != 401 {
			t.Errorf("after twelve hours: %d", w.Code)
		}
		begin()
		token = "another"
		if w := c.get("/api/v1/log"); w.Code != 401 {
			t.Errorf("with a rotated token: %d", w.Code)
		}
		token = "sesame"
		if w := c.get("/api/v1/log"); w.Code != 401 {
			t.Errorf("the session is back with the old token: %d", w.Code)
		}
		begin()
		before := c.cookies
		if w := c.ask("POST", "/logout", "{}"); w.Code != 204 || c.cookies[0].MaxAge != -1 {
			t.Errorf("%d %v", w.Code, c.cookies)
		}
		c.cookies = before
		if w := c.get("/api/v1/log"); w.Code != 401 {
			t.Errorf("signed out: %d", w.Code)
		}
	})
}

func TestLogin_OverTLSTheCookieStaysThere(t *testing.T) {
	c, _ := consoleOf(t, withToken(), streaming, tools())
	c.header = map[string]string{"X-Forwarded-Proto": "https"}
	if w := c.ask("POST", "/login", `{"token": "sesame"}`); w.Code != 204 || c.cookies[0].Name != secureCookie || !c.cookies[0].Secure {
		t.Errorf("%d %v", w.Code, c.cookies)
	}
	if w := c.get("/api/v1/log"); w.Code != 200 {
		t.Errorf("signed in: %d", w.Code)
	}
}

func TestLogin_WhatIsGivenWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg    Config
		body   string
		code   int
		reason string
	}{
		"a wrong token":         {withToken(), `{"token": "x"}`, 401, "wrong_token"},
		"no token":              {withToken(), `{}`, 401, "wrong_token"},
		"no JSON":               {withToken(), `token=x`, 400, "malformed"},
		"too much":              {withToken(), `{"token": "` + strings.Repeat("x", 20<<10) + `"}`, 400, "malformed"},
		"an empty token":        {Config{Listen: local, Token: func() (string, error) { return "", nil }}, `{"token": ""}`, 401, "wrong_token"},
		"an unreadable token":   {Config{Listen: local, Token: func() (string, error) { return "", errors.New("open /run/x") }}, `{"token": ""}`, 503, "token_unreadable"},
		"there is none to give": {Config{Listen: local}, `{"token": ""}`, 404, "no_token"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := consoleOf(t, tt.cfg, streaming, tools())
			w := c.ask("POST", "/login", tt.body)
			if w.Code != tt.code || reasonOf(t, w) != tt.reason || strings.Contains(w.Body.String(), "/run/x") || len(c.cookies) != 0 {
				t.Errorf("%d %s %v", w.Code, w.Body, c.cookies)
			}
		})
	}
}

func TestLogin_IsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sessions
		now := time.Now()
		for i := range allLoginsPerMinute {
			if wait := s.attempt(now, fmt.Sprint(i/loginsPerMinute)); wait != 0 {
				t.Fatalf("attempt %d waits %s", i, wait)
			}
		}
		if s.attempt(now, "0") == 0 || s.attempt(now, "new") == 0 {
			t.Error("attempts have no limit")
		}
		if wait := s.attempt(now.Add(time.Minute), "0"); wait != 0 || len(s.tries) != 1 {
			t.Errorf("a minute later: %s, %d addresses are remembered", wait, len(s.tries))
		}
		for i := range 2 * maxSessions {
			s.begin(now.Add(time.Duration(i)*time.Second), digest{})
		}
		if len(s.byID) > maxSessions {
			t.Errorf("%d sessions", len(s.byID))
		}
	})
	c, _ := consoleOf(t, withToken(), streaming, tools())
	for range loginsPerMinute {
		c.ask("POST", "/login", `{"token": "x"}`)
	}
	if w := c.ask("POST", "/login", `{"token": "sesame"}`); w.Code != 429 || w.Header().Get("Retry-After") == "" || reasonOf(t, w) != "too_many_attempts" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAPI_BadInputSaysWhatIsAllowed(t *testing.T) {
	c, _ := consoleOf(t, Config{Listen: local}, streaming, tools())
	for path, tt := range map[string]struct {
		code    int
		reason  string
		allowed string
	}{
		"/api/v1/history?series=lag_seconds,nothing": {400, "unknown_series", "lag_seconds"},
		"/api/v1/history?series=":                    {400, "unknown_series", "lag_seconds"},
		"/api/v1/history?step=5s":                    {400, "unknown_step", "1s, 10s"},
		"/api/v1/history?since=yesterday":            {400, "unknown_time", "2030"},
		"/api/v1/history?since=0001-01-01T00:00:00Z": {400, "unknown_time", "2030"},
		"/api/v1/stream?kinds=status,rows":           {400, "unknown_kind", "charts"},
		"/api/v1/stream?kinds=":                      {400, "unknown_kind", "charts"},
		"/api/v1/runbook/nothing":                    {404, "unknown_reason", "runbook"},
		"/api/v1/runbook/%3Cscript%3E":               {404, "unknown_reason", "runbook"},
		"/api/v1/tables/public.other/explain":        {404, "unknown_table", "public.outbox"},
		"/api/v1/log?after=-1":                       {400, "unknown_cursor", "number"},
		"/api/v1/log?after=x":                        {400, "unknown_cursor", "number"},
		"/api/v1/log?level=loud":                     {400, "unknown_level", "warn"},
	} {
		w := c.get(path)
		if w.Code != tt.code || reasonOf(t, w) != tt.reason || !strings.Contains(w.Body.String(), tt.allowed) || strings.Contains(w.Body.String(), "<script>") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	bare, _ := consoleOf(t, Config{Listen: local}, streaming, Tools{Tables: []string{"public.outbox"}})
	for path, reason := range map[string]string{"/api/v1/configuration": "no_configuration", "/api/v1/tables/public.outbox/explain": "no_explain"} {
		if w := bare.get(path); w.Code != 404 || reasonOf(t, w) != reason {
			t.Errorf("%s without it: %d %s", path, w.Code, w.Body)
		}
	}
	if w := bare.ask("POST", "/api/v1/check", "{}"); w.Code != 404 {
		t.Errorf("check without it: %d", w.Code)
	}
	if w := bare.get("/api/v1/log"); w.Code != 200 || w.Body.String() != "{\"lines\":[]}\n" {
		t.Errorf("an empty log: %d %s", w.Code, w.Body)
	}
	none := &client{t: t, handler: HandlerWithConsole(Config{Listen: local}, streaming, nil, NewConsole(streaming, Tools{}, 0))}
	if w := none.get("/api/v1/history"); w.Code != 404 || reasonOf(t, w) != "no_history" {
		t.Errorf("history that is not kept: %d %s", w.Code, w.Body)
	}
}

func TestCheck_RunsOnceAtATimeAndNotTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of, blocking := tools(), make(chan struct{})
		of.Check = func(ctx context.Context) (any, error) {
			select {
			case <-blocking:
				return map[string]int{"ok": 3}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		c, _ := consoleOf(t, Config{Listen: local}, streaming, of)
		if w := c.get("/api/v1/check"); w.Code != 200 || w.Body.String() != "{\"at\":null,\"report\":null}\n" {
			t.Errorf("before the first: %s", w.Body)
		}
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- c.ask("POST", "/api/v1/check", "{}") }()
		synctest.Wait()
		if w := c.ask("POST", "/api/v1/check", "{}"); w.Code != 409 || reasonOf(t, w) != "running" {
			t.Errorf("a second one: %d %s", w.Code, w.Body)
		}
		close(blocking)
		if w := <-first; w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := c.ask("POST", "/api/v1/check", "{}"); w.Code != 429 || w.Header().Get("Retry-After") != "31" {
			t.Errorf("at once again: %d %s", w.Code, w.Header())
		}
		if w := c.get("/api/v1/check"); !strings.Contains(w.Body.String(), `"report":{"ok":3}`) {
			t.Errorf("the last one: %s", w.Body)
		}
		pass(checkPause)
		blocking = make(chan struct{}) // servers that do not answer
		if w := c.ask("POST", "/api/v1/check", "{}"); w.Code != 503 || reasonOf(t, w) != "not_answered" {
			t.Errorf("servers that do not answer: %d %s", w.Code, w.Body)
		}
	})
}

func TestObstacle_HasRunbookAndWays(t *testing.T) {
	at := blocked()
	at.Obstacle = &status.Obstacle{Reason: "unknown_topic", Slot: "cdc_relay", Row: &status.BlockedRow{Table: "public.outbox", Commit: 0x16_B374D848, Number: 1, Topic: "orders"}}
	c, _ := consoleOf(t, Config{Listen: local}, func() status.Status { return at }, tools())
	var got struct {
		Obstacle *status.Obstacle
		Entry    struct{ Means []map[string]any }
		Ways     []ways.Way
	}
	if err := json.Unmarshal(c.get("/api/v1/obstacle").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Obstacle.Row.Topic != "orders" || len(got.Entry.Means) == 0 || len(got.Ways) < 2 || got.Ways[0].Shell != "kafka-topics.sh --bootstrap-server b1:9092 --create --topic orders --partitions 12" {
		t.Errorf("%+v", got)
	}
	if w := c.get("/api/v1/runbook/record_too_large"); !strings.Contains(w.Body.String(), "max.message.bytes=BYTES") || strings.Contains(w.Body.String(), "16/B374D849") {
		t.Errorf("an entry of another matter has the row of this one: %s", w.Body)
	}
	calm, _ := consoleOf(t, Config{Listen: local}, streaming, tools())
	if w := calm.get("/api/v1/obstacle"); !strings.Contains(w.Body.String(), `"obstacle":null,"entry":null,"heals_by_itself":false,"ways":[]`) {
		t.Errorf("while all is well: %s", w.Body)
	}
}

// Beside the size of a record that a topic refused stands what the topic takes. The brokers are asked once in a
// while, and not at all about anything else.
func TestObstacle_HasTheLimitOfTheTopic(t *testing.T) {
	st, asked := blocked(), 0
	st.Obstacle = &status.Obstacle{Reason: "record_too_large", Row: &status.BlockedRow{Table: "public.outbox", Topic: "orders", Bytes: 2000}}
	of := tools()
	failing := false
	of.TopicLimit = func(_ context.Context, topic string) (int, error) {
		asked++
		if failing || topic != "orders" {
			return 0, errors.New("not authorized")
		}
		return 1000, nil
	}
	c, console := consoleOf(t, Config{Listen: local}, func() status.Status { return st }, of)
	limit := func() any {
		var got map[string]any
		if err := json.Unmarshal(c.get("/api/v1/obstacle").Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		return got["topic_limit"]
	}
	if got, again := limit(), limit(); got != 1000.0 || again != 1000.0 || asked != 1 {
		t.Errorf("%v, again %v, asked %d times", got, again, asked)
	}
	failing, console.limit.at = true, time.Now().Add(-limitFresh)
	if got, again := limit(), limit(); got != nil || again != nil || asked != 2 {
		t.Errorf("where the brokers do not say: %v, again %v, asked %d times", got, again, asked)
	}
	console.limit = topicLimit{}
	for name, change := range map[string]func(*status.Obstacle){
		"another reason":     func(o *status.Obstacle) { o.Reason = "unknown_topic" },
		"the relay's limit":  func(o *status.Obstacle) { o.Row.Limit = 5 },
		"no topic":           func(o *status.Obstacle) { o.Row.Topic = "" },
		"a row without name": func(o *status.Obstacle) { o.Row = nil },
	} {
		o, row := *st.Obstacle, *st.Obstacle.Row
		o.Row = &row
		change(&o)
		if got := console.topicLimit(t.Context(), time.Now(), &o); got != nil || asked != 2 {
			t.Errorf("%s: %v, asked %d times", name, got, asked)
		}
	}
}

func TestSample_IsWhatTheStatusSays(t *testing.T) {
	st := streaming()
	seen := uint64(0)
	of := tools()
	of.Timings = func() (ages, produce history.Buckets) {
		seen += 100
		b := history.Buckets{Upper: []float64{1, 2}, Counts: []uint64{seen / 2, seen}, Total: seen}
		return b, b
	}
	c, console := consoleOf(t, Config{Listen: local}, func() status.Status { return st }, of)
	begin := time.Now().Add(-10 * time.Second).Truncate(time.Second)
	lag := 2.5
	for s := range 3 {
		st.RowsRead, st.EventsPublished, st.LagSeconds = int64(s*500), int64(s*400), &lag
		if s == 2 {
			st.State, st.Reason = status.Blocked, "unknown_topic"
		}
		console.Sample(begin.Add(time.Duration(s) * time.Second))
	}
	w := c.get("/api/v1/history?step=1s&series=received,acknowledged,lag_seconds,age_p50,safe_bytes,state&since=" + begin.UTC().Format(time.RFC3339))
	var got struct {
		From    time.Time
		Series  map[string][]*float64
		States  []string
		Changes []Change
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	text := func(name string) (all []string) {
		for _, v := range got.Series[name][:4] {
			if v == nil {
				all = append(all, "-")
			} else {
				all = append(all, fmt.Sprint(*v))
			}
		}
		return all
	}
	for name, want := range map[string]string{
		"received": "[- 500 500 -]", "acknowledged": "[- 400 400 -]", "lag_seconds": "[2.5 2.5 2.5 -]", "age_p50": "[- 1 1 -]", "safe_bytes": "[- - - -]", "state": "[1 1 4 -]",
	} {
		if s := fmt.Sprint(text(name)); s != want {
			t.Errorf("%s: %s, want %s", name, s, want)
		}
	}
	if !got.From.Equal(begin) || got.States[4] != "blocked" || len(got.Changes) != 2 || got.Changes[1].Reason != "unknown_topic" {
		t.Errorf("%+v", got)
	}
}

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

// What is posted to is not there for reading, and says so.
func TestAPI_PathsThatArePostedToAreNotRead(t *testing.T) {
	c, _ := consoleOf(t, Config{Listen: local}, streaming, tools())
	for _, path := range []string{"/api/v1/retry", "/api/v1/dead-letters/plans", "/api/v1/dead-letters/plans/1/redrive", "/logout"} {
		if w := c.get(path); w.Code != 405 || w.Header().Get("Allow") != "POST" || reasonOf(t, w) != "only_post" {
			t.Errorf("%s: %d %s %s", path, w.Code, w.Header(), w.Body)
		}
	}
	guarded, _ := consoleOf(t, withToken(), streaming, tools())
	if w := guarded.get("/api/v1/retry"); w.Code != 401 {
		t.Errorf("without a token: %d %s", w.Code, w.Body)
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

// The description and the routes say the same, in both directions.
func TestOpenAPI_IsWhatIsServed(t *testing.T) {
	c, console := consoleOf(t, Config{Listen: local}, streaming, tools())
	var doc struct {
		Paths map[string]map[string]struct {
			Security  *[]any
			Responses map[string]any
		}
	}
	w := c.get("/api/v1/openapi.json")
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%v: %s", err, w.Header())
	}
	a := &api{console: console}
	served := []string{"GET /api/v1/status"}
	for _, r := range a.routes() {
		served = append(served, r.method+" "+r.path)
		if described := doc.Paths[r.path][strings.ToLower(r.method)]; (described.Security != nil) != r.open {
			t.Errorf("%s %s is open: %t, and the description says otherwise", r.method, r.path, r.open)
		}
	}
	var described []string
	for path, of := range doc.Paths {
		for method := range of {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(described)
	if !slices.Equal(served, described) {
		t.Errorf("served\n%s\ndescribed\n%s", strings.Join(served, "\n"), strings.Join(described, "\n"))
	}
	for _, name := range history.Names() {
		if !bytes.Contains(w.Body.Bytes(), []byte(name)) {
			t.Errorf("series %s is not described", name)
		}
	}
}

// A page has the hour of each table, and a name that attacks is a text in it.
func TestFlows_AreKeptOfTablesTopicsAndShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hostile = "a\"b</script>\u2028"
		rate := 0.0
		c, console := consoleOf(t, Config{Listen: local}, func() status.Status {
			s := streaming()
			s.Tables, s.TopicRates = []status.Flow{{Name: hostile, PerSecond: rate}}, []status.Flow{{Name: "orders", PerSecond: 2}}
			s.Shards = []status.Status{{Slot: "s0", LagBytes: 5, LSN: status.LSNs{Server: 9}}, {Slot: "s1"}}
			return s
		}, tools())
		for range 25 {
			console.Sample(time.Now())
			rate++
			pass(time.Second)
		}
		for of, want := range map[string]map[string]string{
			"tables": {hostile: "[0 10 20]"}, "topics": {"orders": "[2 2 2]"}, "shards": {"s0": "[5 5 5]"},
		} {
			var got struct {
				Step   int `json:"step_seconds"`
				Series map[string][]float64
			}
			w := c.get("/api/v1/history/flows?of=" + of)
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got.Step != 10 || len(got.Series) != len(want) {
				t.Fatalf("%s: %d %s", of, w.Code, w.Body)
			}
			for name, numbers := range want {
				if fmt.Sprint(got.Series[name]) != numbers {
					t.Errorf("%s: %v, want %s", of, got.Series, numbers)
				}
			}
		}
		for query, code := range map[string]int{"": 200, "?of=": 400, "?of=x": 400} {
			if w := c.get("/api/v1/history/flows" + query); w.Code != code || code == 400 && !strings.Contains(w.Body.String(), "tables, topics, shards") {
				t.Errorf("%q: %d %s", query, w.Code, w.Body)
			}
		}
		without := NewConsole(streaming, tools(), 0)
		without.Sample(time.Now())
		off := &client{t: t, handler: HandlerWithConsole(Config{Listen: local}, streaming, http.HandlerFunc(metricsStub), without)}
		if w := off.get("/api/v1/history/flows?of=tables"); w.Code != 404 || reasonOf(t, w) != "no_history" {
			t.Errorf("without a history: %d %s", w.Code, w.Body)
		}
	})
}
