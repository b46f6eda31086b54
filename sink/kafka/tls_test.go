package kafka_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
)

// A broker says what it thinks of our certificate within the handshake, or with TLS
// 1.3 after it. Both tell the same.
func TestKafkaTLS_ARefusedCertificateIsNamed(t *testing.T) {
	cert, pool := selfSigned(t)
	stranger, _ := selfSigned(t)
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		for _, c := range []struct {
			name string
			want tls.ClientAuthType
			ours []tls.Certificate
			says string
		}{
			{"none where one is wanted", tls.RequireAnyClientCert, nil, "set kafka.tls.cert_file and key_file"},
			{"of somebody else", tls.RequireAndVerifyClientCert, []tls.Certificate{stranger}, "refuses the client certificate"},
		} {
			t.Run(name+", "+c.name, func(t *testing.T) {
				brokers := cluster(t, kfake.TLS(&tls.Config{
					Certificates: []tls.Certificate{cert}, ClientAuth: c.want, ClientCAs: pool, MinVersion: version, MaxVersion: version,
				}))
				cfg := producer.Config{Connection: broker.Connection{Brokers: brokers.ListenAddrs(), TLS: settings(pool, c.ours)}}
				wantError(t, ready(t, cfg), sink.Blocked, "tls", brokers.ListenAddrs()[0], c.says)
				k, err := kafka.New(cfg, zerolog.Nop())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = k.Close(t.Context()) })
				var e *sink.Error
				for deadline := time.Now().Add(guardTime); e == nil; <-time.After(10 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("Reachable says %v", k.Reachable())
					}
					k.Ping(t.Context())
					e, _ = errors.AsType[*sink.Error](k.Reachable())
				}
				wantError(t, e, sink.Blocked, "tls", brokers.ListenAddrs()[0], c.says)
			})
		}
	}
}

func TestKafkaTLS_AnOldVersionIsRefused(t *testing.T) {
	cert, pool := selfSigned(t)
	brokers := cluster(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}))
	wantError(t, ready(t, producer.Config{Connection: broker.Connection{Brokers: brokers.ListenAddrs(), TLS: settings(pool, nil)}}), sink.Blocked, "tls", brokers.ListenAddrs()[0], "TLS 1.2 or later")
}

// Of what a broker answers to a handshake, trouble of its own may pass, and the rest is
// for a person.
func TestKafkaTLS_AnAlertSaysWhatIsNext(t *testing.T) {
	const fatal = 2
	for _, c := range []struct {
		alert  byte
		class  sink.Class
		reason string
		says   string
	}{
		{40, sink.Blocked, "tls", "with a cipher suite"},               // handshake_failure
		{70, sink.Blocked, "tls", "TLS 1.2 or later"},                  // protocol_version
		{80, sink.Retry, "tls_handshake", "see the broker's log"},      // internal_error
		{112, sink.Blocked, "tls", "set kafka.tls.server_name to one"}, // unrecognized_name
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 64<<10)) // unread, it would reset the connection
				_, _ = conn.Write([]byte{21, 3, 3, 0, 2, fatal, c.alert})
				conn.Close()
			}
		}()
		addr := listener.Addr().String()
		wantError(t, ready(t, producer.Config{Connection: broker.Connection{Brokers: []string{addr}, TLS: settings(x509.NewCertPool(), nil)}}), c.class, c.reason, addr, c.says)
	}
}

func settings(pool *x509.CertPool, ours []tls.Certificate) func() (*tls.Config, error) {
	return func() (*tls.Config, error) { return &tls.Config{RootCAs: pool, Certificates: ours}, nil }
}
