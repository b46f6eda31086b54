package watch

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestProbe_SeesServerAndSlotWithTheLeastRights(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.OutboxDatabase(t, db)
		probe := NewProbe(postgrestest.AsReplicator(t, db, cfg))
		defer probe.Close()
		first, err := probe.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if first.Drift != nil || first.Slot.Active || first.Slot.WALStatus != "reserved" || first.Slot.Confirmed == 0 || first.WALEnd < first.Slot.Confirmed {
			t.Errorf("first: %+v", first)
		}
		db.Exec(t, `INSERT INTO outbox (id, "aggregateType") VALUES (gen_random_uuid(), 'a')`)
		second, err := probe.Read(t.Context())
		if err != nil || second.Drift != nil || second.WALEnd <= first.WALEnd {
			t.Errorf("second: %+v, %v", second, err)
		}
	})
}

func TestProbe_SeesDrift(t *testing.T) {
	tests := []struct {
		name   string
		before string // seen by the first look
		change string
		kind   fault.Kind
		reason string
		text   string
	}{
		{name: "publication dropped", change: `DROP PUBLICATION cdc_relay`, kind: fault.KindDrift, reason: fault.ReasonPublicationMissing, text: "it was dropped; the slot cannot stream rows from before a new one: stop the relay, then"},
		{
			name: "publication made again", change: `DROP PUBLICATION cdc_relay; CREATE PUBLICATION cdc_relay FOR TABLE outbox WITH (publish = 'insert')`,
			kind: fault.KindDrift, reason: fault.ReasonPublicationChanged, text: "recreated; " + hintBetween,
		},
		{name: "inserts taken out", change: `ALTER PUBLICATION cdc_relay SET (publish = 'truncate')`, kind: fault.KindDrift, reason: fault.ReasonTableUnpublished, text: "does not publish inserts"},
		{name: "table taken out", change: `ALTER PUBLICATION cdc_relay DROP TABLE outbox`, kind: fault.KindDrift, reason: fault.ReasonTableUnpublished, text: "ADD TABLE"},
		{name: "row filter", change: `ALTER PUBLICATION cdc_relay SET TABLE outbox WHERE (id IS NULL)`, kind: fault.KindDrift, reason: fault.ReasonPublicationChanged, text: "row filter on public.outbox"},
		{
			name: "table taken out and put back", change: `ALTER PUBLICATION cdc_relay DROP TABLE outbox; ALTER PUBLICATION cdc_relay ADD TABLE outbox`,
			kind: fault.KindDrift, reason: fault.ReasonPublicationChanged, text: "taken out of it and put back; " + hintBetween,
		},
		{
			name: "inserts taken out and put back", change: `ALTER PUBLICATION cdc_relay SET (publish = 'truncate'); ALTER PUBLICATION cdc_relay SET (publish = 'insert')`,
			kind: fault.KindDrift, reason: fault.ReasonPublicationChanged, text: "altered and put back; " + hintBetween,
		},
		{name: "updates added", change: `ALTER PUBLICATION cdc_relay SET (publish = 'insert, update')`},
		{name: "table dropped", change: `DROP TABLE outbox`, kind: fault.KindDrift, reason: fault.ReasonTableMissing, text: "dropped"},
		{name: "table renamed", change: `ALTER TABLE outbox RENAME TO "Outbox2"`, kind: fault.KindDrift, reason: fault.ReasonTableChanged, text: `renamed to public."Outbox2"`},
		{name: "table moved", change: `CREATE SCHEMA app; ALTER TABLE outbox SET SCHEMA app`, kind: fault.KindDrift, reason: fault.ReasonTableChanged, text: "renamed to app.outbox"},
		{
			name: "table replaced", change: `ALTER TABLE outbox RENAME TO old; CREATE TABLE outbox (id uuid); ALTER PUBLICATION cdc_relay ADD TABLE outbox`,
			kind: fault.KindDrift, reason: fault.ReasonTableChanged, text: "docs/operations.md#sending-rows-again",
		},
		{name: "column added", change: `ALTER TABLE outbox ADD COLUMN extra text`},
		{name: "another table added", change: `CREATE TABLE other (id int); ALTER PUBLICATION cdc_relay ADD TABLE other`},
		{name: "partitions taken from under the root", before: `DROP PUBLICATION cdc_relay; DROP TABLE outbox;
			CREATE TABLE outbox (id int) PARTITION BY LIST (id); CREATE TABLE leaf PARTITION OF outbox DEFAULT;
			CREATE PUBLICATION cdc_relay FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`,
			change: `ALTER PUBLICATION cdc_relay SET (publish_via_partition_root = false)`, kind: fault.KindDrift, reason: fault.ReasonTableUnpublished, text: "publish_via_partition_root"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			db := harness.Postgres(t, "15")
			cfg := postgrestest.OutboxDatabase(t, db)
			if test.before != "" {
				db.Exec(t, test.before)
			}
			probe := NewProbe(cfg)
			defer probe.Close()
			for range 2 {
				if s, err := probe.Read(t.Context()); err != nil || s.Drift != nil {
					t.Fatalf("before the change: %+v, %v", s, err)
				}
			}
			db.Exec(t, test.change)
			for range 2 {
				s, err := probe.Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if test.reason == "" {
					if s.Drift != nil {
						t.Errorf("harmless, but: %v", s.Drift)
					}
					continue
				}
				postgrestest.WantError(t, s.Drift, test.kind, test.reason, test.text)
			}
		})
	}
}

func TestProbe_SeesAMissingSlot(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.OutboxDatabase(t, db)
	probe := NewProbe(cfg)
	defer probe.Close()
	db.Exec(t, `SELECT pg_drop_replication_slot($1)`, cfg.Slot)
	s, err := probe.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	postgrestest.WantError(t, s.Drift, fault.KindRefused, fault.ReasonSlotMissing, cfg.Slot, "for a new relay run `cdc-relay setup`")
}

func TestProbe_ReconnectsAndRemembers(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.OutboxDatabase(t, db)
	probe := NewProbe(cfg)
	defer probe.Close()
	if _, err := probe.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `SELECT pg_terminate_backend($1)`, int(probe.conn.PID()))
	_, err := probe.Read(t.Context())
	postgrestest.WantError(t, err, fault.KindRetry, postgres.Reason(err))
	db.Exec(t, `ALTER TABLE outbox RENAME TO moved`)
	s, err := probe.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	postgrestest.WantError(t, s.Drift, fault.KindDrift, fault.ReasonTableChanged, "public.moved")
}

func TestProbe_SaysWhatASlotHadConfirmedThatItSawGo(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.OutboxDatabase(t, db)
	probe := NewProbe(cfg)
	defer probe.Close()
	if _, err := probe.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := postgrestest.ConfirmedBy(t, db, cfg.Slot)
	db.Exec(t, `SELECT pg_drop_replication_slot($1)`, cfg.Slot)
	s, err := probe.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	postgrestest.WantError(t, s.Drift, fault.KindRefused, fault.ReasonSlotMissing, cfg.Slot, "no longer exists", "confirmed LSN "+at.String(), "since that LSN again", "docs/operations.md#slot_missing")
	if strings.Contains(s.Drift.Error(), "new relay") {
		t.Errorf("it is no new relay: %v", s.Drift)
	}
}
