package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
