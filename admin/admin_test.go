package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/rs/zerolog"
)

func streaming() status.Status {
	return status.Status{
		State: status.Streaming, Version: "1.0.0", Pipeline: "default", Slot: "cdc_relay",
		LSN:           status.LSNs{Server: 0x16_B374D848, Confirmed: 0x16_B374D840},
		SourceReached: true, SinkReached: true, SourceConnected: true, SinkConnected: true, LastTick: time.Now(),
	}
}

func blocked() status.Status {
	s := streaming()
	s.State, s.Reason, s.Message = status.Blocked, "unknown_topic", "produce to orders-events: topic does not exist: create it"
	s.SinkConnected = false
	return s
}

func metricsStub(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics here") }

func ask(t *testing.T, cfg Config, s status.Status, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	Handler(cfg, func() status.Status { return s }, http.HandlerFunc(metricsStub)).ServeHTTP(w, r)
	return w
}

func TestPaths(t *testing.T) {
	standby, never := streaming(), status.Status{State: status.Reconnecting, Reason: "network"}
	standby.State, standby.SourceConnected = status.Standby, false
	for _, tt := range []struct {
		name   string
		status status.Status
		path   string
		code   int
		body   string
	}{
		{"ready while streaming", streaming(), "/readyz", 200, "ok\n"},
		{"ready while standing by", standby, "/readyz", 200, "ok\n"},
		{"not ready while blocked, with the reason", blocked(), "/readyz", 503, "state: blocked: unknown_topic: produce to orders-events: topic does not exist: create it\n"},
		{"verbose names the checks", blocked(), "/readyz?verbose", 503, "[-] state: blocked: unknown_topic: produce to orders-events: topic does not exist: create it\n[+] postgres ok\n[-] kafka: not connected\nnot ok\n"},
		{"verbose while all is well", streaming(), "/readyz?verbose", 200, "[+] state ok\n[+] postgres ok\n[+] kafka ok\nok\n"},
		{"live whatever the servers do", blocked(), "/livez", 200, "ok\n"},
		{"healthz is livez", blocked(), "/healthz", 200, "ok\n"},
		{"live before the loop began", never, "/livez", 200, "ok\n"},
		{"started once both were reached", blocked(), "/startupz", 200, "ok\n"},
		{"not started", never, "/startupz?verbose", 503, "[+] configuration ok\n[-] postgres: not reached yet: reconnecting: network\n[-] kafka: not reached yet: reconnecting: network\nnot ok\n"},
		{"metrics", streaming(), "/metrics", 200, "metrics here"},
		{"no page yet", streaming(), "/", 404, "404 page not found\n"},
		{"nothing else", streaming(), "/api/v1/config", 404, "404 page not found\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := ask(t, Config{}, tt.status, "GET", tt.path)
			if w.Code != tt.code || w.Body.String() != tt.body {
				t.Errorf("GET %s = %d %q, want %d %q", tt.path, w.Code, w.Body, tt.code, tt.body)
			}
		})
	}
}

func TestLivez_FailsWhenTheLoopStandsStill(t *testing.T) {
	tick := time.Now().Add(time.Hour)
	a := &api{status: func() status.Status { return status.Status{LastTick: tick} }, born: tick.Add(-time.Minute)}
	for after, code := range map[time.Duration]int{29 * time.Second: 200, 31 * time.Second: 503} {
		a.now = func() time.Time { return tick.Add(after) }
		w := httptest.NewRecorder()
		a.live(w, httptest.NewRequest(http.MethodGet, "/livez", nil))
		if w.Code != code {
			t.Errorf("%s after the last turn: %d, want %d", after, w.Code, code)
		}
	}
}

func TestStatus_IsTheSnapshotAsJSON(t *testing.T) {
	w := ask(t, Config{}, streaming(), "GET", "/api/v1/status")
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type = %q", got)
	}
	var back map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if lsn := back["lsn"].(map[string]any)["server"]; lsn != "16/B374D848" {
		t.Errorf("lsn.server = %v, want 16/B374D848", lsn)
	}
	for _, key := range []string{
		"state", "reason", "since", "version", "pipeline", "slot", "publication", "lsn", "lag_bytes", "retained_wal_bytes",
		"lag_seconds", "in_flight_events", "in_flight_bytes", "oldest_unacked_seconds", "events_published_total",
		"events_rejected_total", "dead_letters_total", "reconnects_total", "topics",
	} {
		if _, ok := back[key]; !ok {
			t.Errorf("no %q in the status", key)
		}
	}
	if _, ok := back["topics"].([]any); !ok {
		t.Errorf("topics = %v, want a list", back["topics"])
	}
}

