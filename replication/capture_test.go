package replication

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
)

const captureSchema = `
	CREATE TYPE mood AS ENUM ('calm', 'tense');
	CREATE DOMAIN email AS text CHECK (VALUE LIKE '%@%');
	CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type varchar(100), n bigint, price numeric(12,2), ratio float8,
		raw bytea, at timestamptz, span interval, feeling mood, contact email, tags text[], payload jsonb);
	ALTER TABLE outbox ALTER payload SET STORAGE EXTERNAL;
	CREATE TABLE "Out""Box" ("Key" text PRIMARY KEY, "Größe" int);
	CREATE TABLE parts (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
	CREATE TABLE parts_25 PARTITION OF parts FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
	CREATE TABLE other (id int PRIMARY KEY, t text);`

// captureScript is a statement a line, a transaction a statement unless it says so.
var captureScript = []string{
	`INSERT INTO outbox VALUES ('018f2d6e-7c1a-7b43-9d2e-0123456789ab', 'orders', -1, 12.30, 0.1, '\x00ff10', '2025-06-01 12:00:00.123456+02', '1 day 02:03:04', 'tense', 'a@b', '{a,"b c",NULL}', '{"k": "ä€😀"}')`,
	`INSERT INTO outbox (id) VALUES ('018f2d6e-7c1a-7b43-9d2e-0123456789ac')`,
	`BEGIN; INSERT INTO "Out""Box" VALUES ('', 7); SAVEPOINT s; INSERT INTO "Out""Box" VALUES ('gone', 8); ROLLBACK TO s; INSERT INTO other VALUES (1, 'x'); INSERT INTO parts VALUES (1, '2025-06-01'); COMMIT`,
	`BEGIN; UPDATE other SET id = 2; UPDATE other SET t = 'y'; DELETE FROM other; TRUNCATE other; COMMIT`,
	`INSERT INTO outbox (id, payload) VALUES ('018f2d6e-7c1a-7b43-9d2e-0123456789ad', to_jsonb(repeat('toast', 800)))`,
	`UPDATE outbox SET n = 5 WHERE payload IS NOT NULL`,
	`BEGIN; SELECT pg_replication_origin_create('origin of ' || current_database()); SELECT pg_replication_origin_session_setup('origin of ' || current_database()); SELECT pg_replication_origin_xact_setup('0/1234', '2025-01-01'); INSERT INTO "Out""Box" VALUES ('from elsewhere', NULL); COMMIT; SELECT pg_replication_origin_session_reset(); SELECT pg_replication_origin_drop('origin of ' || current_database())`,
	`ALTER TABLE "Out""Box" ADD more text DEFAULT 'd', ALTER "Größe" TYPE bigint`,
	`INSERT INTO "Out""Box" VALUES ('after', 9)`,
}

var recapture = flag.Bool("capture", false, "rewrite the captures of real servers in pgoutput/testdata")

// captures is the folder of the messages that pgoutput's tests decode.
var captures = filepath.Join("pgoutput", "testdata")

// TestCapture holds pgoutput/testdata/<major>/<format>.hex against a server of that
// version: a message a line, its type first. Positions, times, transaction ids and OIDs
// differ from run to run and have a fixed length, so types and lengths are compared.
// With -capture the files are written, also for other versions; the goldens beside them
// follow with `go test ./replication/pgoutput -update`.
func TestCapture(t *testing.T) {
	compared := 0
	for _, version := range harness.Versions() {
		if _, err := os.Stat(filepath.Join(captures, version)); err != nil && !*recapture {
			continue // an older or newer server speaks the same protocol: two versions are stored
		}
		for format, got := range capture(t, version) {
			compared++
			path := filepath.Join(captures, version, format+".hex")
			if *recapture {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			stored, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if want, got := outline(stored), outline(got); !slices.Equal(want, got) {
				t.Errorf("PostgreSQL %s, %s: the server sends\n%q\n%s has\n%q", version, format, got, path, want)
			}
		}
	}
	if compared == 0 {
		t.Errorf("no version of %q is stored in %s", harness.Versions(), captures)
	}
}

// outline is each message's type and length. The origin's name ends with that of the
// database.
func outline(capture []byte) (messages []string) {
	for line := range strings.Lines(string(capture)) {
		if line[0] == 'O' {
			messages = append(messages, "O")
			continue
		}
		messages = append(messages, fmt.Sprintf("%c %d", line[0], len(line)/2-1))
	}
	return messages
}

// capture has a server send the same transactions in each format.
func capture(t *testing.T, version string) map[string][]byte {
	t.Helper()
	captured := []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: `Out"Box`}, {Schema: "public", Name: "parts"}}
	db := harness.Postgres(t, version)
	db.Exec(t, captureSchema)
	cfg := publish(t, db, append(slices.Clone(captured), wal.Table{Schema: "public", Name: "other"})...)
	cfg.Tables = captured
	db.Exec(t, "ALTER PUBLICATION "+wal.QuoteIdentifier(cfg.Publication)+" SET (publish = 'insert, update, delete, truncate')")
	conn := db.Connect(t)
	for _, sql := range captureScript {
		if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	end, err := wal.ParseLSN(harness.Query[string](t, db, "SELECT pg_current_wal_flush_lsn()::text"))
	if err != nil {
		t.Fatal(err)
	}
	formats := map[string][]byte{}
	for format, binary := range map[string]bool{"text": false, "binary": true} {
		awaitReleased(t, db, cfg.Slot)
		formats[format] = listen(t, cfg, Options{Binary: func([]*wal.Relation, wal.LSN, wal.LSN) bool { return binary }}, end)
	}
	return formats
}

// awaitReleased waits until the server has ended the slot's last connection: the end of a copy does not
// wait for it where the server still had something to send.
func awaitReleased(t *testing.T, db *harness.Database, slot string) {
	t.Helper()
	for deadline := time.After(2 * time.Minute); harness.Query[bool](t, db, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", slot); {
		select {
		case <-deadline:
			t.Fatalf("slot %s stays in use", slot)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// listen gives the raw messages up to a keep-alive at or after end.
func listen(t *testing.T, cfg postgres.Config, opt Options, end wal.LSN) []byte {
	t.Helper()
	s, err := Open(t.Context(), cfg, opt, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context(), s.StartLSN())
	var out bytes.Buffer
	for {
		kind, body, ok, err := s.frames.next()
		switch {
		case err != nil:
			t.Fatal(err)
		case !ok:
			if _, err := s.frames.readMore(); err != nil {
				t.Fatal(err)
			}
		case kind == 'd' && body[0] == 'w':
			fmt.Fprintf(&out, "%c %s\n", body[walHeader], hex.EncodeToString(body[walHeader:]))
		case kind == 'd' && lsnAt(body, 1) >= end:
			return out.Bytes()
		}
	}
}
