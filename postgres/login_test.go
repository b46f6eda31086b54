package postgres_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Passwords come from wherever libpq would find them, for the stream as for an
// ordinary connection.
func TestConnect_FindsThePasswordWhereLibpqDoes(t *testing.T) {
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Password: "hush"})
	url := "postgres://postgres@" + db.Server.Addr() + "/postgres?sslmode=disable"
	t.Setenv("PGPASSFILE", filepath.Join(t.TempDir(), "none"))
	_, err := postgres.Connect(t.Context(), postgres.Config{URL: url}, true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonAuth)

	both := func(t *testing.T, url string) {
		t.Helper()
		for _, replication := range []bool{false, true} {
			postgrestest.Open(t, postgres.Config{URL: url}, replication)
		}
	}
	t.Run("PGPASSWORD", func(t *testing.T) {
		t.Setenv("PGPASSWORD", "hush")
		both(t, url)
	})
	t.Run("pgpass", func(t *testing.T) {
		t.Setenv("PGPASSFILE", file(t, "pgpass", "127.0.0.1:*:other:postgres:wrong\n127.0.0.1:*:postgres:postgres:hush\n"))
		both(t, url)
	})
	t.Run("service file", func(t *testing.T) {
		host, port := db.Server.Addr()[:len("127.0.0.1")], db.Server.Addr()[len("127.0.0.1:"):]
		t.Setenv("PGSERVICEFILE", file(t, "pg_service.conf", fmt.Sprintf("[shop]\nhost=%s\nport=%s\nuser=postgres\npassword=hush\ndbname=postgres\nsslmode=disable\n", host, port)))
		both(t, "service=shop")
	})
}

func TestConnect_AuthenticatesByClientCertificate(t *testing.T) {
	t.Parallel()
	serverCert, serverKey := postgrestest.Certificate(t, "127.0.0.1")
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{CertFile: serverCert, KeyFile: serverKey})
	clientCert, clientKey := clientCertificate(t, "relay_by_cert")
	authority, err := os.ReadFile(clientCert)
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `CREATE ROLE relay_by_cert LOGIN REPLICATION`)
	data := harness.Query[string](t, db, `SELECT current_setting('data_directory')`)
	for name, content := range map[string]string{
		"client_ca.crt": string(authority),
		"pg_hba.conf":   "hostssl all relay_by_cert all cert\nlocal all all trust\nhost all all all trust\n",
	} {
		db.Exec(t, `COPY (SELECT string_to_table('`+content+`', E'\n')) TO '`+data+"/"+name+`'`)
	}
	db.Exec(t, `ALTER SYSTEM SET ssl_ca_file = 'client_ca.crt'`)
	db.Exec(t, `SELECT pg_reload_conf()`)

	url := "host=127.0.0.1 port=" + db.Server.Addr()[len("127.0.0.1:"):] + " user=relay_by_cert dbname=postgres sslmode=verify-full sslrootcert=" + serverCert
	refused := func() error {
		conn, err := postgres.Connect(t.Context(), postgres.Config{URL: url}, true)
		if err == nil {
			postgres.CloseQuietly(conn)
		}
		return err
	}
	for deadline := time.Now().Add(time.Minute); refused() == nil; { // the server reads its files when it gets to it
		if time.Now().After(deadline) {
			t.Fatal("the server takes the role without a certificate")
		}
	}
	postgrestest.WantError(t, refused(), fault.KindRefused, fault.ReasonAuth)
	for _, replication := range []bool{false, true} {
		postgrestest.Open(t, postgres.Config{URL: url + " sslcert=" + clientCert + " sslkey=" + clientKey}, replication)
	}
}

// clientCertificate is for one role, and its own authority.
func clientCertificate(t *testing.T, role string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: role}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "client.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		file(t, "client.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
}
