package sink_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

var plainAdmin = plain.Auth{User: "admin", Pass: "a"}.AsMechanism()

// selfSigned is a certificate for 127.0.0.1 and the pool that trusts it.
func selfSigned(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestNewKafka_RefusesWhatCannotWork(t *testing.T) {
	remote := []string{"kafka.example:9092"}
	for name, c := range map[string]struct {
		cfg  sink.KafkaConfig
		want string // empty: accepted
	}{
		"no brokers":              {sink.KafkaConfig{}, "no brokers"},
		"unknown compression":     {sink.KafkaConfig{Connection: sink.Connection{Brokers: remote}, Compression: "lzma"}, `"lzma"`},
		"unknown mechanism":       {sink.KafkaConfig{Connection: sink.Connection{Brokers: remote, SASL: sink.SASL{Mechanism: "kerberos"}}}, `"kerberos"`},
		"plain in the clear":      {sink.KafkaConfig{Connection: sink.Connection{Brokers: remote, SASL: sink.SASL{Mechanism: sink.SASLPlain}}}, "in the clear to kafka.example:9092"},
		"plain, allowed":          {sink.KafkaConfig{Connection: sink.Connection{Brokers: remote, Insecure: true, SASL: sink.SASL{Mechanism: sink.SASLPlain}}}, ""},
		"plain on loopback":       {sink.KafkaConfig{Connection: sink.Connection{Brokers: []string{"localhost:1", "127.0.0.9:1", "[::1]:1"}, SASL: sink.SASL{Mechanism: sink.SASLPlain}}}, ""},
		"scram in the clear":      {sink.KafkaConfig{Connection: sink.Connection{Brokers: remote, SASL: sink.SASL{Mechanism: sink.SASLScramSHA256}}}, ""},
		"token endpoint in clear": {sink.KafkaConfig{Connection: sink.Connection{Brokers: remote, TLS: func() (*tls.Config, error) { return new(tls.Config), nil }, SASL: sink.SASL{Mechanism: sink.SASLOAuth, OAuth: sink.OAuth{TokenEndpoint: "http://id.example/token"}}}}, "https"},
		"no token endpoint":       {sink.KafkaConfig{Connection: sink.Connection{Brokers: remote, Insecure: true, SASL: sink.SASL{Mechanism: sink.SASLOAuth}}}, "is no URL"},
		"tiny messages":           {sink.KafkaConfig{Connection: sink.Connection{Brokers: remote}, MaxMessageBytes: 10}, "10 bytes"},
		"msk":                     {sink.KafkaConfig{Connection: sink.Connection{Brokers: remote, SASL: sink.SASL{Mechanism: sink.SASLAWSMSKIAM, Region: "eu-central-1"}}}, ""},
	} {
		k, err := sink.NewKafka(c.cfg, zerolog.Nop())
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error is %v, want one that mentions %s", name, err, c.want)
		}
		if k != nil {
			k.Close(context.Background())
		}
	}
}

// endpoint answers with tokens that are numbered by how often it was asked.
func endpoint(t *testing.T, asked *atomic.Int64, answer func(n int64) (int, string)) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, pass, _ := r.BasicAuth()
		if r.FormValue("grant_type") != "client_credentials" || id != "relay" || pass != "s3cr3t%2F" || r.FormValue("scope") != "kafka" {
			t.Errorf("asked with %v as %q", r.Form, id)
		}
		status, body := answer(asked.Add(1))
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestTokens_AreKeptUntilShortlyBeforeTheyExpire(t *testing.T) {
	var asked atomic.Int64
	now := time.Unix(0, 0)
	get, err := sink.Tokens(sink.OAuth{
		TokenEndpoint: endpoint(t, &asked, func(n int64) (int, string) {
			return http.StatusOK, fmt.Sprintf(`{"access_token": "t%d", "expires_in": 300}`, n)
		}),
		ClientID: "relay", ClientSecret: secret("s3cr3t/"), Scope: "kafka",
	}, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		at   time.Duration
		want string
	}{{0, "t1"}, {200 * time.Second, "t1"}, {269 * time.Second, "t1"}, {271 * time.Second, "t2"}} {
		now = time.Unix(0, 0).Add(step.at)
		if token, err := get(context.Background()); err != nil || token != step.want {
			t.Errorf("after %s: %q, %v, want %q", step.at, token, err, step.want)
		}
	}
}

func TestTokens_TellRefusalsFromOutages(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		class  sink.Class
	}{
		"wrong secret": {http.StatusUnauthorized, `{"error": "invalid_client"}`, sink.Blocked},
		"outage":       {http.StatusBadGateway, `<html>`, sink.Retry},
		"busy":         {http.StatusTooManyRequests, ``, sink.Retry},
		"nonsense":     {http.StatusOK, `not json with t0ken`, sink.Blocked},
		"moved":        {http.StatusFound, ``, sink.Blocked},
	} {
		var asked atomic.Int64
		get, err := sink.Tokens(sink.OAuth{
			TokenEndpoint: endpoint(t, &asked, func(int64) (int, string) { return c.status, c.body }),
			ClientID:      "relay", ClientSecret: secret("s3cr3t/"), Scope: "kafka",
		}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		_, err = get(context.Background())
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		e := sink.Classify(err)
		if e.Class != c.class || e.Reason != "sasl_secret" {
			t.Errorf("%s: %s %s, want %s", name, e.Class, e.Reason, c.class)
		}
		for _, hidden := range []string{"s3cr3t", "t0ken"} {
			if strings.Contains(e.Error(), hidden) {
				t.Errorf("%s: the message shows %q: %v", name, hidden, e)
			}
		}
	}
}

func TestClassify_StopsAtWhatItDoesNotKnow(t *testing.T) {
	if e := sink.Classify(errors.New("something new")); e.Class != sink.Blocked || e.Reason != "kafka_error" {
		t.Errorf("%s %s", e.Class, e.Reason)
	}
}
