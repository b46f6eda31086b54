package kafka_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink/auth"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
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
		cfg  producer.Config
		want string // empty: accepted
	}{
		"no brokers":              {producer.Config{}, "no brokers"},
		"unknown compression":     {producer.Config{Connection: broker.Connection{Brokers: remote}, Compression: "lzma"}, `"lzma"`},
		"unknown mechanism":       {producer.Config{Connection: broker.Connection{Brokers: remote, SASL: auth.SASL{Mechanism: "kerberos"}}}, `"kerberos"`},
		"plain in the clear":      {producer.Config{Connection: broker.Connection{Brokers: remote, SASL: auth.SASL{Mechanism: auth.Plain}}}, "in the clear to kafka.example:9092"},
		"plain, allowed":          {producer.Config{Connection: broker.Connection{Brokers: remote, Insecure: true, SASL: auth.SASL{Mechanism: auth.Plain}}}, ""},
		"plain on loopback":       {producer.Config{Connection: broker.Connection{Brokers: []string{"localhost:1", "127.0.0.9:1", "[::1]:1"}, SASL: auth.SASL{Mechanism: auth.Plain}}}, ""},
		"scram in the clear":      {producer.Config{Connection: broker.Connection{Brokers: remote, SASL: auth.SASL{Mechanism: auth.ScramSHA256}}}, ""},
		"token endpoint in clear": {producer.Config{Connection: broker.Connection{Brokers: remote, TLS: func() (*tls.Config, error) { return new(tls.Config), nil }, SASL: auth.SASL{Mechanism: auth.OAuthBearer, OAuth: auth.OAuth{TokenEndpoint: "http://id.example/token"}}}}, "https"},
		"no token endpoint":       {producer.Config{Connection: broker.Connection{Brokers: remote, Insecure: true, SASL: auth.SASL{Mechanism: auth.OAuthBearer}}}, "is no URL"},
		"tiny messages":           {producer.Config{Connection: broker.Connection{Brokers: remote}, MaxMessageBytes: 10}, "10 bytes"},
		"msk":                     {producer.Config{Connection: broker.Connection{Brokers: remote, SASL: auth.SASL{Mechanism: auth.AWSMSKIAM, Region: "eu-central-1"}}}, ""},
	} {
		k, err := kafka.New(c.cfg, zerolog.Nop())
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
