package marks

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

func TestPolicy_SetsAColumnByItsType(t *testing.T) {
	zoned, zoneless := "timestamp with time zone", "timestamp(3) without time zone"
	for name, tt := range map[string]struct {
		column maintenance.Column
		value  string
		want   string // unmarked → set, or a part of the refusal
	}{
		"time":             {maintenance.Column{Type: zoned}, "", `"m" IS NULL → "m" = pg_catalog.now()`},
		"time, now":        {maintenance.Column{Type: zoned}, "now", `"m" IS NULL → "m" = pg_catalog.now()`},
		"time in UTC":      {maintenance.Column{Type: zoneless}, "", `"m" IS NULL → "m" = (pg_catalog.now() AT TIME ZONE 'UTC')`},
		"time, literal":    {maintenance.Column{Type: zoned}, "sent", "allowed for a timestamp: now"},
		"time, always set": {maintenance.Column{Type: zoned, NotNull: true}, "", "is NOT NULL"},
		"flag":             {maintenance.Column{Type: "boolean"}, "", `"m" IS NOT TRUE → "m" = true`},
		"flag, not null":   {maintenance.Column{Type: "boolean", NotNull: true}, "true", `NOT "m" → "m" = true`},
		"flag, literal":    {maintenance.Column{Type: "boolean"}, "sent", "allowed for a boolean: true"},
		"status":           {maintenance.Column{Type: "text", Default: "'it''s new'::text"}, "sent", `"m" = 'it''s new' → "m" = 'sent'`},
		"enum":             {maintenance.Column{Type: "status", Default: "'pending'::status"}, "sent", `"m" = 'pending' → "m" = 'sent'`},
		"status, no value": {maintenance.Column{Type: "text", Default: "'pending'::text"}, "", "its value has to be given"},
		"status as it was": {maintenance.Column{Type: "text", Default: "'pending'::text"}, "pending", "is the default"},
		"status, nothing":  {maintenance.Column{Type: "text"}, "sent", "SET DEFAULT 'pending'"},
		"status, call":     {maintenance.Column{Type: "text", Default: "upper('a'::text)"}, "sent", "SET DEFAULT 'pending'"},
		"number":           {maintenance.Column{Type: "integer", Default: "0"}, "1", "allowed: a timestamp, a boolean"},
		"generated":        {maintenance.Column{Type: zoned, Generated: true}, "", "is generated"},
	} {
		tt.column.Name = "m"
		p := Policy{Target: upkeep.Target{Table: wal.Table{Schema: "public", Name: "outbox"}, Path: "outbox[0].mark"}, Column: "m", Value: tt.value}
		got, err := p.setting([]maintenance.Column{{Name: "other", Type: "integer"}, tt.column})
		text := got.unmarked + " → " + got.set
		if err != nil {
			text = err.Error()
		}
		if err == nil && text != tt.want || err != nil && !strings.Contains(text, tt.want) {
			t.Errorf("%s: %s, want %s", name, text, tt.want)
		}
	}
	_, err := (&Policy{Column: "gone"}).setting([]maintenance.Column{{Name: "sent_at", Type: zoned}, {Name: "id", Type: "uuid"}, {Name: "done", Type: "boolean"}})
	if err == nil || !strings.Contains(err.Error(), "allowed: sent_at, done") {
		t.Error(err)
	}
}

// A backfill sends the rows that have no mark, and marks are set on no others.
func TestPolicy_MeansTheRowsThatABackfillSends(t *testing.T) {
	for _, c := range []maintenance.Column{
		{Name: "published_at", Type: "timestamp with time zone"}, {Name: "sent", Type: "boolean"}, {Name: "status", Type: "text", Default: "'new'::text"},
	} {
		shape := snapshot.Shape{Columns: []snapshot.Column{{Name: c.Name, Type: c.Type, Default: c.Default, Nullable: !c.NotNull}}}
		sends, found := shape.PublishedColumn()
		value := ""
		if c.Name == "status" {
			value = "sent"
		}
		got, err := (&Policy{Column: c.Name, Value: value}).setting([]maintenance.Column{c})
		if err != nil || !found || got.unmarked != sends.Where {
			t.Errorf("%s: marks are for %q, backfill sends %q (%v)", c.Name, got.unmarked, sends.Where, err)
		}
	}
}
