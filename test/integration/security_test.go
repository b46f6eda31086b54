package integration

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// The relay and its commands do with exactly what `cdc-relay sql` prints.
func TestRole_PrintedGrantsAreEnough(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run("postgres"+version, func(t *testing.T) {
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version})
			brokers := harness.Kfake(t, sandbox.KafkaOptions{Topics: map[string]int32{"role-events": 1, "letters": 1, "__cdc_relay_checkpoints": 1}})
			limited := *db
			limited.URL = strings.Replace(db.URL, "postgres@", "least@", 1)
			p := relaytest.New(t, &limited, brokers, []string{"{table: public.outbox}"}, "relay: {on_reject: dead_letter, dead_letter_topic: letters, park_key: true}")
			file := filepath.Join(t.TempDir(), "cdc-relay.yaml")
			if err := os.WriteFile(file, []byte(p.YAML), 0o600); err != nil {
				t.Fatal(err)
			}
			printed, err := exec.Command(relaytest.Binary(t), "sql", "--config", file, "--role", "least", "--create-table", "--postgres-version", version).Output()
			if err != nil {
				t.Fatal(err)
			}
			for _, piece := range strings.SplitAfter(string(printed), "\nCOMMIT;\n") { // the slot wants a transaction of its own
				db.Exec(t, "REVOKE CONNECT ON DATABASE "+db.Name+" FROM PUBLIC")
				if _, err := db.Connect(t).PgConn().Exec(t.Context(), withoutMeta(piece)).ReadAll(); err != nil {
					t.Fatalf("%v\n%s", err, piece)
				}
			}
			insert := func(payload string) {
				db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('role', gen_random_uuid(), 'x', $1)", payload)
			}
			p.DB = db
			running := p.Exec(t, "run")
			insert("{}")
			insert(`{"large": "` + strings.Repeat("x", 2<<20) + `"}`) // goes to the dead letters
			insert("{}")
			p.AwaitCaughtUp(t)
			if n := len(brokers.Read(t, "role-events")); n != 2 {
				t.Errorf("%d records", n)
			}
			if n := len(brokers.Read(t, "letters")); n == 0 {
				t.Error("no dead letter")
			}
			db.Exec(t, "DELETE FROM outbox WHERE length(payload::text) > 1000000") // check would call it too large
			for _, verb := range [][]string{{"check"}, {"explain"}, {"deadletter", "list"}, {"deadletter", "redrive", "--all"}, {"deadletter", "redrive", "--all", "--discard", "--yes"}} {
				command := p.Exec(t, verb...)
				want := 0
				if slices.Equal(verb, []string{"deadletter", "redrive", "--all"}) {
					want = 1 // its row was deleted
				}
				if code := command.Wait(t); code != want {
					t.Errorf("%v: exit code %d\n%s", verb, code, command.Output())
				}
			}
			second := p.Exec(t, "run")
			relaytest.Eventually(t, "it stands by", func() (bool, string) { return strings.Contains(second.Output(), "standby"), second.Output() })
			running.Terminate(t)
			if code := running.Wait(t); code != 0 {
				t.Errorf("exit code = %d", code)
			}
			insert("{}")
			p.AwaitCaughtUp(t)
			second.Terminate(t)
			if code := second.Wait(t); code != 0 {
				t.Errorf("exit code = %d", code)
			}
			for _, sql := range []string{"INSERT INTO outbox (aggregate_type) VALUES ('x')", "CREATE TABLE public.mine (id int)", "DROP PUBLICATION " + p.Slot} {
				if _, err := limited.Connect(t).Exec(t.Context(), sql); err == nil {
					t.Errorf("the role may do %q", sql)
				}
			}
		})
	}
}

