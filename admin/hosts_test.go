package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay/status"
)

func TestHandler_AnswersNoForeignNameOnLoopback(t *testing.T) {
	token := func() (string, error) { return "s3cret", nil }
	status := func() status.Status {
		return status.Status{State: status.Blocked, Reason: "rejected", Message: "table public.outbox"}
	}
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("outbox")) })
	for _, c := range []struct {
		cfg     Config
		host    string
		foreign bool
	}{
		{Config{Listen: "127.0.0.1:8080"}, "127.0.0.1:8080", false},
		{Config{Listen: "127.0.0.1:8080"}, "localhost:8080", false},
		{Config{Listen: "127.0.0.1:8080"}, "LOCALHOST.:9", false},
		{Config{Listen: "127.0.0.1:8080"}, "[::1]:8080", false},
		{Config{Listen: "127.0.0.1:8080"}, "[::1]", false},
		{Config{Listen: "127.0.0.1:8080"}, "", false}, // no browser
		{Config{Listen: "127.0.0.1:8080"}, "evil.example:8080", true},
		{Config{Listen: "127.0.0.1:8080"}, "localhost.evil.example", true},
		{Config{Listen: "127.0.0.1:8080"}, "127.0.0.1.evil.example:8080", true},
		{Config{Listen: "127.0.0.1:8080"}, "10.0.0.1:8080", true},
		{Config{Listen: "localhost:8080"}, "evil.example", true},
		{Config{Listen: "[::1]:8080"}, "evil.example", true},
		{Config{Listen: "127.0.0.1:8080", Hosts: []string{"relay.internal"}}, "Relay.Internal:443", false},
		{Config{Listen: "127.0.0.1:8080", Hosts: []string{"relay.internal"}}, "evil.example", true},
		{Config{Listen: "127.0.0.1:8080", Hosts: []string{"*"}}, "evil.example", false},
		{Config{Listen: "127.0.0.1:8080", Token: token}, "evil.example", false},
		{Config{Listen: ":8080"}, "evil.example", false},
		{Config{Listen: "0.0.0.0:8080"}, "relay.prod", false},
	} {
		ask := func(path string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = c.host
			r.Header.Set("Authorization", "Bearer s3cret")
			w := httptest.NewRecorder()
			Handler(c.cfg, status, metrics).ServeHTTP(w, r)
			return w
		}
		for _, path := range []string{"/metrics", "/api/v1/status", "/"} {
			w := ask(path)
			if refused := w.Code == http.StatusMisdirectedRequest; refused != c.foreign {
				t.Errorf("listening on %s: %s of host %q is answered %d", c.cfg.Listen, path, c.host, w.Code)
			}
			if c.foreign && (strings.Contains(w.Body.String(), "outbox") || !strings.Contains(w.Body.String(), "http.hosts")) {
				t.Errorf("%s of host %q shows %q", path, c.host, w.Body)
			}
		}
		if w := ask("/livez"); w.Code != http.StatusOK {
			t.Errorf("/livez of host %q is answered %d", c.host, w.Code)
		}
		w := ask("/readyz?verbose")
		if shown := strings.Contains(w.Body.String(), "public.outbox"); shown == c.foreign || !strings.Contains(w.Body.String(), "rejected") {
			t.Errorf("/readyz of host %q shows %q", c.host, w.Body)
		}
	}
}
