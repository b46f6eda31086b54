package preflight_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
	"github.com/cdc-relay/cdc-relay/postgres/preflight/preflighttest"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/teardown"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
)

// Without its publication a slot is of no use, and setup does not make one after it.
func TestPublicationMissing_BesideASlotSaysWhatSetupWouldSay(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	db.Exec(t, `DROP PUBLICATION cdc_relay`)
	want := postgres.HintRecreate(fault.ReasonPublicationMissing, postgrestest.ConfirmedBy(t, db, cfg.Slot))
	want = "; if the name is wrong, correct postgres.publication; if the publication was really dropped: " + want
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "publication", advice.Fail, "the publication does not exist, and slot", want)
	_, err := postgrestest.Inspect(t, cfg)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPublicationMissing, want)
	_, err = provision.Setup(t.Context(), cfg, provision.SetupOptions{})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonSlotUnusable, want)
	if _, err := teardown.Run(t.Context(), cfg, true); err != nil {
		t.Fatal(err)
	}
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "publication", advice.Fail, "the publication does not exist; "+postgres.HintSetup)
	if _, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{}); err != nil {
		t.Error(err)
	}
}

// A slip in a name is no reason to throw away a slot with rows in it, which is what a
// new publication would take.
func TestPublicationMissing_NamesTheOneThatHasTheTables(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.OutboxDatabase(t, db)
		db.Exec(t, `CREATE TABLE parted (id int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF parted FOR VALUES FROM (0) TO (9);
			CREATE TABLE other (id int); CREATE PUBLICATION others FOR TABLE other; CREATE PUBLICATION leaves FOR TABLE parted, other`)
		const first = "if the name is wrong, correct postgres.publication; if the publication was really dropped: stop the relay, then `cdc-relay teardown"
		for table, has := range map[string]string{"outbox": `"cdc_relay"`, "parted": `"leaves"`} {
			cfg := cfg
			cfg.Publication, cfg.Tables = "cdc_rely", []wal.Table{{Schema: "public", Name: table}}
			want := `; there is publication ` + has + ` with the configured tables: ` + first
			preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "publication", advice.Fail, want)
			_, err := postgrestest.Inspect(t, cfg)
			postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPublicationMissing, want)
			for _, dry := range []bool{true, false} {
				_, err = provision.Setup(t.Context(), cfg, provision.SetupOptions{DryRun: dry})
				postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonSlotUnusable, want)
			}
		}
		cfg.Publication, cfg.Tables = "cdc_rely", []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: "other"}}
		preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "publication", advice.Fail, "; "+first)
		db.Exec(t, `CREATE PUBLICATION "every" FOR ALL TABLES; CREATE PUBLICATION "bo""th" FOR TABLE outbox, other`)
		preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "publication", advice.Fail, `; there are publications "bo\"th", "every" with the configured tables: `+first)
		cfg.Slot = "nobody_made_it"
		preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "publication", advice.Fail, `with the configured tables: if the name is wrong, correct postgres.publication; otherwise `+postgres.HintSetup)
	})
}

// A relay that reads the slot which was meant is a reason to name it, not to leave it out.
func TestSlotMissing_NamesTheOneThatWasMeant(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	meant := cfg.Slot
	cfg.Slot = meant[:len(meant)-1] + "z"
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot", advice.Fail, fmt.Sprintf("did you mean %q, which nobody reads? Then correct postgres.slot; otherwise, for a new relay run", meant))
	streamed := cfg
	streamed.Slot = meant
	s, err := replication.Open(t.Context(), streamed, replication.Options{}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Abort()
	_, err = postgrestest.Inspect(t, cfg)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonSlotMissing, fmt.Sprintf("did you mean %q, which pid ", meant))
}

// A slot that setup makes has none of the rows that wait in the one that was meant, which
// would hold WAL from then on.
func TestSlotMissing_NamesThoseThatNobodyReads(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.OutboxDatabase(t, db)
		meant := cfg.Slot
		other := harness.Unique(t, "slot")
		db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, other)
		cfg.Slot = "nothing_like_it_" + harness.Unique(t, "slot")
		there := fmt.Sprintf("there is slot %q, which nobody reads: ", meant)
		want := "the slot does not exist; " + there + "correct postgres.slot if that is it; otherwise, for a new relay run `cdc-relay setup`"
		preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot", advice.Fail, want)
		_, err := postgrestest.Inspect(t, cfg)
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonSlotMissing, want)
		for _, dry := range []bool{true, false} {
			report, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{DryRun: dry})
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Join(report.Warnings, "\n")
			if !strings.Contains(said, there+"rows that wait there are not in ") || strings.Contains(said, other) || strings.Contains(said, "and drop slot") == dry {
				t.Errorf("dry run %t: %q", dry, said)
			}
		}
		db.Exec(t, `SELECT pg_drop_replication_slot($1)`, cfg.Slot)
		db.Exec(t, `SELECT pg_drop_replication_slot($1)`, meant)
		_, err = postgrestest.Inspect(t, cfg)
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonSlotMissing, "the slot does not exist; for a new relay")
	})
}