func TestToken_GuardsAllButHealth(t *testing.T) {
	cfg := Config{Token: func() (string, error) { return "sesame", nil }}
	for _, path := range []string{"/metrics", "/api/v1/status", "/"} {
		for _, header := range []string{"", "Bearer wrong", "Bearer ", "Basic sesame", "sesame", "Bearer sesame2"} {
			if w := ask(t, cfg, streaming(), "GET", path, "Authorization", header); w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("GET %s with %q = %d, want 401 and a challenge", path, header, w.Code)
			}
		}
		if w := ask(t, cfg, streaming(), "GET", path, "Authorization", "Bearer sesame"); w.Code == 401 {
			t.Errorf("GET %s with the token = 401", path)
		}
	}
	for _, path := range []string{"/livez", "/healthz", "/readyz", "/startupz"} {
		if w := ask(t, cfg, streaming(), "GET", path); w.Code != 200 {
			t.Errorf("GET %s without a token = %d, want 200", path, w.Code)
		}
	}
}

func TestToken_WithoutItHealthNamesOnlyTheReason(t *testing.T) {
	cfg := Config{Token: func() (string, error) { return "sesame", nil }}
	if body := ask(t, cfg, blocked(), "GET", "/readyz").Body.String(); body != "state: blocked: unknown_topic\n" {
		t.Errorf("without the token: %q", body)
	}
	if body := ask(t, cfg, blocked(), "GET", "/readyz", "Authorization", "Bearer sesame").Body.String(); !strings.Contains(body, "create it") {
		t.Errorf("with the token: %q", body)
	}
}

func TestToken_UnreadableOrEmptyAdmitsNobody(t *testing.T) {
	broken := Config{Token: func() (string, error) { return "", errors.New("open /run/secrets/token: no such file") }}
	w := ask(t, broken, streaming(), "GET", "/metrics", "Authorization", "Bearer ")
	if w.Code != 503 || strings.Contains(w.Body.String(), "/run/secrets") {
		t.Errorf("unreadable token: %d %q, want 503 without the path", w.Code, w.Body)
	}
	empty := Config{Token: func() (string, error) { return "", nil }}
	if w := ask(t, empty, streaming(), "GET", "/metrics", "Authorization", "Bearer "); w.Code != 401 {
		t.Errorf("empty token: %d, want 401", w.Code)
	}
}

func TestHandler_OnlyReads(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		w := ask(t, Config{}, streaming(), method, "/api/v1/status")
		if w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s = %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
	if w := ask(t, Config{}, streaming(), "HEAD", "/readyz"); w.Code != 200 {
		t.Errorf("HEAD = %d, want 200", w.Code)
	}
	h := ask(t, Config{}, streaming(), "GET", "/readyz").Header()
	for key, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
		if h.Get(key) != want {
			t.Errorf("%s = %q, want %q", key, h.Get(key), want)
		}
	}
}

func TestServe_AnswersAndStops(t *testing.T) {
	server, err := Listen(Config{Listen: "127.0.0.1:0"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, Handler(Config{}, streaming, http.HandlerFunc(metricsStub))) }()
	res, err := http.Get("http://" + server.Addr() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("GET /readyz = %d", res.StatusCode)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Serve after a stop = %v, want nil", err)
	}
}

func TestListen_SaysThatTheAddressIsInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = Listen(Config{Listen: taken.Addr().String()}, zerolog.Nop())
	var refused *ListenError
	if !errors.As(err, &refused) {
		t.Fatalf("Listen = %v, want a *ListenError", err)
	}
	for _, want := range []string{taken.Addr().String(), "address already in use", "http.listen"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not mention %q", err, want)
		}
	}
}
