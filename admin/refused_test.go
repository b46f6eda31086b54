package admin

import (
	"bytes"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// place fills the parts of a path.
var place = strings.NewReplacer("{id}", "x", "{partition}", "3", "{offset}", "17", "{table}", "public.outbox", "{reason}", "slot_lost")

// bodyOf is what a route is sent.
func bodyOf(method string) string {
	if method == "POST" {
		return "{}"
	}
	return ""
}

// A page whose name leads to loopback reads nothing and changes nothing, whichever path it asks for: without a
// token the Host header has to be a name of this server.
func TestRoutes_AnswerNoForeignHost(t *testing.T) {
	cfg := operators()
	cfg.Token = nil
	for _, header := range []map[string]string{{"Host": "evil.example"}, {"Host": "evil.example", "Authorization": "Bearer wrong"}, {"Host": "127.0.0.1.evil.example:8080"}} {
		b := new(box)
		c, console := consoleOf(t, cfg, streaming, b.tools())
		for _, one := range (&api{console: console}).routes() {
			c.header = header
			if w := c.ask(one.method, place.Replace(one.path), bodyOf(one.method)); w.Code != 421 || strings.Contains(w.Body.String(), "outbox") {
				t.Errorf("%s %s of %s: %d %.100s", one.method, one.path, header["Host"], w.Code, w.Body)
			}
		}
		for _, path := range pages {
			if w := c.get(path); w.Code != 421 || strings.Contains(w.Body.String(), "console.js") {
				t.Errorf("page %s of %s: %d", path, header["Host"], w.Code)
			}
		}
	}
}

// Whatever changes something refuses what another origin's page sends, what a form could send, and a body that is
// too large, before it looks at it. A foreign origin is counted, and named once a minute.
func TestRoutes_RefuseWhatAnotherPageSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		of := new(box).tools()
		of.Audit = zerolog.New(&log)
		c, console := consoleOf(t, operators(), streaming, of)
		sent := 0
		for _, one := range (&api{console: console}).routes() {
			if one.method == "GET" {
				continue
			}
			path := place.Replace(one.path)
			for name, tt := range map[string]struct {
				header map[string]string
				body   string
				want   []int
			}{
				"another site": {map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"}, bodyOf(one.method), []int{403}},
				"another port": {map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:9"}, bodyOf(one.method), []int{403}},
				"a sandbox":    {map[string]string{"Origin": "null"}, bodyOf(one.method), []int{403}},
				"a form":       {map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, "a=b", []int{415}},
				"a file":       {map[string]string{"Content-Type": "multipart/form-data; boundary=x"}, "--x--", []int{415}},
				"text":         {map[string]string{"Content-Type": "text/plain"}, "{}", []int{415}},
			} {
				if one.method == "DELETE" && tt.want[0] == 415 {
					continue // has no body
				}
				tt.header["Authorization"] = "Bearer open"
				c.header = tt.header
				w := c.ask(one.method, path, tt.body)
				if w.Code != tt.want[0] {
					t.Errorf("%s %s of %s: %d %.100s", one.method, path, name, w.Code, w.Body)
				}
				if w.Code == 403 {
					sent++
					if reasonOf(t, w) != "foreign_origin" {
						t.Errorf("%s %s of %s: %s", one.method, path, name, w.Body)
					}
				}
			}
		}
		if n := strings.Count(log.String(), "requests to the console were refused"); n != 1 || !strings.Contains(log.String(), `"reason":"foreign_origin"`) {
			t.Errorf("%d lines of %d requests: %s", n, sent, log.String())
		}
		pass(time.Minute)
		c.header = map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example", "Authorization": "Bearer open"}
		c.ask("POST", "/api/v1/retry", "{}")
		if !strings.Contains(log.String(), `"requests":`+strconv.Itoa(sent)) {
			t.Errorf("a minute later: %s, want %d requests", log.String(), sent)
		}
	})
}