// withoutMeta leaves out what is psql's own.
func withoutMeta(sql string) string {
	var kept strings.Builder
	for line := range strings.Lines(sql) {
		if !strings.HasPrefix(line, `\`) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = writePEM(t, "CERTIFICATE", der)
	return a
}

// issue gives certificate and key for a host, or for a client of that name, until a time.
func (a *authority) issue(t *testing.T, host string, until time.Time) (cert, key string) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	private := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, "CERTIFICATE", der), writePEM(t, "PRIVATE KEY", keyDER)
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Both sides are verified: by default, as soon as TLS is on. What is wrong with a
// server ends the start with 3 and says so; nothing is sent to it.
func TestTLS_IsVerifiedOnBothSides(t *testing.T) {
	t.Parallel()
	trusted, other := newAuthority(t), newAuthority(t)
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	postgres := func(host string, until time.Time) *harness.Database {
		cert, key := trusted.issue(t, host, until)
		return harness.OwnPostgres(t, sandbox.PostgresOptions{CertFile: cert, KeyFile: key})
	}
	kafka := func(host string, until time.Time) *harness.Brokers {
		cert, key := trusted.issue(t, host, until)
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return harness.Kfake(t, sandbox.KafkaOptions{TLS: &tls.Config{Certificates: []tls.Certificate{pair}}, Topics: map[string]int32{"tls-events": 1}})
	}
	goodDB, goodKafka := postgres("127.0.0.1", soon), kafka("127.0.0.1", soon)
	plainDB, plainKafka := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	for _, c := range []struct {
		name    string
		db      *harness.Database
		kafka   *harness.Brokers
		pgCA    string
		kafkaCA string
		says    []string // none: it streams
	}{
		{"both good", goodDB, goodKafka, trusted.file, trusted.file, nil},
		{"postgres of another authority", goodDB, goodKafka, other.file, trusted.file, []string{"unknown authority", "sslrootcert"}},
		{"postgres under another name", postgres("db.example", soon), goodKafka, trusted.file, trusted.file, []string{"127.0.0.1", "certificate"}},
		{"postgres expired", postgres("127.0.0.1", past), goodKafka, trusted.file, trusted.file, []string{"expired"}},
		{"postgres without TLS", plainDB, goodKafka, trusted.file, trusted.file, []string{"TLS", "sslmode"}},
		{"kafka of another authority", goodDB, goodKafka, trusted.file, other.file, []string{"unknown authority", "kafka.tls.ca_file"}},
		{"kafka under another name", goodDB, kafka("broker.example", soon), trusted.file, trusted.file, []string{"127.0.0.1", "kafka.tls.server_name"}},
		{"kafka expired", goodDB, kafka("127.0.0.1", past), trusted.file, trusted.file, []string{"expired"}},
		{"kafka without TLS", goodDB, plainKafka, trusted.file, trusted.file, []string{"TLS"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := relaytest.New(t, c.db, c.kafka, []string{"{table: public.outbox}"})
			p.Setup(t)
			running := p.Exec(t, "run",
				"--set", "postgres.url="+c.db.URLWith(t, url.Values{"sslmode": {"verify-full"}, "sslrootcert": {c.pgCA}}),
				"--set", "kafka.tls.enabled=true", "--set", "kafka.tls.ca_file="+c.kafkaCA)
			if c.says == nil {
				c.db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('tls', gen_random_uuid(), 'x', '{}')")
				p.AwaitCaughtUp(t)
				if info := c.kafka.Fake.Cluster().PartitionInfo("tls-events", 0); info == nil || info.HighWatermark != 1 {
					t.Error("the record did not arrive")
				}
				running.Terminate(t)
				if code := running.Wait(t); code != 0 {
					t.Errorf("exit code = %d", code)
				}
				return
			}
			relaytest.Eventually(t, "it is refused", func() (bool, string) {
				for _, part := range c.says {
					if !strings.Contains(running.Output(), part) {
						return false, running.Output()
					}
				}
				return true, ""
			})
			if strings.Contains(running.Output(), `"state":"streaming"`) {
				t.Error("it streams")
			}
		})
	}
}

// No secret and nothing of a row shows anywhere, whatever goes wrong.
func TestSecrets_NothingOfThemOrOfRowsShows(t *testing.T) {
	t.Parallel()
	const (
		password, saslPassword, token = "pgsecret5e1f", "kafkasecret5e1f", "tokensecret5e1f"
		payload, key, operatorToken   = "payload5e1f", "key5e1f", "actsecret5e1f"
	)
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Password: password})
	brokers := harness.Kfake(t, sandbox.KafkaOptions{
		Users:  []sandbox.KafkaUser{{Mechanism: "SCRAM-SHA-256", Name: "relay", Password: saslPassword, Super: true}},
		Topics: map[string]int32{"leak-events": 1, "letters": 1},
	})
	p := relaytest.New(t, db, brokers, []string{"{table: public.outbox, columns: {key: event_type, headers: payload}}"})
	p.YAML += "log: {level: trace}\n"
	p.Setup(t)
	operators := filepath.Join(t.TempDir(), "operators")
	if err := os.WriteFile(operators, []byte(operatorToken), 0o600); err != nil {
		t.Fatal(err)
	}
	common := []string{
		"--set", "http.console.actions=true", "--set", "http.console.payloads=true", "--set", "http.console.operator_token_file=" + operators,
		"--set", "kafka.sasl.mechanism=scram-sha-256", "--set", "kafka.sasl.username=relay", "--set", "kafka.sasl.password=" + saslPassword,
		"--set", anyAddress, "--set", "http.token=" + token, "--set", "relay.dead_letter_topic=letters",
	}
	insert := func(route any, payload string) {
		db.Exec(t, "ALTER TABLE outbox ALTER aggregate_type DROP NOT NULL")
		db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, gen_random_uuid(), $2, $3)", route, key, payload)
	}
	hidden := func(what, text string) {
		t.Helper()
		for _, secret := range []string{password, saslPassword, token, operatorToken, payload, key} {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s shows %s: …%.200s", what, secret, text[max(0, at-100):])
			}
		}
	}
	pages := func(what, address string) {
		t.Helper()
		for _, path := range []string{
			"/metrics", "/api/v1/status", "/readyz?verbose", "/livez", "/", "/login", "/assets/console.js", "/api/v1/console", "/api/v1/history", "/api/v1/obstacle",
			"/api/v1/runbook/record_too_large", "/api/v1/tables", "/api/v1/history/flows?of=tables", "/api/v1/history/flows?of=topics", "/api/v1/tables/public.outbox/explain", "/api/v1/check", "/api/v1/configuration", "/api/v1/log", "/api/v1/openapi.json",
			"/dead-letters", "/tail", "/blocked", "/tables", "/shards", "/check", "/config", "/log", "/api/v1/history/flows?of=shards", "/api/v1/dead-letters?state=all", "/api/v1/dead-letters/0/0", "/api/v1/dead-letters/0/0?values=true", "/api/v1/jobs/latest",
		} {
			hidden(what+" "+path, get(t, address, path, token))
			hidden(what+" "+path+" without the token", get(t, address, path, ""))
		}
		hidden(what+" stream", followed(t, address, token, "/api/v1/stream?kinds=status,charts,log", "event: status"))
		hidden(what+" tail", followed(t, address, token, "/api/v1/tail", "event: rows"))
	}
	begin := func(what, says string, more []string) *relaytest.Process {
		t.Helper()
		running := p.Exec(t, append(append([]string{"run"}, common...), more...)...)
		relaytest.Eventually(t, what+" says "+says, func() (bool, string) { return strings.Contains(running.Output(), says), running.Output() })
		return running
	}
	refused := func(what, says string, more ...string) {
		t.Helper()
		running := begin(what, says, more)
		running.Wait(t)
		hidden(what, running.Output())
	}
	run := func(what, says string, more ...string) {
		t.Helper()
		running := begin(what, says, more)
		pages(what, served(t, running))
		if err := syscall.Kill(running.PID(), syscall.SIGQUIT); err != nil { // as a panic does, it prints every stack
			t.Fatal(err)
		}
		running.Wait(t)
		if !strings.Contains(running.Output(), "goroutine ") {
			t.Error("no stacks were printed, so nothing is proven about them")
		}
		hidden(what, running.Output())
	}
	large := fmt.Sprintf(`{"%s": "%s", "fill": "%s"}`, key, payload, strings.Repeat(payload, 1000))
	insert("leak", fmt.Sprintf(`{"h": "%s"}`, payload))
	insert("leak", large)
	run("a large row", "record_too_large", "--set", "kafka.max_message_bytes=4KiB")
	run("a dead letter", "row goes to the dead-letter topic", "--set", "kafka.max_message_bytes=4KiB", "--set", "relay.on_reject=dead_letter")
	insert(nil, fmt.Sprintf(`{"h": "%s"}`, payload))
	run("a row without a route", `"reason":"route"`)
	run("a skipped row", "row skipped", "--set", "relay.on_reject=skip", "--set", "relay.accept_loss=true")
	run("nothing wrong", "streaming", "--set", "relay.on_reject=skip", "--set", "relay.accept_loss=true")
	run("a wrong password of Kafka", "sasl", "--set", "kafka.sasl.password="+saslPassword+"wrong")
	refused("a wrong password of PostgreSQL", "password authentication failed", "--set", "postgres.password="+password+"wrong")
	refused("a malformed address", "postgres.url", "--set", "postgres.url=postgres://postgres:"+password+"@[127.0.0.1/x")
	for _, verb := range [][]string{{"config", "print"}, {"config", "validate"}, {"check"}, {"check", "--json"}, {"sql"}, {"deadletter", "list"}} {
		command := p.Exec(t, append(verb, common...)...)
		command.Wait(t)
		hidden(strings.Join(verb, " "), command.Output())
	}
}

// followed is what a stream of the console sends first.
func followed(t *testing.T, address, token, path, event string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text strings.Builder
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		if strings.Count(text.String(), event) == 2 { // a second has passed
			return text.String()
		}
	}
	t.Fatalf("the stream ended: %s", &text)
	return ""
}
