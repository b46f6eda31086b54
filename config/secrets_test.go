package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRelay_ReadsSecretFilesAtEveryUse(t *testing.T) {
	files := testFiles{"f": minimal + "  sasl: {mechanism: scram-sha-256, username: u, password_file: kafka}\nhttp: {token_file: token}\n", "pg": "one\n", "kafka": "one", "token": "one\r\n"}
	cfg := load(t, Options{Path: "f", ReadFile: files.read, Set: []string{"postgres.password_file=pg"}})
	r, h := cfg.Relay(), cfg.HTTP()
	for _, want := range []string{"one", "two"} {
		files["pg"], files["kafka"], files["token"] = want, want+"\n", want
		pg, err1 := r.Replication.Password(t.Context())
		kafka, err2 := r.Kafka.SASL.Password(t.Context())
		token, err3 := h.Token()
		if pg != want || kafka != want || token != want || err1 != nil || err2 != nil || err3 != nil {
			t.Errorf("got %q %q %q %v %v %v, want %q", pg, kafka, token, err1, err2, err3, want)
		}
	}
	delete(files, "pg")
	if _, err := r.Replication.Password(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "read pg: file does not exist, and $CREDENTIALS_DIRECTORY, where systemd puts credentials, is not set; ") {
		t.Errorf("a file that went away: %v", err)
	}
}

// A device or a log that is taken for a secret must not fill the memory.
func TestSecrets_AreNotReadWithoutEnd(t *testing.T) {
	name := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(name, make([]byte, 1<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"postgres.password_file=" + name, "http.token_file=" + name, "kafka.tls.ca_file=" + name} {
		_, err := Load(Options{Environ: complete, Set: []string{set, "kafka.tls.enabled=true"}})
		if err == nil || !strings.Contains(err.Error(), "read "+name+": file is larger than 1MiB") {
			t.Errorf("%s: %v", set, err)
		}
	}
}

func TestRelay_HasNoFunctionsForWhatIsNotGiven(t *testing.T) {
	cfg := load(t, Options{Environ: complete})
	if r := cfg.Relay(); r.Replication.Password != nil || r.Kafka.SASL.Password != nil || r.Kafka.SASL.OAuth.ClientSecret != nil || r.Kafka.TLS != nil || cfg.HTTP().Token != nil {
		t.Error("a function without a source")
	}
}

func TestPasswordCommand_NamesTheProgramAndNothingElse(t *testing.T) {
	for command, want := range map[string]string{
		"[sh, -c, \"echo s3cret >&2; echo s3cret; exit 3\"]": "run password_command sh: exit status 3",
		"[sh, -c, \"true s3cret\"]":                          "run password_command sh: it printed nothing; it has to print the password on standard output",
	} {
		cfg := load(t, Options{Environ: complete, Set: []string{"postgres.password_command=" + command}})
		_, err := cfg.Relay().Replication.Password(t.Context())
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestKafkaTLS_ReadsFilesAtEveryUse(t *testing.T) {
	files := testFiles{"f": minimal + "  tls: {enabled: true, ca_file: ca, cert_file: cert, key_file: key}\n"}
	renew := func(serial int64) { files["cert"], files["key"] = certificate(t, serial); files["ca"] = files["cert"] }
	renew(1)
	tlsFunc := load(t, Options{Path: "f", ReadFile: files.read}).Relay().Kafka.TLS
	for _, serial := range []int64{1, 2} {
		renew(serial)
		cfg, err := tlsFunc()
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Certificates[0].Leaf.SerialNumber.Int64(); got != serial || cfg.RootCAs == nil || cfg.MinVersion != 0x0303 {
			t.Errorf("certificate %d, want %d: %+v", got, serial, cfg)
		}
	}
	files["key"] = "s3cret"
	if _, err := tlsFunc(); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.HasPrefix(err.Error(), "read cert and key: ") {
		t.Errorf("a broken key: %v", err)
	}
}

func certificate(t *testing.T, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "relay"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

// What can be seen without running it is seen at once, and no argument is shown.
func TestPasswordCommand_HasToBeAProgram(t *testing.T) {
	for command, want := range map[string]string{
		"[/no/such/program, s3cret]": "f:3:21: postgres.password_command: cannot run /no/such/program: no such file or directory; ",
		"[\"sh -c s3cret\"]":         "f:3:21: postgres.password_command: is one word with spaces in it; ",
	} {
		text := strings.Replace(minimal, "outbox:", "  password_command: "+command+"\noutbox:", 1)
		_, err := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": text}.read})
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Whoever asks a relay over HTTP, or wants names alone, needs no secret of the
// servers, and may have no right to read them.
func TestLoad_WithoutSecretsReadsThoseOfHTTPAlone(t *testing.T) {
	text := minimal + `  tls: {enabled: true, ca_file: nope, cert_file: nope, key_file: nope}
  sasl: {mechanism: scram-sha-256, username: u, password: "${NOPE}"}
http: {token_file: token}
`
	text = strings.Replace(text, "outbox:", "  password_file: nope\noutbox:", 1)
	o := Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": text, "token": "t-1"}.read}
	if _, err := Load(o); err == nil || !strings.Contains(err.Error(), "postgres.password_file") {
		t.Errorf("with the secrets: %v", err)
	}
	o.WithoutSecrets = true
	cfg := load(t, o)
	if token, err := cfg.HTTP().Token(); token != "t-1" || err != nil {
		t.Errorf("token %q, %v", token, err)
	}
	o.ReadFile = testFiles{"f": text}.read
	if _, err := Load(o); err == nil || !strings.Contains(err.Error(), "http.token_file") {
		t.Errorf("without the token: %v", err)
	}
	url := strings.Replace(minimal, "relay@", "relay:${NOPE}@", 1)
	load(t, Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": url}.read, WithoutSecrets: true})
}

func TestLoad_RefusesATokenThatNoHeaderCarries(t *testing.T) {
	for key, text := range map[string]string{"token": `"a b\n"`, "token_file": "file"} {
		_, err := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": minimal + "http: {" + key + ": " + text + "}\n", "file": "s3cret\ns3cret\n"}.read})
		if err == nil || !strings.Contains(err.Error(), "http."+key+": the token holds a space, a line break") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", key, err)
		}
	}
}
