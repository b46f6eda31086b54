package postgrestest

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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5/pgconn"
)

// AsReader rewrites cfg to connect as the role that check is made for.
func AsReader(t *testing.T, db *harness.Database, cfg postgres.Config) postgres.Config {
	t.Helper()
	role := NewRole(t, db, "LOGIN REPLICATION")
	db.Exec(t, "GRANT pg_read_all_data TO "+role)
	cfg.URL = WithUser(t, cfg.URL, role)
	return cfg
}

// OutboxSQL is a table with what makes shapes difficult: a dropped column, a
// generated one, a name that needs quotes, a type of its own.
const OutboxSQL = `
	CREATE TYPE mood AS ENUM ('good', 'bad');
	CREATE TABLE outbox (gone int, id uuid PRIMARY KEY, "aggregateType" varchar(100) NOT NULL, doubled int GENERATED ALWAYS AS (2 * 2) STORED, feeling mood, payload jsonb);
	ALTER TABLE outbox DROP COLUMN gone;`

// OutboxDatabase is a database with table, publication and slot, and the configuration
// for them.
func OutboxDatabase(t *testing.T, db *harness.Database) postgres.Config {
	t.Helper()
	db.Exec(t, OutboxSQL)
	db.Exec(t, `CREATE PUBLICATION cdc_relay FOR TABLE outbox WITH (publish = 'insert')`)
	cfg := Config(t, db)
	db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, cfg.Slot)
	return cfg
}

func Config(t *testing.T, db *harness.Database) postgres.Config {
	t.Helper()
	return postgres.Config{URL: db.URL, Slot: harness.Unique(t, "slot"), Publication: "cdc_relay", Tables: []wal.Table{{Schema: "public", Name: "outbox"}}}
}

// AsReplicator rewrites cfg to connect as a role with LOGIN and REPLICATION only.
func AsReplicator(t *testing.T, db *harness.Database, cfg postgres.Config) postgres.Config {
	t.Helper()
	cfg.URL = WithUser(t, cfg.URL, NewRole(t, db, "LOGIN REPLICATION"))
	return cfg
}

func NewRole(t *testing.T, db *harness.Database, attributes string) string {
	t.Helper()
	role := harness.Unique(t, "role")
	db.Exec(t, `CREATE ROLE `+role+` `+attributes)
	t.Cleanup(func() {
		conn, err := postgres.Connect(context.Background(), postgres.Config{URL: db.Server.URL("postgres")}, false)
		if err != nil {
			t.Error(err)
			return
		}
		defer postgres.CloseQuietly(conn)
		if err := (postgres.Querier{Ctx: context.Background(), Conn: conn}).Exec(`DROP ROLE ` + role); err != nil {
			t.Error(err)
		}
	})
	return role
}

func WithUser(t *testing.T, url, user string) string {
	t.Helper()
	scheme, rest, ok := strings.Cut(url, "://")
	_, host, ok2 := strings.Cut(rest, "@")
	if !ok || !ok2 {
		t.Fatalf("no user in the test server's URL")
	}
	return scheme + "://" + user + "@" + host
}

func Open(t *testing.T, cfg postgres.Config, replication bool) *pgconn.PgConn {
	t.Helper()
	conn, err := postgres.Connect(t.Context(), cfg, replication)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { postgres.CloseQuietly(conn) })
	return conn
}

// WantError checks kind and reason, and that the message has all of the texts.
func WantError(t *testing.T, err error, kind fault.Kind, reason string, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s (%s)", reason, kind)
	}
	var e *fault.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is not an *Error: %v", err, err)
	}
	if postgres.KindOf(err) != kind || postgres.Reason(err) != reason {
		t.Errorf("got %s (%s), want %s (%s): %v", postgres.Reason(err), postgres.KindOf(err), reason, kind, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in the message: %v", text, err)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\r\t") {
		t.Errorf("the message has more than one line: %q", err)
	}
}

func Inspect(t *testing.T, cfg postgres.Config) (*catalog.Catalog, error) {
	t.Helper()
	conn, err := postgres.Connect(t.Context(), cfg, true)
	if err != nil {
		t.Fatal(err)
	}
	defer postgres.CloseQuietly(conn)
	return catalog.Inspect(t.Context(), conn, cfg)
}

// Certificate is self-signed for the host, as files.
func Certificate(t testing.TB, host string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("server.crt", "CERTIFICATE", der), write("server.key", "PRIVATE KEY", keyDER)
}

func ColumnNames(relation *wal.Relation) string {
	var names []string
	for _, column := range relation.Columns {
		names = append(names, column.Name+" "+column.TypeName)
	}
	return strings.Join(names, ", ")
}

func ConfirmedBy(t *testing.T, db *harness.Database, slot string) wal.LSN {
	t.Helper()
	at, err := wal.ParseLSN(harness.Query[string](t, db, `SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, slot))
	if err != nil {
		t.Fatal(err)
	}
	return at
}