// No answer of the console can be put into a frame, be taken for something else, or say to others where it was
// asked for.
func TestRoutes_CannotBeFramed(t *testing.T) {
	b := new(box)
	c, console := consoleOf(t, operators(), streaming, b.tools())
	look := func(method, path string, w *httptest.ResponseRecorder) {
		t.Helper()
		h := w.Header()
		if !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s %s: %d %v", method, path, w.Code, h)
		}
		for name := range h {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s %s lets other origins read: %s", method, path, name)
			}
		}
	}
	for _, header := range []map[string]string{nil, {"Authorization": "Bearer sesame"}, {"Authorization": "Bearer open"}} {
		c.header = header
		for _, one := range (&api{console: console}).routes() {
			if one.path == "/api/v1/stream" || one.path == "/api/v1/tail" {
				continue // they do not end
			}
			look(one.method, one.path, c.ask(one.method, place.Replace(one.path), bodyOf(one.method)))
		}
		for _, path := range pages {
			w := c.get(path)
			look("GET", path, w)
			if got := w.Header().Get("Permissions-Policy"); w.Code == 200 && (w.Header().Get("X-Frame-Options") != "DENY" || !strings.Contains(got, "camera=()")) {
				t.Errorf("page %s: %v", path, w.Header())
			}
		}
	}
}

// Each role at each route: nobody, whoever looks, and operators, with actions on and off.
func TestRoutes_OfEachRole(t *testing.T) {
	for _, actions := range []bool{true, false} {
		cfg := operators()
		cfg.Actions = actions
		for bearer, role := range map[string]role{"wrong": nobody, "sesame": viewer, "open": operator} {
			b := new(box)
			c, console := consoleOf(t, cfg, streaming, b.tools())
			c.header = map[string]string{"Authorization": "Bearer " + bearer}
			for _, one := range (&api{console: console}).routes() {
				if one.path == "/api/v1/stream" || one.path == "/api/v1/tail" || one.path == "/login" {
					continue
				}
				w := c.ask(one.method, place.Replace(one.path), bodyOf(one.method))
				refused := w.Code == 401 || w.Code == 403 || w.Code == 405
				want := map[bool]string{true: "refused", false: "let in"}[!one.open && (role == nobody || one.acts && (role < operator || !actions))]
				if got := map[bool]string{true: "refused", false: "let in"}[refused]; got != want {
					t.Errorf("%s %s of %s, actions %t: %s with %d, want %s: %.100s", one.method, one.path, role, actions, got, w.Code, want, w.Body)
				}
				switch {
				case one.acts && !actions:
					if w.Code != 405 || !strings.Contains(w.Body.String(), "http.console.actions") {
						t.Errorf("%s: %d %s", one.path, w.Code, w.Body)
					}
				case one.acts && role == viewer:
					if w.Code != 403 || reasonOf(t, w) != "operator_needed" {
						t.Errorf("%s: %d %s", one.path, w.Code, w.Body)
					}
				case !one.open && role == nobody:
					if w.Code != 401 {
						t.Errorf("%s: %d %s", one.path, w.Code, w.Body)
					}
				}
			}
		}
	}
}

// Whoever goes on guessing waits longer each time, and whoever signs in has nothing held against the address.
func TestLogin_PausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sessions
		try := func() time.Duration { return s.attempt(time.Now(), "10.0.0.1") }
		for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
			for range loginsPerMinute {
				if wait := try(); wait != 0 {
					t.Fatalf("round %d: an attempt waits %s", i, wait)
				}
			}
			if wait := try(); wait != want {
				t.Errorf("pause %d takes %s, want %s", i, wait, want)
			}
			pass(want / 2)
			if wait := try(); wait != want-want/2 {
				t.Errorf("in the middle of pause %d: %s", i, wait)
			}
			if wait := s.attempt(time.Now(), "10.0.0.2"); wait != 0 {
				t.Errorf("another address waits %s", wait)
			}
			pass(want - want/2)
		}
		s.admitted("10.0.0.1")
		for range loginsPerMinute {
			try()
		}
		if wait := try(); wait != time.Minute {
			t.Errorf("after somebody signed in there: %s", wait)
		}
		pass(time.Minute + pauseKept)
		s.attempt(time.Now(), "10.0.0.3")
		if len(s.pauses) != 0 {
			t.Errorf("%d pauses are remembered", len(s.pauses))
		}
	})
}
