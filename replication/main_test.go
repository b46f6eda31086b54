package replication

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Parallel tests have a server of their own, or share one with nobody who looks at all
// of it; those of two versions of the server have two.
func TestMain(m *testing.M) {
	harness.Parallel("3")
	harness.Main(m)
}

// outboxSQL is a table with what makes shapes difficult: a dropped column, a
// generated one, a name that needs quotes, a type of its own.
const outboxSQL = `
	CREATE TYPE mood AS ENUM ('good', 'bad');
	CREATE TABLE outbox (gone int, id uuid PRIMARY KEY, "aggregateType" varchar(100) NOT NULL, doubled int GENERATED ALWAYS AS (2 * 2) STORED, feeling mood, payload jsonb);
	ALTER TABLE outbox DROP COLUMN gone;`

// outboxDatabase is a database with table, publication and slot, and the configuration
// for them.
func outboxDatabase(t *testing.T, db *harness.Database) Config {
	t.Helper()
	db.Exec(t, outboxSQL)
	db.Exec(t, `CREATE PUBLICATION cdc_relay FOR TABLE outbox WITH (publish = 'insert')`)
	cfg := config(t, db)
	db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, cfg.Slot)
	return cfg
}

func config(t *testing.T, db *harness.Database) Config {
	t.Helper()
	return Config{URL: db.URL, Slot: harness.Unique(t, "slot"), Publication: "cdc_relay", Tables: []Table{{"public", "outbox"}}}
}

// asReplicator rewrites cfg to connect as a role with LOGIN and REPLICATION only.
func asReplicator(t *testing.T, db *harness.Database, cfg Config) Config {
	t.Helper()
	cfg.URL = withUser(t, cfg.URL, newRole(t, db, "LOGIN REPLICATION"))
	return cfg
}

func newRole(t *testing.T, db *harness.Database, attributes string) string {
	t.Helper()
	role := harness.Unique(t, "role")
	db.Exec(t, `CREATE ROLE `+role+` `+attributes)
	t.Cleanup(func() {
		conn, err := connect(context.Background(), Config{URL: db.Server.URL("postgres")}, false)
		if err != nil {
			t.Error(err)
			return
		}
		defer closeQuietly(conn)
		if err := (querier{ctx: context.Background(), conn: conn}).exec(`DROP ROLE ` + role); err != nil {
			t.Error(err)
		}
	})
	return role
}

func withUser(t *testing.T, url, user string) string {
	t.Helper()
	scheme, rest, ok := strings.Cut(url, "://")
	_, host, ok2 := strings.Cut(rest, "@")
	if !ok || !ok2 {
		t.Fatalf("no user in the test server's URL")
	}
	return scheme + "://" + user + "@" + host
}

func open(t *testing.T, cfg Config, replication bool) *pgconn.PgConn {
	t.Helper()
	conn, err := connect(t.Context(), cfg, replication)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeQuietly(conn) })
	return conn
}

// wantError checks kind and reason, and that the message has all of the texts.
func wantError(t *testing.T, err error, kind ErrorKind, reason string, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s (%s)", reason, kind)
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is not an *Error: %v", err, err)
	}
	if KindOf(err) != kind || Reason(err) != reason {
		t.Errorf("got %s (%s), want %s (%s): %v", Reason(err), KindOf(err), reason, kind, err)
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

// firstRelation reads a copy up to the first Relation message.
func firstRelation(t *testing.T, conn *pgconn.PgConn) *pglogrepl.RelationMessage {
	t.Helper()
	for {
		message, err := conn.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		data, ok := message.(*pgproto3.CopyData)
		if !ok {
			t.Fatalf("%T in the copy", message)
		}
		if data.Data[0] != pglogrepl.XLogDataByteID {
			continue
		}
		x, err := pglogrepl.ParseXLogData(data.Data[1:])
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := pglogrepl.Parse(x.WALData)
		if err != nil {
			t.Fatal(err)
		}
		if relation, ok := decoded.(*pglogrepl.RelationMessage); ok {
			return relation
		}
	}
}
