package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// Contestants that differ from relay-kafka or pg_recvlogical in nothing but the way to the servers.
const (
	limitTLS         = "pg_recvlogical-tls" // what PostgreSQL can send over TLS, beside pg_recvlogical
	relayTLS         = "relay-tls"          // TLS to PostgreSQL and to the broker, certificates verified
	relayLink        = "relay-link"         // a network device of the benchmark before the broker
	relayMillisecond = "relay-link-1ms"     // the same, with a round trip of 1 ms
)

// Listeners of the broker beside the plain one.
const (
	listenerTLS     = "SECURE"
	linkQuick       = "QUICK"
	linkMillisecond = "MILLISECOND"
)

// ways are those to the servers, beside loopback in clear text.
type ways struct {
	cert, key string // of both servers
	links     map[string]*sandbox.Link
	lacking   error // why there are no links
}

// newWays makes a certificate in folder, and links where that is possible.
func newWays(folder string) (ways, error) {
	w := ways{cert: filepath.Join(folder, "server.crt"), key: filepath.Join(folder, "server.key"), links: map[string]*sandbox.Link{}}
	if err := selfSigned(w.cert, w.key); err != nil {
		return w, err
	}
	for name, delay := range map[string]time.Duration{linkQuick: 0, linkMillisecond: 500 * time.Microsecond} {
		link, err := sandbox.NewLink(sandbox.LinkOptions{Delay: delay})
		if err != nil {
			w.close()
			w.links, w.lacking = nil, err
			break
		}
		w.links[name] = link
	}
	return w, nil
}

func (w ways) close() {
	for _, link := range w.links {
		_ = link.Close()
	}
}

func (w ways) listeners() []sandbox.ApacheTLS {
	return []sandbox.ApacheTLS{{Name: listenerTLS, CertFile: w.cert, KeyFile: w.key}}
}

func selfSigned(cert, key string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}

// needTLS refuses a server that the benchmark did not start.
func needTLS(_ context.Context, b *bench) error {
	if !b.pg.Ours() {
		return errors.New("the benchmark's certificate is not this PostgreSQL's")
	}
	return nil
}

func needBoth(one, other func(context.Context, *bench) error) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error { return errors.Join(one(ctx, b), other(ctx, b)) }
}

func startTLS(ctx context.Context, b *bench, j job) (*running, error) {
	at, err := b.ways.secured(j.w.url())
	if err != nil {
		return nil, err
	}
	return startRelay("CDC_RELAY_POSTGRES_URL="+at, "CDC_RELAY_KAFKA_BROKERS="+b.apache.TLSAddr(listenerTLS),
		"CDC_RELAY_KAFKA_TLS_ENABLED=true", "CDC_RELAY_KAFKA_TLS_CA_FILE="+b.ways.cert)(ctx, b, j)
}

func startRecvTLS(_ context.Context, b *bench, j job) (*running, error) {
	at, err := b.ways.secured(j.w.url())
	if err != nil {
		return nil, err
	}
	return recv(b, j, at)
}

// secured is the URL of a database with its server's certificate verified.
func (w ways) secured(to string) (string, error) {
	at, err := url.Parse(to)
	if err != nil {
		return "", err
	}
	at.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {w.cert}}.Encode()
	return at.String(), nil
}

func needLinks(_ context.Context, b *bench) error { return b.ways.lacking }

func startLink(name string) func(context.Context, *bench, job) (*running, error) {
	return func(ctx context.Context, b *bench, j job) (*running, error) {
		return startRelay("CDC_RELAY_KAFKA_BROKERS="+b.apache.LinkAddr(name))(ctx, b, j)
	}
}
