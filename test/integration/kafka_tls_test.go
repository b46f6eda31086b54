package integration

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// secureKafka is a real broker with listeners that differ in what they present and
// in what they want, and what a relay needs to be taken by them.
type secureKafka struct {
	*harness.Brokers
	servers, clients *authority // who signed the broker's certificates, and ours
	other            *authority // whom neither side trusts
}

func newSecureKafka(t *testing.T) *secureKafka {
	t.Helper()
	k := &secureKafka{servers: newAuthority(t), clients: newAuthority(t), other: newAuthority(t)}
	soon := time.Now().Add(time.Hour)
	listener := func(name, host string, until time.Time, clientCA string) sandbox.ApacheTLS {
		cert, key := k.servers.issue(t, host, until)
		return sandbox.ApacheTLS{Name: name, CertFile: cert, KeyFile: key, ClientCAFile: clientCA}
	}
	k.Brokers = harness.OwnKafka(t, nil,
		listener("TLS", "127.0.0.1", soon, ""),
		listener("MUTUAL", "127.0.0.1", soon, k.clients.file),
		listener("MISNAMED", "broker.example", soon, ""),
		listener("EXPIRED", "127.0.0.1", time.Now().Add(-time.Minute), ""))
	return k
}

// at is a listener alone, as a relay that may not use the others sees the broker.
func (k *secureKafka) at(listener string) *harness.Brokers {
	brokers := *k.Brokers
	if listener != "" {
		brokers.Addrs = []string{k.Apache.TLSAddr(listener)}
	}
	return &brokers
}

// tlsCase is a relay with one row to deliver.
type tlsCase struct {
	*relaytest.Pipeline
	kafka *secureKafka
	topic string
}

func (k *secureKafka) prepare(t *testing.T, listener string) *tlsCase {
	t.Helper()
	c := &tlsCase{relaytest.New(t, harness.Postgres(t), k.at(listener), []string{"{table: public.outbox}"}), k, harness.Unique(t, "tls") + "-events"}
	c.Setup(t)
	k.CreateTopic(t, c.topic, 1)
	c.insert(t)
	return c
}

func (c *tlsCase) insert(t *testing.T) {
	t.Helper()
	c.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, gen_random_uuid(), 'x', '{}')", strings.TrimSuffix(c.topic, "-events"))
}

// run starts the binary with keys of kafka.tls.
func (c *tlsCase) run(t *testing.T, verb string, settings ...string) *relaytest.Process {
	t.Helper()
	args := []string{verb}
	for _, setting := range settings {
		args = append(args, "--set", "kafka.tls."+setting)
	}
	return c.Exec(t, args...)
}

func (c *tlsCase) wantRecords(t *testing.T, n int) {
	t.Helper()
	if got := len(c.kafka.Read(t, c.topic)); got != n {
		t.Errorf("%d records in the topic, want %d", got, n)
	}
}

func mustSay(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it does not say %q:\n%s", part, text)
		}
	}
}

