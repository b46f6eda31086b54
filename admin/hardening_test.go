package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// pipes is a listener without a network, so that its deadlines are of virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.closed:
		return net.ErrClosed
	default:
		close(p.closed)
		return nil
	}
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9465} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// served runs what Listen gives on pipes, in a bubble.
func served(t *testing.T, handler http.Handler, use func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- (&Server{listener: p, log: zerolog.Nop()}).Serve(ctx, handler) }()
		use(t, p.dial)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// lives is how long a connection is kept, and what was read from it.
func lives(t *testing.T, c net.Conn, began time.Time) (time.Duration, string) {
	t.Helper()
	text, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("read: %v", err)
	}
	c.Close()
	return time.Since(began), string(text)
}

func whole() http.Handler {
	return Handler(Config{}, streaming, http.HandlerFunc(metricsStub))
}

// Whoever sends the header of a request too slowly is dropped, however it trickles.
func TestServe_DropsASlowHeader(t *testing.T) {
	for name, pause := range map[string]time.Duration{"that stops": time.Hour, "that trickles": time.Second} {
		t.Run(name, func(t *testing.T) {
			served(t, whole(), func(t *testing.T, dial func() net.Conn) {
				began, c, done := time.Now(), dial(), make(chan struct{})
				defer close(done)
				go func() {
					for _, part := range append([]string{"GET /livez HTTP/1.1\r\n", "Host: x\r\n"}, slices.Repeat([]string{"X: y\r\n"}, 60)...) {
						if _, err := io.WriteString(c, part); err != nil {
							return
						}
						select {
						case <-time.After(pause):
						case <-done:
							return
						}
					}
				}()
				if took, text := lives(t, c, began); took != 5*time.Second || text != "" {
					t.Errorf("dropped after %s with %q, want 5s and nothing", took, text)
				}
			})
		})
	}
}

func TestServe_DropsWhoDoesNotRead(t *testing.T) {
	large := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
	var ended chan time.Duration // of the bubble
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		Handler(Config{}, streaming, large).ServeHTTP(w, r)
		ended <- time.Since(began)
	})
	served(t, handler, func(t *testing.T, dial func() net.Conn) {
		ended = make(chan time.Duration, 1)
		c := dial()
		defer c.Close()
		if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if took := <-ended; took != 30*time.Second {
			t.Errorf("the answer was given up after %s, want 30s", took)
		}
	})
}

func TestServe_DropsAnIdleConnection(t *testing.T) {
	served(t, whole(), func(t *testing.T, dial func() net.Conn) {
		began, c := time.Now(), dial()
		if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if took, text := lives(t, c, began); took != 2*time.Minute || !strings.Contains(text, "200 OK") {
			t.Errorf("closed after %s with %q, want 2m and an answer", took, text)
		}
	})
}

// net/http allows 4 KiB beside the limit.
func TestServe_RefusesAnOversizedHeader(t *testing.T) {
	for size, code := range map[int]int{1 << 10: 200, 15 << 10: 200, 21 << 10: 431, 1 << 20: 431} {
		for name, request := range map[string]string{
			"one line":   "X: " + strings.Repeat("x", size),
			"many lines": strings.TrimSuffix(strings.Repeat("X: "+strings.Repeat("y", 59)+"\r\n", size/64), "\r\n"),
			"a path":     "",
		} {
			t.Run(fmt.Sprintf("%s of %d", name, size), func(t *testing.T) {
				path := "/livez"
				if request == "" {
					path, request = "/livez?"+strings.Repeat("x", size), "X: y"
				}
				served(t, whole(), func(t *testing.T, dial func() net.Conn) {
					c := dial()
					go func() { _, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n"+request+"\r\n\r\n") }()
					res, err := http.ReadResponse(bufio.NewReader(c), nil)
					if err != nil {
						t.Fatal(err)
					}
					if res.StatusCode != code {
						t.Errorf("%d, want %d", res.StatusCode, code)
					}
					c.Close()
				})
			})
		}
	}
}

func TestServe_ReadsNoBody(t *testing.T) {
	served(t, whole(), func(t *testing.T, dial func() net.Conn) {
		began, c := time.Now(), dial()
		go func() {
			_, _ = io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx")
		}()
		if took, text := lives(t, c, began); took > 11*time.Second || !strings.Contains(text, "200 OK") {
			t.Errorf("held for %s: %q", took, text)
		}
	})
}

// endpoints are every path, and one that is not there.
var endpoints = []string{"/livez", "/healthz", "/readyz", "/startupz", "/metrics", "/api/v1/status", "/", "/none"}

func TestHandler_EveryAnswerHasTheSecurityHeaders(t *testing.T) {
	token := func(text string, err error) Config { return Config{Token: func() (string, error) { return text, err }} }
	for name, cfg := range map[string]Config{"no token": {}, "a token": token("sesame", nil), "an unreadable token": token("", errors.New("no such file"))} {
		for _, path := range endpoints {
			for _, method := range []string{"GET", "HEAD", "POST", "TRACE"} {
				for _, status := range []string{"well", "blocked"} {
					s := streaming()
					if status == "blocked" {
						s = blocked()
					}
					w := ask(t, cfg, s, method, path)
					for key, want := range map[string]string{
						"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
						"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
					} {
						if got := w.Header().Values(key); len(got) != 1 || got[0] != want {
							t.Errorf("%s, %s %s, %s: %d with %s %q", name, method, path, status, w.Code, key, got)
						}
					}
					if reads := method == "GET" || method == "HEAD"; (w.Code == http.StatusMethodNotAllowed) == reads {
						t.Errorf("%s %s: %d", method, path, w.Code)
					}
				}
			}
		}
	}
}

func TestToken_IsComparedAsAWhole(t *testing.T) {
	const token = "sesame-opens-0123456789"
	cfg := Config{Token: func() (string, error) { return token, nil }}
	long := strings.Repeat(token, 500) // a header may have as much
	for header, code := range map[string]int{
		"":                                 401, // missing
		"Bearer":                           401,
		"Bearer ":                          401,
		"Bearer sesame-opens-012345678X":   401, // of its length
		"Bearer Xesame-opens-0123456789":   401,
		"Bearer " + strings.ToUpper(token): 401,
		"Bearer " + token[:len(token)-1]:   401, // shorter
		"Bearer " + token[:1]:              401,
		"Bearer " + token + "0":            401, // longer
		"Bearer " + token + "\x00":         401,
		"Bearer " + long:                   401,
		"Bearer " + token + " " + token:    401,
		"Basic " + token:                   401,
		"Digest " + token:                  401,
		token:                              401,
		"Bearer " + token:                  200,
		"bearer " + token:                  200, // schemes have no case
		"Bearer   " + token + " ":          200,
	} {
		for _, path := range []string{"/metrics", "/api/v1/status", "/", "/none"} {
			want := code
			if code == 200 && (path == "/" || path == "/none") {
				want = 404
			}
			w := ask(t, cfg, streaming(), "GET", path, "Authorization", header)
			if w.Code != want || (w.Header().Get("WWW-Authenticate") != "") != (code == 401) {
				t.Errorf("GET %s with %.60q = %d, want %d", path, header, w.Code, want)
			}
			if strings.Contains(w.Body.String(), token) {
				t.Errorf("GET %s with %.60q tells the token", path, header)
			}
		}
	}
}
