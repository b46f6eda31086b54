package export

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/tracing"
	"github.com/rs/zerolog"
)

// A collector is trusted by the configured authorities alone, which are read for each connection.
func TestExporter_VerifiesTheCollector(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer server.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	for name, c := range map[string]struct {
		tls  func() (*tls.Config, error)
		sent int64
		why  string
	}{
		"trusted":    {func() (*tls.Config, error) { return &tls.Config{RootCAs: trusted}, nil }, 2, ""},
		"another":    {func() (*tls.Config, error) { return &tls.Config{RootCAs: x509.NewCertPool()}, nil }, 0, "certificate"},
		"unreadable": {func() (*tls.Config, error) { return nil, errors.New("read ca.pem: it is gone") }, 0, "read ca.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			once := func() (tr *tracing.Tracer, log string) {
				requests.Store(0)
				text := new(strings.Builder)
				e, tr := New(Config{Endpoint: server.URL + "/v1/traces", TLS: c.tls}, tracing.Config{MaxPerSecond: 100}, zerolog.New(text))
				tr.Picker().Pick([]byte(parent)).End(time.Now())
				e.Start()
				e.Close(nil)
				return tr, text.String()
			}
			tr, log := once()
			for end := time.Now().Add(time.Minute); tr.Counts()[tracing.Sent] < c.sent && time.Now().Before(end); {
				tr, log = once() // the two seconds of Close were over on a busy machine
			}
			if n := tr.Counts(); n[tracing.Sent] != c.sent || requests.Load() != c.sent/2 || !strings.Contains(log, c.why) {
				t.Errorf("counts %v, %d requests, log %s", n, requests.Load(), log)
			}
		})
	}
}
