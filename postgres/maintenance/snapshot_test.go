package maintenance

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The snapshot of a slot's creation belongs to who imported it, also once the connection that
// made the slot is gone. Nobody can import it any more then.
func TestExportedSnapshot_OutlivesItsExporterInWhoImportedIt(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL)
		db.Exec(t, `INSERT INTO events VALUES ('old', 1)`)
		slot := harness.Unique(t, "slot")
		maker := postgres.Querier{Ctx: t.Context(), Conn: postgrestest.Open(t, postgres.Config{URL: db.URL}, true)}
		made, err := maker.One(`CREATE_REPLICATION_SLOT "` + slot + `" LOGICAL pgoutput EXPORT_SNAPSHOT`)
		if err != nil {
			t.Fatal(err)
		}
		snapshot := postgres.QuoteLiteral(made.Text(2))
		reader := postgres.Querier{Ctx: t.Context(), Conn: postgrestest.Open(t, postgres.Config{URL: db.URL}, false)}
		if err := reader.Exec(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT ` + snapshot); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `INSERT INTO events VALUES ('new', 2)`)
		postgres.CloseQuietly(maker.Conn)
		for harness.Query[bool](t, db, `SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1`, int64(maker.Conn.PID())) {
			// the server ends a session a moment after its client
		}
		row, err := reader.One(`SELECT string_agg(id, ' ' ORDER BY id) FROM public.events`)
		if err != nil || row.Text(0) != "old" {
			t.Errorf("the importer sees %q, %v", row.Text(0), err)
		}
		late := postgres.Querier{Ctx: t.Context(), Conn: postgrestest.Open(t, postgres.Config{URL: db.URL}, false)}
		err = late.Exec(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT ` + snapshot)
		if err == nil || !strings.Contains(err.Error(), "snapshot") {
			t.Errorf("imported after the exporter: %v", err)
		}
		// What the importer does not see, the slot has, and nothing else.
		c := consume(t, db)
		c.slot = slot
		s := opened(t, db, work())
		fence, err := s.Fence(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.upTo(t, s, fence)
		if len(c.has) != 1 || !c.has["new"] {
			t.Errorf("the slot has %v", c.has)
		}
	})
}