// A real broker and the relay verify one another by the relay's own keys. What is
// refused ends the start with 3, names the address and the key to set, and leaves
// the row where it was.
func TestKafkaTLS_RealBrokersAreVerified(t *testing.T) {
	t.Parallel()
	kafka := newSecureKafka(t)
	soon := time.Now().Add(time.Hour)
	cert, key := kafka.clients.issue(t, "relay", soon)
	strangeCert, strangeKey := kafka.other.issue(t, "relay", soon)
	oldCert, oldKey := kafka.clients.issue(t, "relay", time.Now().Add(-time.Minute))
	const on = "enabled=true"
	trust, named := "ca_file="+kafka.servers.file, []string{"cert_file=" + cert, "key_file=" + key}
	for _, c := range []struct {
		name, listener string
		settings       []string
		says           []string // none: it delivers
	}{
		{"server verified", "TLS", []string{on, trust}, nil},
		{"both verified", "MUTUAL", append([]string{on, trust}, named...), nil},
		{"another name is asked for", "MISNAMED", []string{on, trust, "server_name=broker.example"}, nil},
		{"the system's authorities alone", "TLS", []string{on}, []string{"unknown authority", "kafka.tls.ca_file"}},
		{"another authority", "TLS", []string{on, "ca_file=" + kafka.other.file}, []string{"unknown authority", "kafka.tls.ca_file"}},
		{"another name", "MISNAMED", []string{on, trust}, []string{"certificate for 127.0.0.1", "kafka.tls.server_name"}},
		{"expired", "EXPIRED", []string{on, trust}, []string{"expired", "renew the broker's certificate"}},
		{"no certificate of ours", "MUTUAL", []string{on, trust}, []string{"set kafka.tls.cert_file and key_file"}},
		{"a certificate of ours from elsewhere", "MUTUAL", []string{on, trust, "cert_file=" + strangeCert, "key_file=" + strangeKey}, []string{"refuses the client certificate", "kafka.tls.cert_file"}},
		{"a certificate of ours that expired", "MUTUAL", []string{on, trust, "cert_file=" + oldCert, "key_file=" + oldKey}, []string{"refuses the client certificate", "kafka.tls.cert_file"}},
		{"no TLS with a broker that has it", "TLS", nil, []string{"kafka.tls.enabled"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := kafka.prepare(t, c.listener)
			before := p.Confirmed(t)
			running := p.run(t, "run", c.settings...)
			if c.says == nil {
				p.AwaitCaughtUp(t)
				p.wantRecords(t, 1)
				running.Terminate(t)
				if code := running.Wait(t); code != 0 {
					t.Errorf("exit code = %d", code)
				}
				return
			}
			if code := running.Wait(t); code != 3 {
				t.Errorf("exit code = %d, want 3", code)
			}
			mustSay(t, running.Output(), append(c.says, p.Brokers.Addrs[0])...)
			p.wantRecords(t, 0)
			if at := p.Confirmed(t); at != before {
				t.Errorf("confirmed went from %s to %s", before, at)
			}
		})
	}
	t.Run("TLS with a broker that has none", func(t *testing.T) { // it hangs up, as one that starts does
		p := kafka.prepare(t, "")
		running := p.run(t, "run", on, trust)
		relaytest.Eventually(t, "it says so", func() (bool, string) {
			out := running.Output()
			return strings.Contains(out, "tls_handshake") && strings.Contains(out, p.Brokers.Addrs[0]) && strings.Contains(out, "speaks TLS on this port"), out
		})
		p.wantRecords(t, 0)
	})
	t.Run("check", func(t *testing.T) {
		p := kafka.prepare(t, "MUTUAL")
		good := p.run(t, "check", append([]string{on, trust}, named...)...)
		if code := good.Wait(t); code != 0 {
			t.Errorf("exit code = %d\n%s", code, good.Output())
		}
		mustSay(t, good.Output(), "over TLS")
		bad := p.run(t, "check", on, trust)
		if code := bad.Wait(t); code == 0 {
			t.Error("exit code = 0 without a certificate")
		}
		mustSay(t, bad.Output(), p.Brokers.Addrs[0], "set kafka.tls.cert_file and key_file")
	})
	t.Run("renewed on disk", func(t *testing.T) {
		p := kafka.prepare(t, "MUTUAL")
		files := []string{t.TempDir() + "/cert.pem", t.TempDir() + "/key.pem"}
		put := func(a *authority) {
			cert, key := a.issue(t, "relay", soon)
			for i, from := range []string{cert, key} {
				if err := os.Rename(from, files[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		put(kafka.clients)
		running := p.run(t, "run", on, trust, "cert_file="+files[0], "key_file="+files[1])
		p.AwaitCaughtUp(t)
		put(kafka.other) // the open connection goes on
		p.insert(t)
		p.AwaitCaughtUp(t)
		p.wantRecords(t, 2)
		if err := kafka.Apache.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.insert(t)
		relaytest.Eventually(t, "the new connection shows what is on disk", func() (bool, string) {
			out := running.Output()
			return strings.Contains(out, `"reason":"tls"`) && strings.Contains(out, "refuses the client certificate"), out
		})
		p.wantRecords(t, 2)
		put(kafka.clients)
		p.AwaitCaughtUp(t)
		p.wantRecords(t, 3)
		running.Terminate(t)
		if code := running.Wait(t); code != 0 {
			t.Errorf("exit code = %d", code)
		}
	})
}
