package replication

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The server takes any position that is confirmed, and sends nothing that commits before it.
func TestPostgresSlotBeyondTheWALIsRefused(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := orders(t, db)
		confirm(t, db, cfg, 1<<30)
		db.Exec(t, "INSERT INTO outbox (aggregate_id) VALUES ('never sent')")
		s, err := Open(t.Context(), cfg, Options{}, zerolog.Nop())
		if err == nil {
			_ = s.Close(t.Context(), s.StartLSN())
			t.Fatal("the stream begins, and lacks the row")
		}
		if postgres.KindOf(err) != fault.KindDrift || postgres.Reason(err) != fault.ReasonSlotMoved {
			t.Errorf("got %v", err)
		}
	})
}

// confirm confirms a position of the slot beyond the end of the WAL.
func confirm(t *testing.T, db *harness.Database, cfg postgres.Config, beyond wal.LSN) {
	t.Helper()
	conn, err := postgres.Connect(t.Context(), cfg, true)
	if err != nil {
		t.Fatal(err)
	}
	system, err := pglogrepl.IdentifySystem(t.Context(), conn)
	if err == nil {
		err = pglogrepl.StartReplication(t.Context(), conn, cfg.Slot, 0, pglogrepl.StartReplicationOptions{
			PluginArgs: []string{"proto_version '1'", "publication_names '" + wal.QuoteIdentifier(cfg.Publication) + "'"},
		})
	}
	if err == nil {
		err = pglogrepl.SendStandbyStatusUpdate(t.Context(), conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: system.XLogPos + pglogrepl.LSN(beyond)})
	}
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	await := func(sql string, args ...any) {
		for !harness.Query[bool](t, db, sql, args...) {
			<-tick.C
		}
	}
	await("SELECT confirmed_flush_lsn > $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1", cfg.Slot, system.XLogPos.String())
	postgres.CloseQuietly(conn)
	await("SELECT NOT active FROM pg_replication_slots WHERE slot_name = $1", cfg.Slot)
}
