package kafka_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/auth"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func secret(value string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return value, nil }
}

func ready(t testing.TB, cfg producer.Config) *sink.Error {
	t.Helper()
	k, err := kafka.New(cfg, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close(context.Background())
	ctx, cancel := context.WithTimeout(context.Background(), guardTime)
	defer cancel()
	err = k.Ready(ctx)
	if err == nil {
		return nil
	}
	var e *sink.Error
	if !errors.As(err, &e) {
		t.Fatalf("Ready returned %T: %v", err, err)
	}
	return e
}

func wantError(t testing.TB, e *sink.Error, class sink.Class, reason string, mentions ...string) {
	t.Helper()
	if e == nil {
		t.Fatalf("ready, want %s %s", class, reason)
	}
	wantFailure(t, &sink.Failure{Class: e.Class, Reason: e.Reason, Err: e}, class, reason, mentions...)
}

func TestKafka_ReadyTellsAnAuthenticationThatWasRefused(t *testing.T) {
	c := cluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "relay", "right"))
	cfg := producer.Config{Connection: broker.Connection{Brokers: c.ListenAddrs(), SASL: auth.SASL{Mechanism: auth.ScramSHA256, Username: "relay", Password: secret("right")}}}
	if e := ready(t, cfg); e != nil {
		t.Fatal(e)
	}
	cfg.SASL.Password = secret("s3cr3t-wrong")
	wantError(t, ready(t, cfg), sink.Retry, "sasl_interrupted", c.ListenAddrs()[0], "kafka.sasl") // kfake hangs up
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := request.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return resp, nil, true
	})
	e := ready(t, cfg)
	wantError(t, e, sink.Blocked, "sasl_authentication_failed", c.ListenAddrs()[0], "kafka.sasl")
	if strings.Contains(e.Error(), "s3cr3t") {
		t.Errorf("the message has the secret: %v", e)
	}
	cfg.SASL.Password = func(context.Context) (string, error) { return "", errors.New("file is gone") }
	wantError(t, ready(t, cfg), sink.Blocked, "sasl_secret", "file is gone")
}

func TestKafka_ReadyTellsABrokerThatIsNotThere(t *testing.T) {
	const addr = "127.0.0.1:1" // a free one could be somebody's by now
	wantError(t, ready(t, producer.Config{Connection: broker.Connection{Brokers: []string{addr}}}), sink.Retry, "network", addr, "refused")
}

func TestKafka_ReadyTellsATLSMismatch(t *testing.T) {
	cert, pool := selfSigned(t)
	secured := cluster(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
	plain := hangsUp(t)
	with := func(c *tls.Config) func() (*tls.Config, error) {
		return func() (*tls.Config, error) { return c, nil }
	}
	if e := ready(t, producer.Config{Connection: broker.Connection{Brokers: secured.ListenAddrs(), TLS: with(&tls.Config{RootCAs: pool})}}); e != nil {
		t.Errorf("good settings: %v", e)
	}
	addr := secured.ListenAddrs()[0]
	wantError(t, ready(t, producer.Config{Connection: broker.Connection{Brokers: secured.ListenAddrs(), TLS: with(&tls.Config{})}}), sink.Blocked, "tls", addr, "kafka.tls.ca_file")
	wantError(t, ready(t, producer.Config{Connection: broker.Connection{Brokers: secured.ListenAddrs(), TLS: with(&tls.Config{RootCAs: pool, ServerName: "other"})}}), sink.Blocked, "tls", addr, "kafka.tls.server_name")
	wantError(t, ready(t, producer.Config{Connection: broker.Connection{Brokers: []string{plain}, TLS: with(&tls.Config{RootCAs: pool})}}), sink.Retry, "tls_handshake", plain, "speaks TLS")
	broken := func() (*tls.Config, error) { return nil, errors.New("no such file") }
	wantError(t, ready(t, producer.Config{Connection: broker.Connection{Brokers: []string{plain}, TLS: broken}}), sink.Blocked, "tls", "no such file")

	e := ready(t, producer.Config{Connection: broker.Connection{Brokers: secured.ListenAddrs()}})
	if e == nil || !strings.Contains(e.Error(), "TLS") && !strings.Contains(e.Error(), "tls") {
		t.Errorf("clear text to a TLS broker: %v", e)
	}
}

// hangsUp listens like a broker without TLS, which takes a handshake for a
// request of impossible size.
func hangsUp(t *testing.T) string {
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
			conn.Read(make([]byte, 4))
			conn.Close()
		}
	}()
	return listener.Addr().String()
}

func TestKafka_ReadyTellsWhatAnswersInsteadOfKafka(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		says   []string
	}{
		"PostgreSQL": {"E\x00\x00\x00\x91SFATAL\x00", []string{"something other than Kafka answers there: correct kafka.brokers"}},
		"a web page": {"HTTP/1.1 400 Bad Request\r\n\r\n", []string{"HTTP response", "something other than Kafka answers there: correct kafka.brokers"}},
		"noise":      {"\xff\xfe\xfd\xfc", []string{"something other than Kafka answers there: correct kafka.brokers"}},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Read(make([]byte, 1024))
					_, _ = conn.Write([]byte(tt.answer))
					_, _ = io.Copy(io.Discard, conn) // until the client hangs up
					_ = conn.Close()
				}
			}()
			cfg := producer.Config{Connection: broker.Connection{Brokers: []string{listener.Addr().String()}}}
			wantError(t, ready(t, cfg), sink.Blocked, "kafka_error", append(tt.says, cfg.Brokers[0])...)
		})
	}
}

func TestKafka_ReadyNamesTheSASLThatIsNotConfigured(t *testing.T) {
	c := cluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "relay", "right"))
	wantError(t, ready(t, producer.Config{Connection: broker.Connection{Brokers: c.ListenAddrs()}}), sink.Retry, "network", c.ListenAddrs()[0], "set kafka.sasl")
}
