package preflight_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestLook_ShowsWhoeverHoldsTheSlotAndWhatIsPublished(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.Config(t, db)
		cfg.Tables = []wal.Table{{Schema: "public", Name: "outbox"}}
		db.Exec(t, `CREATE TABLE outbox (id int PRIMARY KEY, payload text, secret text); CREATE TABLE other (id int)`)
		_, err := preflight.ReadSurvey(t.Context(), cfg)
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonSlotMissing, cfg.Slot)

		db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'test_decoding')", cfg.Slot)
		_, err = preflight.ReadSurvey(t.Context(), cfg)
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPublicationMissing)

		db.Exec(t, fmt.Sprintf(`CREATE PUBLICATION %s FOR TABLE outbox (id, payload) WHERE (id > 0), TABLE other`, wal.QuoteIdentifier(cfg.Publication)))
		s, err := preflight.ReadSurvey(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if s.SlotPlugin != "test_decoding" || s.SlotOwner != "" || s.SlotError == nil || s.Slot.Confirmed == 0 || s.WALEnd < s.Slot.Confirmed {
			t.Errorf("the slot: %+v", s)
		}
		p := s.Publication
		if p.AllTables || p.Tables != 2 || !slices.Equal(p.Operations, []string{"insert", "update", "delete", "truncate"}) || !slices.Equal(p.Foreign, []string{"public.other"}) {
			t.Errorf("the publication: %+v", p)
		}
		if m := p.Members[0]; m.Missing || m.Filter == "" || !slices.Equal(m.Columns, []string{"id", "payload"}) || !slices.Equal(m.Hidden, []string{"secret"}) {
			t.Errorf("the table: %+v", m)
		}
		cfg.Tables = append(cfg.Tables, wal.Table{Schema: "public", Name: "unpublished"})
		db.Exec(t, `CREATE TABLE unpublished (id int)`)
		if s, err = preflight.ReadSurvey(t.Context(), cfg); err != nil || !s.Publication.Members[1].Missing {
			t.Errorf("a table outside the publication: %+v and %v", s, err)
		}
	})
}
