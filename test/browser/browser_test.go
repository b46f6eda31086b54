//go:build tools

// Package browser walks through the console in a browser. It is never shipped.
package browser

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const secret = "the token of a test"

// tools finds the browser, node and the modules; without them the test is skipped, with a line
// that says what to install.
func tools(t *testing.T) (chromium, node, modules string) {
	t.Helper()
	if testing.Short() {
		t.Skip("journeys take a minute")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			chromium = cmp.Or(chromium, path)
		}
	}
	node, _ = exec.LookPath("node")
	modules, _ = filepath.Abs("../../.bin/browser")
	_, err := os.Stat(filepath.Join(modules, "node_modules", "playwright-core"))
	switch {
	case chromium == "":
		harness.Missing(t, "chromium", exec.ErrNotFound, "install it (apt-get install chromium)")
	case node == "":
		harness.Missing(t, "node", exec.ErrNotFound, "install it (apt-get install nodejs npm)")
	case err != nil:
		harness.Missing(t, "playwright-core", err, "run make browser, which installs it below .bin")
	}
	return chromium, node, modules
}

// pictured has letters without names that attack.
func pictured(t *testing.T) string {
	p := serveAs(t, setAside(), staffed)
	p.box.letters = p.box.letters[:3]
	p.box.letters[2].Topic = "invoice-events"
	return p.url
}

func setAside() status.Status {
	s := healthy()
	s.DeadLetters, s.EventsRejected, s.ParkedKeys = 4, 4, 1
	return s
}

// moving is a console that a journey changes, kills and starts again.
type moving struct {
	mu      sync.Mutex
	page    *page
	address string
	stop    func()
}

func (m *moving) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", cmp.Or(m.address, "127.0.0.1:0"))
	if err != nil {
		t.Error(err)
		return
	}
	m.address = listener.Addr().String()
	ctx, end := context.WithCancel(context.Background())
	server := &http.Server{
		Handler:     admin.HandlerWithConsole(admin.Config{Listen: m.address}, m.page.show, http.NotFoundHandler(), m.page.console),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	m.stop = func() { end(); _ = server.Close(); <-done }
}

func (m *moving) control(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch r.URL.Path {
		case "/away":
			m.page.set(func(s *status.Status) {
				s.State, s.Reason, s.Since, s.ReasonSince = status.Reconnecting, "network", time.Now(), time.Now()
				s.Obstacle = &status.Obstacle{Reason: "network", Slot: s.Slot, Since: time.Now()}
			})
		case "/back":
			m.page.set(func(s *status.Status) { s.State, s.Reason, s.Obstacle = status.Streaming, "", nil })
		case "/kill":
			m.stop()
		case "/start":
			m.start(t)
		case "/line":
			m.page.log.Info().Msg("a line of later")
		}
	})
}

func TestBrowser_Journeys(t *testing.T) {
	chromium, node, modules := tools(t)
	m := &moving{page: serve(t, healthy(), "")}
	m.start(t)
	t.Cleanup(func() { m.stop() })
	control := httptest.NewServer(m.control(t))
	t.Cleanup(control.Close)
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<!doctype html><title>foreign</title><link rel=icon href='data:,'><p>foreign"))
		}
	}))
	t.Cleanup(foreign.Close)
	given, err := json.Marshal(map[string]any{
		"chromium": chromium, "modules": modules, "secret": secret, "control": control.URL, "foreign": foreign.URL, "moving": "http://" + m.address,
		"streaming": serve(t, healthy(), "").url, "draining": serve(t, draining(), "").url, "blocked": serve(t, blockedAtRow(), "").url,
		"hostile": serve(t, hostileNames(), "").url, "still": serve(t, standsStill(), "").url, "short": serve(t, runsShort(), "").url, "gone": serve(t, slotGone(), "").url, "sharded": serve(t, sharded(), "").url, "token": serve(t, healthy(), secret).url,
		"pictured": pictured(t), "letters": serve(t, setAside(), "").url, "operated": serveAs(t, setAside(), staffed).url, "redriven": serveAs(t, setAside(), staffed).url,
		"discarded": serveAs(t, setAside(), staffed).url, "stuck": serveAs(t, blockedAtRow(), staffed).url, "operatorSecret": operatorSecret, "rowSecret": rowSecret,
		"shots": os.Getenv("BROWSER_SHOTS"), "only": os.Getenv("BROWSER_ONLY"), "but": os.Getenv("BROWSER_BUT"), "all": os.Getenv("BROWSER_ALL") != "", "patient": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, node, "journeys.mjs")
	command.Env = append(os.Environ(), "BROWSER_GIVEN="+string(given))
	out, err := command.CombinedOutput()
	walked := 0
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		if name, failed := strings.CutPrefix(lines.Text(), "FAIL "); failed {
			t.Error(name)
		} else if strings.HasPrefix(lines.Text(), "ok ") {
			walked++
			t.Log(lines.Text())
		} else {
			t.Log(lines.Text())
		}
	}
	if err != nil && !t.Failed() {
		t.Errorf("the journeys ended: %v", err)
	}
	if walked == 0 && os.Getenv("BROWSER_ONLY") != "-" {
		t.Error("no journey was walked to its end")
	}
}
